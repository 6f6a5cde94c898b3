//! Lines of the log that others can cause again and again: the first is said, later ones are summed up.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a line is not said again.
const QUIET: Duration = Duration::from_secs(60);
/// Causes that are told apart; all others are one.
const CAUSES_MAX: usize = 64;

/// What was said lately, by cause.
#[derive(Debug)]
pub struct Repeats<K>(Mutex<HashMap<Option<K>, Said>>);

#[derive(Debug)]
struct Said {
    at: Instant,
    /// Times that it happened since.
    unsaid: u64,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Repeats(Mutex::default())
    }
}

impl<K: Eq + Hash> Repeats<K> {
    /// It happened again for this cause: the number of times that were not said, if it is to be said now.
    pub fn note(&self, cause: K, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_quiet = |said: &Said| now.saturating_duration_since(said.at) < QUIET;
        let cause = Some(cause);
        if !said.contains_key(&cause) && said.len() >= CAUSES_MAX {
            // Sums of causes that do not come again go with them: others need their places.
            said.retain(|_, said| is_quiet(said));
        }
        let cause = if said.contains_key(&cause) || said.len() < CAUSES_MAX { cause } else { None };
        match said.get_mut(&cause) {
            Some(said) if is_quiet(said) => {
                said.unsaid += 1;
                None
            }
            Some(said) => {
                said.at = now;
                Some(std::mem::take(&mut said.unsaid))
            }
            None => {
                said.insert(cause, Said { at: now, unsaid: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn what_repeats_is_said_once_a_minute_with_how_often_it_happened() {
        let (repeats, began) = (Repeats::default(), clock::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(repeats.note("refused", began), Some(0));
        assert!((1..60).all(|second| repeats.note("refused", after(second)).is_none()));
        assert_eq!(repeats.note("late", after(30)), Some(0), "another cause is another line");
        assert_eq!(repeats.note("refused", after(60)), Some(59));
        assert_eq!(repeats.note("refused", after(61)), None);
    }

    #[test]
    fn however_many_causes_there_are_the_table_is_bounded() {
        let (repeats, began) = (Repeats::default(), clock::now());
        let said = (0..10_000).filter(|cause| repeats.note(*cause, began).is_some()).count();
        assert_eq!(said, CAUSES_MAX + 1, "all others together are said once");
        assert_eq!(repeats.note(10_000, began + QUIET), Some(0), "room again");
        assert!(repeats.0.lock().expect("whole").len() <= CAUSES_MAX + 1);
    }
}
