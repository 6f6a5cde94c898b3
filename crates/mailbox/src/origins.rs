//! Where messages were sent to, by their numbers: an id names a message and not its partition, and looking through
//! every partition for it would cost more the more topics there are.
//!
//! A message stays where it was sent, or it is in the table of those that were moved (`ShardContext::homes`). So the
//! origin of a number never changes, and nothing has to be taken out when a message goes. Numbers are given in order
//! and mostly many in a row to one partition, so runs of them are kept; the oldest are forgotten if there are too many.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::engine::lock;
use crate::record::Record;
use crate::types::{PartKey, Seq};

/// Runs that are kept, of 16 bytes each.
const RUNS_MAX: usize = 1 << 20;
/// Runs from the newest on among which one may still be put: two shards may tell of their sends in another order than
/// they took their numbers.
const LATE_RUNS_MAX: usize = 1024;

/// The partitions that messages were sent to.
#[derive(Debug, Default)]
pub(crate) struct Origins(Mutex<Runs>);

#[derive(Debug)]
struct Runs {
    /// The first number of each run, and the partition of all in it.
    runs: VecDeque<(Seq, PartKey)>,
    /// The highest number that was told.
    newest: Seq,
    /// Of smaller numbers nothing is known.
    floor: Seq,
}

impl Origins {
    /// A message was sent to this partition.
    pub fn note(&self, seq: Seq, part: PartKey) {
        lock(&self.0).note(seq, part);
    }

    /// What a record says that is read back, unless its message was moved.
    pub fn note_replayed(&self, record: &Record<'_>) {
        match record {
            Record::Send(taken) => self.note(taken.seq, taken.part),
            Record::Edit(whole) | Record::Relocated(whole) if whole.moved_ms.is_none() => {
                self.note(whole.seq, whole.part);
            }
            _ => {}
        }
    }

    /// Where this message was sent to, if that is still known.
    pub fn find(&self, seq: Seq) -> Option<PartKey> {
        lock(&self.0).find(seq)
    }

    /// Takes over what another knows, in place of what it knows itself.
    pub fn install(&self, origins: Origins) {
        std::mem::swap(&mut *lock(&self.0), &mut *lock(&origins.0));
    }
}

impl Default for Runs {
    fn default() -> Self {
        // All of the room at once, of which the system gives only what is touched: a table that doubles is copied
        // under the turn of a shard.
        Runs { runs: VecDeque::with_capacity(RUNS_MAX + 2), newest: 0, floor: 0 }
    }
}

impl Runs {
    fn note(&mut self, seq: Seq, part: PartKey) {
        if seq <= self.newest && !self.runs.is_empty() {
            return self.note_late(seq, part);
        }
        self.newest = seq;
        if self.runs.back().is_none_or(|(_, last)| *last != part) {
            self.runs.push_back((seq, part));
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        while self.runs.len() > RUNS_MAX {
            self.runs.pop_front();
        }
    }

    /// A number after higher ones, whose run may have taken it in.
    fn note_late(&mut self, seq: Seq, part: PartKey) {
        let after = self.runs.partition_point(|(first, _)| *first <= seq);
        let Some((_, run)) = after.checked_sub(1).map(|place| self.runs[place]) else { return };
        if run == part {
            return;
        }
        if self.runs.len() - after > LATE_RUNS_MAX {
            // Making room far from the end would move all behind it: a copy that reclaim made of an old message.
            self.floor = self.floor.max(seq + 1);
            return;
        }
        self.runs.insert(after, (seq, part));
        let ends_here = self.runs.get(after + 1).is_some_and(|(next, _)| *next == seq + 1);
        if !ends_here && seq < self.newest {
            self.runs.insert(after + 1, (seq + 1, run));
        }
        self.forget_oldest();
    }

    fn find(&self, seq: Seq) -> Option<PartKey> {
        if !(self.floor..=self.newest).contains(&seq) {
            return None;
        }
        let after = self.runs.partition_point(|(first, _)| *first <= seq);
        Some(self.runs[after.checked_sub(1)?].1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::types::TopicId;

    fn part(topic: u32) -> PartKey {
        PartKey { topic: TopicId(topic), partition: 0 }
    }

    #[test]
    fn many_in_a_row_take_one_run_and_the_oldest_are_forgotten() {
        let origins = Origins::default();
        assert_eq!(origins.find(0), None);
        (100..200_000).for_each(|seq| origins.note(seq, part(1)));
        assert_eq!(lock(&origins.0).runs.len(), 1);
        assert_eq!((origins.find(99), origins.find(150_000), origins.find(200_000)), (None, Some(part(1)), None));
        let more = 200_000..200_000 + RUNS_MAX as u64;
        more.clone().for_each(|seq| origins.note(seq, part(seq as u32 % 2)));
        assert_eq!(lock(&origins.0).runs.len(), RUNS_MAX);
        assert_eq!((origins.find(150_000), origins.find(more.end - 1)), (None, Some(part(1))));
    }

    #[test]
    fn what_is_told_much_too_late_is_not_known_instead_of_wrong() {
        let origins = Origins::default();
        (1..=5000).filter(|seq| *seq != 100).for_each(|seq| origins.note(seq, part(seq as u32 % 7)));
        origins.note(100, part(9));
        assert_eq!((origins.find(100), origins.find(99), origins.find(101)), (None, None, Some(part(101 % 7))));
    }

    proptest! {
        #[test]
        fn whatever_is_found_is_where_it_was_sent(
            sends in prop::collection::vec((0u64..5, 0u32..3), 1..2000),
        ) {
            let (origins, mut sent, mut newest) = (Origins::default(), BTreeMap::new(), 10);
            for (step, topic) in sends {
                // Now and then a number comes that is a little older than the newest.
                let seq = if step == 0 { newest - 3 } else { newest + step };
                newest = newest.max(seq);
                let topic = *sent.entry(seq).or_insert(topic);
                origins.note(seq, part(topic));
            }
            let first = *sent.keys().next().unwrap_or(&0);
            for (seq, topic) in sent {
                let found = origins.find(seq);
                let is_too_old = found.is_none() && seq < first + 4;
                prop_assert!(is_too_old || found == Some(part(topic)), "{} in {:?}", seq, found);
            }
        }
    }
}
