//! The only hand-written atomics of the project. Each is small enough for loom to try every interleaving of its model
//! (tools/models/loom-models); everything else is built from channels and locks that others have already proven.

mod budget;
mod drain_guard;
mod monotone;
mod sequence;
mod tally;

pub use budget::{Budget, Share};
pub use drain_guard::{DrainGuard, Pass};
pub use monotone::Monotone;
pub use sequence::Sequence;
pub use tally::Tally;

/// The atomics in use: loom's or shuttle's with the feature of that name, the standard ones otherwise.
pub(crate) mod sync {
    #[cfg(feature = "loom")]
    pub(crate) use loom::sync::Arc;
    #[cfg(feature = "loom")]
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    #[cfg(all(feature = "shuttle", not(feature = "loom")))]
    pub(crate) use shuttle::sync::Arc;
    #[cfg(all(feature = "shuttle", not(feature = "loom")))]
    pub(crate) use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub(crate) use std::sync::Arc;
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
}
