//! What happened to messages that were delivered at least once, or came from elsewhere.

use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ron_types::limits::mailbox::HISTORY_MAX;

use super::shrink_table;
use crate::record::Tried;
use crate::types::{Attempt, Dead, Millis, Seq};

/// One delivery.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub number: u32,
    pub consumer: Arc<str>,
    pub leased_ms: Millis,
    /// Empty while it runs.
    pub outcome: Box<str>,
}

/// The deliveries of one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub first_leased_ms: Millis,
    /// The newest last.
    pub tries: Vec<Try>,
}

/// How a message came from another partition.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub since_ms: Millis,
    pub dead: Option<Dead>,
}

/// The deliveries of a partition's messages.
#[derive(Debug, Default)]
pub(crate) struct Pasts {
    by_seq: HashMap<Seq, Past>,
    /// Memory those take.
    bytes: u64,
    /// Consumers come back, so the last one's name is shared.
    consumer: Option<Arc<str>>,
}

impl Pasts {
    /// A delivery begins: the `number`th.
    pub fn begin(&mut self, seq: Seq, number: u32, consumer: &str, now: Millis) -> &Past {
        let consumer = self.share(consumer);
        let past = match self.by_seq.entry(seq) {
            Entry::Occupied(known) => {
                self.bytes -= known.get().memory_bytes();
                known.into_mut()
            }
            Entry::Vacant(new) => new.insert(Past::default()),
        };
        if number <= 1 || past.tries.is_empty() {
            past.first_leased_ms = now;
        }
        if past.tries.len() == HISTORY_MAX {
            past.tries.remove(0);
        }
        // Most messages are delivered once: room for more would be most of what they take.
        past.tries.reserve_exact(1);
        past.tries.push(Try { number, consumer, leased_ms: now, outcome: Box::default() });
        self.bytes += past.memory_bytes();
        past
    }

    /// The current delivery ends; how long it took.
    pub fn end(&mut self, seq: Seq, now: Millis, outcome: &str) -> u64 {
        let Some(last) = self.by_seq.get_mut(&seq).and_then(|past| past.tries.last_mut()) else { return 0 };
        if last.outcome.is_empty() {
            last.outcome = outcome.into();
            self.bytes += outcome.len() as u64;
        }
        now.saturating_sub(last.leased_ms)
    }

    /// The current delivery never was.
    pub fn undo(&mut self, seq: Seq) {
        let Some(past) = self.by_seq.get_mut(&seq) else { return };
        self.bytes -= past.memory_bytes();
        past.tries.pop();
        if past.tries.is_empty() {
            self.by_seq.remove(&seq);
        } else {
            self.bytes += past.memory_bytes();
        }
    }

    /// What is known of a message.
    pub fn get(&self, seq: Seq) -> Option<&Past> {
        self.by_seq.get(&seq)
    }

    /// Puts in what is known of a message from elsewhere.
    pub fn insert(&mut self, seq: Seq, past: Past) {
        if past.tries.is_empty() {
            return;
        }
        self.bytes += past.memory_bytes();
        if let Some(old) = self.by_seq.insert(seq, past) {
            self.bytes -= old.memory_bytes();
        }
    }

    /// Forgets a message.
    pub fn remove(&mut self, seq: Seq) -> Option<Past> {
        let past = self.by_seq.remove(&seq)?;
        self.bytes -= past.memory_bytes();
        shrink_table(&mut self.by_seq);
        Some(past)
    }

    /// Bytes of memory they take.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        let text = |text: &str| if text.is_empty() { 0 } else { text.len() };
        let of_tries = |past: &Past| {
            let texts: usize = past.tries.iter().map(|one| text(&one.outcome)).sum();
            past.tries.capacity() * size_of::<Try>() + texts
        };
        self.by_seq.allocation_size() + self.by_seq.values().map(of_tries).sum::<usize>()
    }

    /// Numbers of all messages it knows, in no order.
    pub fn seqs(&self) -> impl Iterator<Item = Seq> + '_ {
        self.by_seq.keys().copied()
    }

    fn share(&mut self, consumer: &str) -> Arc<str> {
        match &self.consumer {
            Some(last) if **last == *consumer => last.clone(),
            _ => self.consumer.insert(consumer.into()).clone(),
        }
    }
}

impl Past {
    /// As records tell it.
    pub fn of(first_leased_ms: Millis, tries: &[Tried<'_>]) -> Self {
        let tries = tries.iter().map(|tried| Try {
            number: tried.number,
            consumer: tried.consumer.into(),
            leased_ms: tried.leased_ms,
            outcome: tried.outcome.into(),
        });
        Past { first_leased_ms, tries: tries.collect() }
    }

    /// As records tell it.
    pub fn tried(&self) -> Vec<Tried<'_>> {
        self.tries.iter().map(Try::tried).collect()
    }

    /// As callers are told it.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.tries.iter().map(Try::attempt).collect()
    }
}

impl Try {
    /// As records tell it.
    fn tried(&self) -> Tried<'_> {
        let Try { number, consumer, leased_ms, outcome } = self;
        Tried { number: *number, consumer, leased_ms: *leased_ms, outcome }
    }

    /// As callers are told it.
    pub fn attempt(&self) -> Attempt {
        Attempt {
            number: self.number,
            consumer: (*self.consumer).into(),
            leased_ms: self.leased_ms,
            outcome: self.outcome.clone(),
        }
    }
}
