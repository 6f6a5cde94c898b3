//! When a change of the file is one: not while somebody is still writing it.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Reading;

/// A file that is read twice alike, this long apart, is taken to be written to its end. Long enough for the steps of an
/// editor, and for a copy that is cut short and goes on.
const SETTLES_IN: Duration = Duration::from_secs(1);

/// The file as the watcher knows it.
#[derive(Debug)]
pub(super) struct FileWatch {
    /// What was taken up or refused last.
    handled: Reading,
    /// Something else that was seen since then, and when for the first time.
    candidate: Option<(Reading, Instant)>,
    /// Whether the file in force says nothing.
    is_blank_in_force: bool,
}

impl FileWatch {
    /// A watch of a file from which the configuration in force was read.
    pub(super) fn new(reading: Reading) -> Self {
        FileWatch { is_blank_in_force: reading.is_blank(), handled: reading, candidate: None }
    }

    /// Takes a look at the file; gives it back once it is new and no longer changes.
    pub(super) fn look(&mut self, now: Instant, reading: Reading) -> Option<Reading> {
        if reading == self.handled {
            self.candidate = None;
            return None;
        }
        match &self.candidate {
            Some((seen, since)) if *seen == reading => {
                if now.saturating_duration_since(*since) < SETTLES_IN {
                    return None;
                }
                self.handle(&reading);
                Some(reading)
            }
            _ => {
                self.candidate = Some((reading, now));
                None
            }
        }
    }

    /// When to look again at a file that has changed.
    pub(super) fn settles_at(&self) -> Option<Instant> {
        self.candidate.as_ref().map(|(_, since)| *since + SETTLES_IN)
    }

    /// This reading is taken up or refused now, whoever asked for it.
    pub(super) fn handle(&mut self, reading: &Reading) {
        self.handled = reading.clone();
        self.candidate = None;
    }

    /// Whether the file lost all it said. Nobody means that: settings that only it had, such as who may ask, would fall
    /// back to their defaults.
    pub(super) fn has_lost_all(&self, reading: &Reading) -> bool {
        reading.is_blank() && !self.is_blank_in_force
    }

    /// This reading is in force.
    pub(super) fn put_in_force(&mut self, reading: &Reading) {
        self.is_blank_in_force = reading.is_blank();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reading {
        Reading::Text(text.to_owned())
    }

    /// Looks at these moments, in milliseconds; each with what is there and what is to be taken up.
    fn check(looks: &[(u64, &str, Option<&str>)]) {
        let began = ron_kernel::clock::now();
        let mut watch = FileWatch::new(text("old"));
        for (at_ms, seen, expected) in looks {
            let taken = watch.look(began + Duration::from_millis(*at_ms), text(seen));
            assert_eq!(taken, expected.map(text), "{seen:?} at {at_ms} of {looks:?}");
        }
    }

    #[test]
    fn a_file_is_taken_up_when_it_was_read_twice_alike_a_second_apart() {
        check(&[
            (0, "old", None),
            (10, "new", None),
            (900, "new", None),
            (1_010, "new", Some("new")),
            (5_000, "new", None),
        ]);
    }

    #[test]
    fn a_file_that_is_being_written_is_waited_for() {
        check(&[
            (0, "", None),
            (500, "ne", None),
            (1_400, "new", None),
            (2_300, "new", None),
            (2_400, "new", Some("new")),
        ]);
    }

    #[test]
    fn a_file_that_is_as_it_was_is_no_change() {
        check(&[(0, "", None), (300, "old", None), (1_100, "", None), (2_000, "", None), (2_100, "", Some(""))]);
    }

    #[test]
    fn only_a_file_that_said_something_can_lose_it() {
        let mut watch = FileWatch::new(text("[api]"));
        let gone = Reading::Missing("gone".to_owned());
        for blank in [text(""), text(" \n"), gone.clone()] {
            assert!(watch.has_lost_all(&blank), "{blank:?}");
        }
        assert!(!watch.has_lost_all(&text("# nothing is set")));
        watch.put_in_force(&gone);
        assert!(!watch.has_lost_all(&text("")));
    }
}
