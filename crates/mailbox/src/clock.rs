//! The steady clock: wall time at the start of the run, carried on by the monotonic clock.
//!
//! Leases, delays and retention are reckoned on it, so a wall clock that is set back or forward while the node runs
//! moves no deadline. Across a restart it starts anew from the wall clock, but never before the newest record.

use ron_kernel::clock;
use tokio::time::Instant;

use crate::types::Millis;

/// Tells the time of this run. Copies tell the same time.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    anchor_ms: Millis,
    since: Instant,
}

impl Steady {
    /// Starts at what the wall clock says, or at the newest recorded time if the wall clock is behind it.
    pub fn start(wall_ms: Millis, newest_record_ms: Millis) -> Self {
        Steady { anchor_ms: wall_ms.max(newest_record_ms), since: clock::now() }
    }

    /// Now.
    pub fn now(&self) -> Millis {
        self.anchor_ms + clock::now().saturating_duration_since(self.since).as_millis() as u64
    }

    /// The instant of a time to come, for timers.
    pub fn instant(&self, at: Millis) -> Instant {
        self.since + std::time::Duration::from_millis(at.saturating_sub(self.anchor_ms))
    }
}
