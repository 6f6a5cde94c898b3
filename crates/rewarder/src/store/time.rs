//! Time by which artifacts grow old: what the seal log and this process have seen pass. A wall clock that jumps moves
//! it by an hour at most, so that nothing is removed because of it; what a node was away for does not count.

use std::time::Duration;

use tokio::time::Instant;

/// Difference up to which the wall clock is believed.
const JUMP_MAX_MS: u64 = 3_600_000;
/// Time after which it is written down how late it is, where something depends on it: less than the difference that is
/// believed at the next start.
pub(crate) const SEEN_EVERY: Duration = Duration::from_secs(1800);

/// A clock that nobody can set.
#[derive(Clone, Copy, Debug)]
pub(super) struct WitnessedTime {
    began: Instant,
    began_ms: u64,
}

impl WitnessedTime {
    /// Goes on from the newest time in the log, in milliseconds since 1970; 0 if there is none.
    pub fn begin(newest_ms: u64, wall_ms: u64, now: Instant) -> WitnessedTime {
        let is_near = newest_ms == 0 || (newest_ms..=newest_ms.saturating_add(JUMP_MAX_MS)).contains(&wall_ms);
        if !is_near {
            let away_s = wall_ms.abs_diff(newest_ms) / 1000;
            tracing::info!(away_s, "the time since the last record does not count towards the age of artifacts");
        }
        WitnessedTime { began: now, began_ms: if is_near { wall_ms } else { newest_ms } }
    }

    /// Milliseconds since 1970: the wall clock's, if that is near what has passed.
    pub fn at(&self, wall_ms: u64, now: Instant) -> u64 {
        let passed = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        let expected = self.began_ms.saturating_add(passed);
        if wall_ms.abs_diff(expected) <= JUMP_MAX_MS { wall_ms } else { expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const BEGUN_MS: u64 = 1_700_000_000_000;

    #[tokio::test(start_paused = true)]
    async fn only_time_that_was_seen_to_pass_counts() {
        let start = ron_kernel::clock::now();
        let later = |ms: u64| start + Duration::from_millis(ms);
        let time = WitnessedTime::begin(0, BEGUN_MS, start);
        for (wall_ms, passed_ms, expected_ms) in [
            (BEGUN_MS + 1_000, 1_000, BEGUN_MS + 1_000),
            (BEGUN_MS + 5_000, 1_000, BEGUN_MS + 5_000),
            (BEGUN_MS + 400 * DAY_MS, 1_000, BEGUN_MS + 1_000),
            (0, 1_000, BEGUN_MS + 1_000),
            (BEGUN_MS + DAY_MS, DAY_MS, BEGUN_MS + DAY_MS),
        ] {
            assert_eq!(time.at(wall_ms, later(passed_ms)), expected_ms, "{wall_ms} {passed_ms}");
        }
        for (wall_ms, began_ms) in
            [(BEGUN_MS + 60_000, BEGUN_MS + 60_000), (BEGUN_MS + 400 * DAY_MS, BEGUN_MS), (BEGUN_MS - DAY_MS, BEGUN_MS)]
        {
            let again = WitnessedTime::begin(BEGUN_MS, wall_ms, start);
            assert_eq!(again.at(wall_ms, start), began_ms, "{wall_ms}");
        }
    }
}
