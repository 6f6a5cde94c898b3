//! The rewarder: exact, reproducible, provable epoch payouts.
