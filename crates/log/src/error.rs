//! What can go wrong with a log.

use crate::model::{Position, Shortage};
use std::io;

/// Refusals and failures of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The quota, or the device, has no room for this class of record.
    #[error("the log is full: {}", match shortage {
        Shortage::Quota => "its quota is used up",
        Shortage::Device => "its device has no room for another segment",
    })]
    Full {
        /// What is used up.
        shortage: Shortage,
    },
    /// Too much waits in memory for the disk; try again.
    #[error("the disk is behind: too much waits to be written")]
    Busy,
    /// The record would not fit into a segment.
    #[error("a record of {len} bytes is over the limit of {len_max}")]
    TooLarge {
        /// Bytes the record would take on the disk.
        len: u64,
        /// Maximum bytes of one record.
        len_max: u64,
    },
    /// A write or a sync failed; nothing is acknowledged from here on. Reads go on.
    #[error("the log failed for good: {doing}: {detail}")]
    Failed {
        /// Step of the write path that failed, as in "syncing records".
        doing: &'static str,
        /// Kind of the first error.
        kind: io::ErrorKind,
        /// Text of the first error.
        detail: String,
    },
    /// The record is damaged.
    #[error("the record at {position:?} is damaged")]
    Corrupt {
        /// Position at which the record was looked for.
        position: Position,
    },
    /// The segment is not in the log, or no longer.
    #[error("segment {segment} is not in the log")]
    Gone {
        /// Number of the segment.
        segment: u32,
    },
    /// Only the oldest segment may be retired, and never the active one.
    #[error("segment {segment} is not the oldest sealed one")]
    NotOldest {
        /// Number of the segment.
        segment: u32,
    },
    /// The segment holds bodies that nobody has released.
    #[error("segment {segment} still holds {bytes} bytes that are needed")]
    StillNeeded {
        /// Number of the segment.
        segment: u32,
        /// Bytes of those records.
        bytes: u64,
    },
    /// The log is open elsewhere, in this process or another.
    #[error("the log is open elsewhere")]
    InUse,
    /// The options contradict themselves.
    #[error("bad option: {0}")]
    Options(&'static str),
    /// No segment header can be read, so that no record can be told from noise. Nothing was touched.
    #[error("no readable segment header in {segments} segments; nothing was changed")]
    NoHeader {
        /// Segments found.
        segments: u32,
    },
    /// The manifest names segments and none of them is there. Nothing was touched.
    #[error(
        "the manifest names {listed} segments and none is there; nothing was changed: mount or restore them, or move \
         manifest.0 and manifest.1 away to begin an empty log"
    )]
    NoSegments {
        /// Segments in the manifest.
        listed: u32,
    },
    /// The manifest is of another log than the segments beside it. Nothing was touched.
    #[error(
        "the manifest is of another log than the segments beside it; nothing was changed: restore the directory as a \
         whole, or move manifest.0 and manifest.1 away to have it made again from the segments"
    )]
    ForeignManifest,
    /// A version of this program that this one does not know wrote something here. It was not touched.
    #[error(
        "{what} is of a format that this version does not know; it was not changed: start the version that wrote it, \
         or a newer one. To go back to an older version, let the newer one empty the queues first"
    )]
    UnknownVersion {
        /// What was found and where.
        what: String,
    },
    /// Reading failed, or opening did.
    #[error("{doing}: {detail}")]
    Io {
        /// Step that failed, as in "opening a segment".
        doing: &'static str,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Text of the error.
        detail: String,
    },
    /// Every handle of the log is gone.
    #[error("the log was closed")]
    Closed,
}

impl LogError {
    /// A failure of a write path: for ever.
    pub(crate) fn failed(doing: &'static str, error: &io::Error) -> Self {
        Self::Failed { doing, kind: error.kind(), detail: error.to_string() }
    }

    /// A failure that hurts only the caller.
    pub(crate) fn io(doing: &'static str, error: &io::Error) -> Self {
        Self::Io { doing, kind: error.kind(), detail: error.to_string() }
    }
}
