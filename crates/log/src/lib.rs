//! The durable append log: segments, group commit, recovery, scrub; the disk behind a trait.
//!
//! Read in this order: `model` (the words), `frame` (what lies on the disk), `gather` (the commit path, free of I/O),
//! `commit` (the I/O of it), `recover` (what is believed after a crash).

#![forbid(unsafe_code)]

mod append;
mod commit;
mod core;
pub mod disk;
mod error;
mod fault;
#[cfg(not(feature = "shuttle"))]
mod frame;
#[cfg(feature = "shuttle")]
#[doc(hidden)]
pub mod frame;
#[cfg(not(feature = "shuttle"))]
mod gather;
#[cfg(feature = "shuttle")]
#[doc(hidden)]
pub mod gather;
mod log;
mod lone;
mod manifest;
mod model;
mod reclaim;
mod recover;
mod scan;
mod scrub;
mod sidecar;
pub mod sim;
mod table;
mod upkeep;
mod verify;
mod walk;
mod watch;
mod writer;

pub use append::Appender;
pub use disk::{DESCRIPTORS_RESERVED, Disk, DiskFile, Durability, RamDisk, RealDisk};
pub use error::LogError;
pub use gather::COPY_GROWTH_MAX;
pub use log::Log;
pub use lone::LoneCommit;
pub use model::{
    Class, Damage, DamagedRecord, LogOptions, Lsn, Position, Record, Recovery, Replayed, SegmentFindings, SegmentSpan,
    Shortage, StretchFinding, Usage,
};
pub use scrub::SegmentScrub;
pub use sim::SimDisk;
pub use table::Live;
pub use verify::{SegmentReport, Survey, VerifyReport, survey, verify};
pub use walk::walk;
pub use watch::Watch;
pub use writer::WriterThread;
