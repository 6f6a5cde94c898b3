//! What can be said of a record without applying it: the newest message number and the time it tells.

use crate::record::Record;
use crate::types::{Millis, Seq};

impl Record<'_> {
    /// The highest message number it says is given out.
    pub(crate) fn seq_max(&self) -> Seq {
        match self {
            Record::Mark { seq, .. } => *seq,
            _ => self.keeps().map_or(0, |(_, seq)| seq),
        }
    }

    /// When it was written, where it says so.
    pub(crate) fn time(&self) -> Option<Millis> {
        match self {
            Record::Send(taken) => Some(taken.sent_ms),
            Record::Edit(whole) | Record::Relocated(whole) => Some(whole.now_ms),
            Record::Lease { now_ms, .. }
            | Record::Nack { now_ms, .. }
            | Record::Extend { now_ms, .. }
            | Record::Move { now_ms, .. }
            | Record::Reschedule { now_ms, .. }
            | Record::Moves { now_ms, .. }
            | Record::Mark { now_ms, .. }
            | Record::Held { now_ms, .. } => Some(*now_ms),
            _ => None,
        }
    }
}
