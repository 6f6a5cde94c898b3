//! The rewarder: exact, reproducible, provable epoch payouts.

pub mod usage_meter;
