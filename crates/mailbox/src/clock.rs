//! The steady clock: wall time at the start of the run, carried on by the monotonic clock.
//!
//! Leases, delays and retention are reckoned on it, so a wall clock that is set back or forward while the node runs
//! moves no deadline. Across a restart it starts anew from the wall clock, but never before the newest record of the
//! last hour: a record that is later than that was written by a clock that was ahead, and what a start finds is what it
//! dates by, unless it is earlier than any mailbox: a machine without a battery begins in 1970. Where the wall clock is
//! far ahead of the newest record, nobody knows whether the node was away or the wall clock is wrong, and a [`Hold`]
//! keeps what would be too old by the wall clock alone.
//!
//! A wall clock that is set back by hours while the node runs was ahead before: the steady clock is set by it, and what
//! waits for a time waits as much longer as before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ron_kernel::clock::{self, BootTime};
use serde::Serialize;
use tokio::time::Instant;

use crate::types::Millis;

/// Maximum time between the newest record and a start that is believed without being asked, in either direction: longer
/// than any restart or reboot takes, shorter than any retention that anybody would miss.
pub(crate) const JUMP_MAX: Duration = Duration::from_secs(3600);
/// No mailbox ran before this time, in milliseconds since 1970: the first of January 2023.
const EARLIEST_MS: Millis = 1_672_531_200_000;
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

    /// The hold once the clock was set back by so much, and shows this time: a jump ahead that was taken back is none.
    pub(crate) fn set_back(self, now: Millis, back_ms: u64) -> Hold {
        let jump_ms = self.jump_ms.saturating_sub(back_ms);
        match u128::from(jump_ms) > JUMP_MAX.as_millis() {
            true => Hold { jump_ms, until_ms: now + HOLD.as_millis() as u64, ..self },
            false => Hold::NONE,
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

/// Tells the time of this run.
#[derive(Debug)]
pub struct Steady {
    /// Time at the start of the run: another one once the clock was set.
    anchor_ms: AtomicU64,
    /// The same as it was at first.
    first_anchor_ms: Millis,
    since: Instant,
}

/// What the steady clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// Time now.
    pub now_ms: Millis,
    /// Time at the start of the run, by the clock as it is set now.
    pub anchor_ms: Millis,
}

impl Steady {
    /// Starts at what the wall clock says, or at the newest recorded time if the wall clock is behind it.
    pub fn start(wall_ms: Millis, newest_record_ms: Millis) -> Self {
        let first_anchor_ms = wall_ms.max(newest_record_ms);
        Steady { anchor_ms: AtomicU64::new(first_anchor_ms), first_anchor_ms, since: clock::now() }
    }

    /// Whether a wall clock that shows this has lost its time.
    pub(crate) fn is_lost(wall_ms: Millis) -> bool {
        wall_ms < EARLIEST_MS
    }

    /// Latest time of a record that is believed at a start at this wall time. A wall clock that has lost its time says
    /// nothing against the records: what is sent by it would be taken for years old once that clock is right again.
    pub(crate) fn believed_max(wall_ms: Millis) -> Millis {
        match Steady::is_lost(wall_ms) {
            true => Millis::MAX,
            false => wall_ms.saturating_add(JUMP_MAX.as_millis() as u64),
        }
    }

    /// Now.
    pub fn now(&self) -> Millis {
        self.read().now_ms
    }

    /// Now, and how the clock is set.
    pub(crate) fn read(&self) -> ClockReading {
        let anchor_ms = self.anchor_ms.load(Ordering::Acquire);
        ClockReading { now_ms: anchor_ms + self.passed_ms(), anchor_ms }
    }

    /// The instant of a time to come, for timers.
    pub fn instant(&self, at: Millis) -> Instant {
        let anchor_ms = self.anchor_ms.load(Ordering::Acquire);
        self.since + Duration::from_millis(at.saturating_sub(anchor_ms))
    }

    /// Time now, had the clock never been set in this run: it has been as late as that, and is never set later.
    pub(crate) fn unset_now(&self) -> Millis {
        self.first_anchor_ms + self.passed_ms()
    }

    /// Sets the clock to this time, but not before the run's own length nor after what it would be had it never been
    /// set. Whoever counts on times it told before must follow: see [`crate::engine::Engine::set_clock`].
    pub(crate) fn set(&self, now_ms: Millis) {
        let anchor_ms = now_ms.saturating_sub(self.passed_ms()).min(self.first_anchor_ms);
        self.anchor_ms.store(anchor_ms, Ordering::Release);
    }

    fn passed_ms(&self) -> u64 {
        clock::now().saturating_duration_since(self.since).as_millis() as u64
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
    fn a_jump_that_is_taken_back_holds_nothing_any_more() {
        let now = 1_000 * HOUR_MS;
        let hold = Hold { before_ms: 10, jump_ms: 72 * HOUR_MS, until_ms: now + 7 };
        assert_eq!(hold.set_back(now, 72 * HOUR_MS), Hold::NONE);
        assert_eq!(hold.set_back(now, 71 * HOUR_MS), Hold::NONE, "an hour is believed without being asked");
        let rest = Hold { jump_ms: 5 * HOUR_MS, until_ms: now + DAY_MS, ..hold };
        assert_eq!(hold.set_back(now, 67 * HOUR_MS), rest);
        assert_eq!(Hold::NONE.set_back(now, HOUR_MS), Hold::NONE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_goes_on_from_there_and_never_ahead_of_its_run() {
        let clock = Steady::start(100 * HOUR_MS, 0);
        tokio::time::advance(Duration::from_secs(60)).await;
        let due = clock.instant(clock.now() + 5_000);
        clock.set(40 * HOUR_MS);
        assert_eq!(clock.now(), 40 * HOUR_MS);
        assert_eq!(clock.instant(clock.now() + 5_000), due, "as far ahead as before");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((clock.now(), clock.unset_now()), (40 * HOUR_MS + 1_000, 100 * HOUR_MS + 61_000));
        clock.set(200 * HOUR_MS);
        assert_eq!(clock.now(), clock.unset_now());
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
