//! The real lookup core in networks of many nodes, without sockets: complete and partial membership, nodes that leave
//! and come, black holes, slow peers, and peers that lie.
//!
//! The records are real as well: signed, and verified by whoever asks. Latencies and faults are drawn from the seed.
//! A lookup takes a second at most, in which the network is taken to stand still.

mod churn;
mod client;
mod report;
mod suite;
mod titles;
mod world;

pub use client::{Client, Sought};
pub use report::DhtReport;
pub use suite::{DhtScenario, DhtSettings, run_dht};
pub use titles::Title;
pub use world::{Membership, Nature, World};
