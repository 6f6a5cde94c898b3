//! What the surface remembers beside the mailbox: in memory, bounded, and gone with the process.

mod attempts;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use svc_mailbox::types::{Millis, TopicName};

use attempts::Attempts;

/// Maximum names remembered; while that many are fresh, a further name is not remembered.
const NAMES_MAX: usize = 100_000;
/// Time for which a purged queue cannot be purged again.
pub(super) const PURGE_MS: Millis = 60_000;

/// Memory of the surface that no restart keeps.
#[derive(Default)]
pub(crate) struct State {
    /// Queues, with the time of their last purge.
    pub purged: Recent,
    /// Names of queues deleted lately.
    pub deleted: Recent,
    /// Receives that can be asked for again.
    pub attempts: Attempts,
}

/// Names, each with the time it was entered.
#[derive(Default)]
pub(super) struct Recent(Mutex<HashMap<TopicName, Millis>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a time is less than so long ago. One that is further ahead is of before the clock was set back; one that is
/// a little ahead was noted by somebody else meanwhile.
fn is_recent(at: Millis, now: Millis, within_ms: Millis) -> bool {
    now.abs_diff(at) < within_ms
}

impl Recent {
    /// Enters a name, unless it was entered less than so long ago.
    pub fn enter(&self, name: &TopicName, now: Millis, within_ms: Millis) -> bool {
        let mut names = lock(&self.0);
        if names.get(name).is_some_and(|at| is_recent(*at, now, within_ms)) {
            return false;
        }
        if names.len() >= NAMES_MAX {
            names.retain(|_, at| is_recent(*at, now, within_ms));
        }
        if names.len() < NAMES_MAX {
            names.insert(name.clone(), now);
        }
        true
    }

    /// Whether a name was entered less than so long ago.
    pub fn has(&self, name: &TopicName, now: Millis, within_ms: Millis) -> bool {
        lock(&self.0).get(name).is_some_and(|at| is_recent(*at, now, within_ms))
    }

    pub fn forget(&self, name: &TopicName) {
        lock(&self.0).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TopicName {
        text.parse().expect("a name")
    }

    #[test]
    fn a_name_is_remembered_for_its_time() {
        let recent = Recent::default();
        assert!(recent.enter(&name("a"), 100, 50));
        assert!(!recent.enter(&name("a"), 149, 50) && recent.has(&name("a"), 149, 50));
        assert!(recent.enter(&name("b"), 149, 50) && !recent.has(&name("a"), 150, 50));
        assert!(recent.enter(&name("a"), 150, 50));
        assert!(recent.enter(&name("a"), 20, 50) && !recent.enter(&name("a"), 69, 50), "the clock was set back");
        recent.forget(&name("a"));
        assert!(recent.enter(&name("a"), 151, 50) && !recent.has(&name("a"), 151, 0));
    }
}
