//! What happened to messages that were delivered at least once, or came from elsewhere.

use std::sync::Arc;

use ron_types::limits::mailbox::HISTORY_MAX;

use crate::clock::Hold;
use crate::record::Tried;
use crate::stepped::SteppedMap;
use crate::types::{Attempt, Dead, Millis, Seq};

/// One delivery.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub number: u32,
    pub consumer: Arc<str>,
    pub leased_ms: Millis,
    /// Empty while it runs.
    pub outcome: Arc<str>,
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
    /// Boxed, because those that got another chance have none, and may be as many.
    pub dead: Option<Box<Dead>>,
    /// Deliveries it had before it came, until it is delivered again: where very many messages come and go, nobody has
    /// to look for these.
    pub past: Option<Box<Past>>,
}

impl Moved {
    /// Until when its message is kept.
    pub fn kept_until(&self, hold: Hold, retention_ms: u64) -> Millis {
        hold.end_of(self.since_ms, self.since_ms.saturating_add(retention_ms))
    }
}

/// The deliveries of a partition's messages.
#[derive(Debug, Default)]
pub(crate) struct Pasts {
    by_seq: SteppedMap<Seq, Past>,
    /// Memory those take.
    bytes: u64,
    /// Consumers come back and say the same, so the last one's name and what was last said are shared.
    consumer: Arc<str>,
    outcome: Arc<str>,
}

impl Pasts {
    /// A delivery begins: the `number`th.
    pub fn begin(&mut self, seq: Seq, number: u32, consumer: &str, now: Millis) -> &Past {
        let consumer = share(&mut self.consumer, consumer);
        let bytes = &mut self.bytes;
        let past = self.by_seq.get_or_insert(seq, |known| *bytes -= known.memory_bytes());
        if number <= 1 || past.tries.is_empty() {
            past.first_leased_ms = now;
        }
        if past.tries.len() == HISTORY_MAX {
            past.tries.remove(0);
        }
        // Most messages are delivered once: room for more would be most of what they take.
        past.tries.reserve_exact(1);
        past.tries.push(Try { number, consumer, leased_ms: now, outcome: Arc::default() });
        self.bytes += past.memory_bytes();
        past
    }

    /// The current delivery ends; how long it took.
    pub fn end(&mut self, seq: Seq, now: Millis, outcome: &str) -> u64 {
        let Some(last) = self.by_seq.get_mut(&seq).and_then(|past| past.tries.last_mut()) else { return 0 };
        if last.outcome.is_empty() {
            last.outcome = share(&mut self.outcome, outcome);
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

    /// What a record tells of a message.
    pub fn told(&mut self, first_leased_ms: Millis, tries: &[Tried<'_>]) -> Past {
        let tries = tries.iter().map(|tried| Try {
            number: tried.number,
            consumer: share(&mut self.consumer, tried.consumer),
            leased_ms: tried.leased_ms,
            outcome: share(&mut self.outcome, tried.outcome),
        });
        Past { first_leased_ms, tries: tries.collect() }
    }

    /// Forgets a message.
    pub fn remove(&mut self, seq: Seq) -> Option<Past> {
        let past = self.by_seq.remove(&seq)?;
        self.bytes -= past.memory_bytes();
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
        self.by_seq.allocation_size() + self.by_seq.iter().map(|(_, past)| of_tries(past)).sum::<usize>()
    }

    /// Messages it knows.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_seq.len()
    }
}

/// A text that may be the same as the last one.
fn share(last: &mut Arc<str>, text: &str) -> Arc<str> {
    if **last != *text {
        *last = text.into();
    }
    Arc::clone(last)
}

impl Past {
    /// As it is kept with a message that came from elsewhere; none if nothing is known.
    pub fn at_rest(self) -> Option<Box<Past>> {
        (!self.tries.is_empty()).then(|| Box::new(self))
    }

    /// Bytes of the texts in it.
    pub fn text_bytes(&self) -> usize {
        self.tries.iter().map(|one| one.consumer.len() + one.outcome.len()).sum()
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
            outcome: (*self.outcome).into(),
        }
    }
}
