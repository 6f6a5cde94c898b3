//! The rewarder: exact, reproducible, provable epoch payouts.

#![forbid(unsafe_code)]

// what the service declares
pub mod capabilities;
pub mod config;
mod metrics;
pub mod specs;

// what the node itself did, as usage
pub mod usage_meter;

// what a page shows
pub mod distribution;

pub use metrics::METRICS;
