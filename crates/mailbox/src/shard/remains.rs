//! What partitions held that were emptied or are gone: let go in steps, because callers wait for a turn to end.
//!
//! The log says in one record that all of it is gone, and nobody finds it any more. What is left to do is to give the
//! places in the log back and to free the memory, and none of that matters after a crash.

use std::collections::VecDeque;

use ron_log::Position;
use ron_types::limits::mailbox::PARTITIONS_MAX;

use super::context::ShardContext;
use super::{Journal, Shard};
use crate::partition::{Held, Partition};
use crate::types::{PartKey, Seq, TopicId};

/// Messages let go in one step: a fraction of a millisecond.
const STEP: usize = 512;
/// Bytes of memory of a partition that are freed within a step.
const FREED_AT_ONCE_MAX: u64 = 128 << 10;

/// Contents of partitions on their way out.
pub(super) struct Remains {
    /// Each with the number from which on its messages are still to be let go.
    parts: VecDeque<(Box<Partition>, Seq)>,
    /// Those of which nothing is left but much memory.
    husks: Vec<Partition>,
    step: usize,
}

impl Default for Remains {
    fn default() -> Self {
        Remains { parts: VecDeque::new(), husks: Vec::new(), step: STEP }
    }
}

impl Remains {
    fn let_go(&mut self, context: &mut ShardContext, release: &mut dyn FnMut(Position)) {
        let mut left = self.step;
        while left > 0
            && let Some((part, from)) = self.parts.front_mut()
        {
            for entry in part.index.from(*from).take(left) {
                release(context.forget(entry));
                *from = entry.seq + 1;
                left -= 1;
            }
            if left == 0 {
                return;
            }
            // A partition counts as a message, so that very many small ones are not let go in one step.
            left -= 1;
            let husk = self.parts.pop_front().map(|(part, _)| *part);
            self.husks.extend(husk.filter(|part| part.memory_bytes() > FREED_AT_ONCE_MAX));
        }
    }
}

impl Shard {
    /// Lets go of a step of what emptied partitions held.
    pub fn let_go(&mut self, release: &mut dyn FnMut(Position)) {
        self.remains.let_go(&mut self.context, release);
    }

    /// Whether something is left to let go.
    pub fn has_remains(&self) -> bool {
        !self.remains.parts.is_empty() || !self.remains.husks.is_empty()
    }

    /// Partitions of which nothing is left but their memory. Freeing it may take long, and is best done where nobody
    /// waits for this shard.
    pub fn take_husks(&mut self) -> Vec<Partition> {
        std::mem::take(&mut self.remains.husks)
    }

    /// Forgets a topic that is gone, with its own dead letters.
    pub fn forget_topic(&mut self, topic: TopicId, journal: &mut dyn Journal) {
        let home = TopicId(topic.home());
        // Dead letters have one partition. How many the topic had is known nowhere any more.
        let own = home.own_dead_letters().map(|letters| PartKey { topic: letters, partition: 0 });
        let parts = (0..PARTITIONS_MAX).map(|partition| PartKey { topic: home, partition }).chain(own);
        for part in parts {
            if let Some(mut part) = self.parts.remove(&part) {
                self.context.disarm(&mut part);
                self.context.count(&mut part, Held::default());
                self.take_remains(part);
            }
            self.topics.remove(&part.topic);
        }
        self.let_go(&mut |position| journal.release(position));
    }

    /// Takes the contents of a partition that was emptied or whose topic is gone, to let go of them later.
    pub(crate) fn take_remains(&mut self, part: Box<Partition>) {
        self.remains.parts.push_back((part, 0));
    }

    /// Forgets the rules of all topics: they are told again before they are needed, those of topics that are gone not.
    pub(crate) fn forget_rules(&mut self) {
        self.topics.clear();
    }

    /// Takes what an emptied partition held, and lets a first step of it go.
    pub(super) fn put_remains(&mut self, journal: &mut dyn Journal, part: Box<Partition>) {
        self.take_remains(part);
        self.let_go(&mut |position| journal.release(position));
    }

    /// Lets go of all there is, where no caller waits.
    pub(super) fn let_all_go(&mut self, journal: &mut dyn Journal) {
        while self.has_remains() {
            self.let_go(&mut |position| journal.release(position));
            drop(self.take_husks());
        }
    }

    /// Places in the log of all that it holds, in whatever way.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (PartKey, Seq, Position)> + '_ {
        let emptied = self.remains.parts.iter().map(|(part, from)| (part, *from));
        let all = self.parts.values().map(|part| (part, 0)).chain(emptied);
        all.flat_map(|(part, from)| part.index.from(from).map(|entry| (part.key, entry.seq, entry.position)))
    }

    /// Topics it has been told of.
    #[cfg(test)]
    pub(crate) fn topics_known(&self) -> usize {
        self.topics.len()
    }

    /// Lets go of so few messages in one step.
    #[cfg(test)]
    pub(crate) fn set_step(&mut self, step: usize) {
        self.remains.step = step;
    }
}

impl Partition {
    /// As new, with the same rules and counters; gives what it held.
    pub(super) fn empty(&mut self, context: &mut ShardContext) -> Box<Partition> {
        context.disarm(self);
        context.count(self, Held::default());
        let empty = Partition::new(self.key, self.settings.clone(), self.dlq);
        let old = std::mem::replace(self, empty);
        self.set_hold(old.keys.hold());
        self.counts = old.counts;
        self.woken = old.woken;
        Box::new(old)
    }
}
