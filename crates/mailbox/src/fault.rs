//! Points of a turn at which a test plants a panic; nothing outside of tests.

ron_log::fault_points!();
