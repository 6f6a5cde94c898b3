//! The rewarder: exact, reproducible, provable epoch payouts.

#![forbid(unsafe_code)]

// what the service declares
pub mod capabilities;
pub mod config;
mod metrics;
pub mod specs;

pub use metrics::METRICS;
