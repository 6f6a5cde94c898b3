//! Exact division of a pot among many: what everyone did, what a policy says, who gets how much, and the proof of it.
//!
//! Integers only, no I/O, no clock: the same question has the same answer on any machine with any number of threads.
//! Read in this order: `units`, `totals`, `policy`, `allocate`, `explain`, `tree`.

#![forbid(unsafe_code)]

pub mod allocate;
pub mod explain;
mod parallel;
pub mod policy;
pub mod totals;
pub mod tree;
pub mod units;

pub use allocate::{AssetAllocation, Breach, Question, allocate};
pub use explain::{Explanation, explain};
pub use policy::{Policy, PolicyError};
pub use totals::{Roster, Slot, Totals};
pub use units::Units;
