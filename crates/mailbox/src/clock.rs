//! The steady clock: wall time at the start of the run, carried on by the monotonic clock.
//!
//! Leases, delays and retention are reckoned on it, so a wall clock that is set back or forward while the node runs
//! moves no deadline. Across a restart it starts anew from the wall clock, but never before the newest record; where it
//! starts far behind that record, nobody knows whether the node was away or the wall clock is wrong, and a [`Hold`]
//! keeps what would be too old by the wall clock alone.

use std::time::Duration;

use ron_kernel::clock::{self, BootTime};
use serde::Serialize;
use tokio::time::Instant;

use crate::types::Millis;

/// Maximum time between the newest record and a start that is believed without being asked: longer than any restart or
/// reboot takes, shorter than any retention that anybody would miss.
pub(crate) const JUMP_MAX: Duration = Duration::from_secs(3600);
/// Time after which a jump is believed if nobody objects, counted only while the node runs.
pub(crate) const HOLD: Duration = Duration::from_secs(24 * 3600);

/// What a jump of the wall clock keeps from expiring: for everything from before it, the time jumped does not count.
///
/// A message or key that had a minute to live when the last record was written has that minute after the start. What is
/// sent later lives by the clock as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// Newest time on record before the jump: what is not newer is held.
    pub before_ms: Millis,
    /// Milliseconds that the clock jumped ahead; 0 where nothing is held.
    pub jump_ms: u64,
    /// Time at which the jump is believed.
    pub until_ms: Millis,
}

impl Hold {
    /// Nothing is held.
    pub const NONE: Hold = Hold { before_ms: 0, jump_ms: 0, until_ms: 0 };

    /// The hold of a start at this wall time, by the newest record and the hold that was last written down. The node
    /// was away for `measured_ms` at least, whatever the wall clock says.
    pub(crate) fn at_start(wall_ms: Millis, newest_record_ms: Millis, measured_ms: u64, written: Hold) -> Hold {
        let away_ms = wall_ms.saturating_sub(newest_record_ms).saturating_sub(measured_ms);
        let has_jumped = newest_record_ms > 0 && u128::from(away_ms) > JUMP_MAX.as_millis();
        let now_ms = wall_ms.max(newest_record_ms);
        let written = if written.is_on(newest_record_ms) { written } else { Hold::NONE };
        match () {
            // The day starts anew: what the first jump holds is held by both.
            () if has_jumped => Hold {
                before_ms: newest_record_ms,
                jump_ms: away_ms.saturating_add(written.jump_ms),
                until_ms: now_ms + HOLD.as_millis() as u64,
            },
            // Time in which the node did not run does not count.
            () if written.jump_ms > 0 => {
                Hold { until_ms: now_ms + written.until_ms.saturating_sub(newest_record_ms), ..written }
            }
            () => Hold::NONE,
        }
    }

    /// Whether something is held at this time.
    pub fn is_on(&self, now: Millis) -> bool {
        self.jump_ms > 0 && now < self.until_ms
    }

    /// The end of something that began at `from_ms` and would end at `until_ms` without the hold.
    pub(crate) fn end_of(&self, from_ms: Millis, until_ms: Millis) -> Millis {
        if from_ms <= self.before_ms { until_ms.saturating_add(self.jump_ms) } else { until_ms }
    }
}

/// A time of the mailbox's clock, and what the machine's showed then: while it is not started anew that one goes on,
/// whoever sets the wall clock, so that a start can measure how long the node was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BootMark {
    /// Time of the steady clock.
    pub now_ms: Millis,
    /// Time of the machine since its own start, and which start that was.
    pub boot: BootTime,
}

impl BootMark {
    /// Milliseconds that have passed between a record and now; 0 if nobody knows.
    pub(crate) fn measured_since(&self, record_ms: Millis, boot: Option<BootTime>) -> u64 {
        let same = boot.filter(|boot| boot.id == self.boot.id);
        let passed_ms = same.map_or(0, |boot| boot.since_ms.saturating_sub(self.boot.since_ms));
        passed_ms.saturating_sub(record_ms.saturating_sub(self.now_ms))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: Millis = 3_600_000;
    const DAY_MS: Millis = 24 * HOUR_MS;

    #[test]
    fn a_start_is_believed_unless_hours_are_missing() {
        let newest = 1_000 * HOUR_MS;
        for wall in [0, newest - HOUR_MS, newest, newest + HOUR_MS] {
            assert_eq!(Hold::at_start(wall, newest, 0, Hold::NONE), Hold::NONE, "{wall}");
        }
        assert_eq!(Hold::at_start(newest, 0, 0, Hold::NONE), Hold::NONE, "an empty log has nothing to lose");
        let wall = newest + 5 * HOUR_MS;
        let hold = Hold { before_ms: newest, jump_ms: 5 * HOUR_MS, until_ms: wall + DAY_MS };
        assert_eq!(Hold::at_start(wall, newest, 0, Hold::NONE), hold);
        assert_eq!(hold.end_of(newest, newest + 60_000), wall + 60_000, "what had a minute has a minute");
        assert_eq!(hold.end_of(newest + 1, wall), wall, "what came later lives by the clock as it is");
        assert!(hold.is_on(hold.until_ms - 1) && !hold.is_on(hold.until_ms) && !Hold::NONE.is_on(0));
    }

    #[test]
    fn time_that_the_machine_has_measured_is_no_jump() {
        let newest = 1_000 * HOUR_MS;
        let mark = BootMark { now_ms: newest - 60_000, boot: BootTime { id: 7, since_ms: 2 * HOUR_MS } };
        let after = |id, hours| Some(BootTime { id, since_ms: 2 * HOUR_MS + 60_000 + hours * HOUR_MS });
        let start = |wall, boot| Hold::at_start(wall, newest, mark.measured_since(newest, boot), Hold::NONE);
        assert_eq!(start(newest + 30 * HOUR_MS, after(7, 30)), Hold::NONE, "it was away for that long");
        let jump = |hold: Hold| hold.jump_ms / HOUR_MS;
        assert_eq!(jump(start(newest + 30 * HOUR_MS, after(7, 2))), 28, "two of thirty hours have passed");
        for unknown in [None, after(8, 30), Some(BootTime { id: 7, since_ms: 0 })] {
            assert_eq!(jump(start(newest + 30 * HOUR_MS, unknown)), 30, "{unknown:?}: nobody knows");
        }
        assert_eq!(start(newest, after(7, 30)), Hold::NONE, "a wall clock that was set back");
    }

    #[test]
    fn a_hold_goes_on_after_a_restart_for_the_time_it_has_left() {
        let written = Hold { before_ms: 10, jump_ms: 5 * HOUR_MS, until_ms: 3 * DAY_MS };
        let newest = 3 * DAY_MS - 7 * HOUR_MS;
        let soon = newest + HOUR_MS / 2;
        assert_eq!(Hold::at_start(soon, newest, 0, written), Hold { until_ms: soon + 7 * HOUR_MS, ..written });
        let later = newest + 2 * HOUR_MS;
        let both = Hold { before_ms: newest, jump_ms: 7 * HOUR_MS, until_ms: later + DAY_MS };
        assert_eq!(Hold::at_start(later, newest, 0, written), both);
        assert_eq!(Hold::at_start(3 * DAY_MS + 1000, 3 * DAY_MS, 0, written), Hold::NONE, "its day had passed");
    }
}
