//! What all partitions of a shard share: the record being written, the agenda, the hot window, what is handed over.

use ron_log::{Class, Position};
use ron_types::Error;

use super::hot::Hot;
use super::{Handover, Journal};
use crate::by_seq::BySeq;
use crate::index::Entry;
use crate::partition::apply::MessageInTransit;
use crate::partition::{Held, Partition};
use crate::record::Record;
use crate::timers::Deadlines;
use crate::types::{BreakerTurn, Millis, PartKey, Seq};

pub(super) struct ShardContext {
    /// When each partition has something due.
    pub agenda: Deadlines<PartKey>,
    pub hot: Hot,
    /// Where messages are that came from another partition.
    pub homes: Homes,
    pub outbox: Vec<Handover>,
    pub woken: Vec<PartKey>,
    /// Bodies found to be no longer needed while reading the journal back.
    pub released: Vec<Position>,
    /// Leases being given; kept for its room.
    pub items: Vec<(Seq, u32)>,
    /// Breakers that have opened or closed.
    pub turns: Vec<BreakerTurn>,
    /// Of all partitions.
    pub held: Held,
    pub reorder_depth_max: u64,
    head: Vec<u8>,
}

/// Where messages are that came from another partition.
#[derive(Debug, Default)]
pub(super) struct Homes(BySeq<(Seq, PartKey)>);

impl Homes {
    pub fn get(&self, seq: Seq) -> Option<PartKey> {
        self.0.value(seq).copied()
    }

    pub fn insert(&mut self, seq: Seq, part: PartKey) {
        self.remove(seq);
        self.0.insert((seq, part), Millis::MAX);
    }

    pub fn remove(&mut self, seq: Seq) {
        self.0.remove(seq);
    }

    /// Bytes taken, unused room included.
    #[cfg(test)]
    pub fn capacity_bytes(&self) -> usize {
        self.0.capacity_bytes()
    }
}

impl ShardContext {
    pub fn new(hot_bytes_max: usize) -> Self {
        ShardContext {
            agenda: Deadlines::new(),
            hot: Hot::new(hot_bytes_max),
            homes: Homes::default(),
            outbox: Vec::new(),
            woken: Vec::new(),
            released: Vec::new(),
            items: Vec::new(),
            turns: Vec::new(),
            held: Held::default(),
            reorder_depth_max: 0,
            head: Vec::new(),
        }
    }

    /// Appends a record that has a body.
    pub fn write_with(
        &mut self,
        journal: &mut dyn Journal,
        record: &Record<'_>,
        body: &[u8],
    ) -> Result<Position, Error> {
        self.write_as(journal, record.class(), record, body)
    }

    /// Appends a record without a body.
    pub fn write(&mut self, journal: &mut dyn Journal, record: &Record<'_>) -> Result<(), Error> {
        self.write_with(journal, record, &[]).map(|_| ())
    }

    /// Appends a step of a delivery; where there is no room left for it, the journal may let it pass unwritten.
    pub fn write_step(&mut self, journal: &mut dyn Journal, record: &Record<'_>) -> Result<(), Error> {
        debug_assert_eq!(record.class(), Class::Step);
        self.write(journal, record)
    }

    /// Appends a record that has another purpose than its kind says.
    pub fn write_as(
        &mut self,
        journal: &mut dyn Journal,
        class: Class,
        record: &Record<'_>,
        body: &[u8],
    ) -> Result<Position, Error> {
        self.head.clear();
        record.encode(&mut self.head);
        journal.append(class, &self.head, body)
    }

    /// A message is no more.
    pub fn forget(&mut self, entry: &Entry) -> Position {
        self.hot.take(entry.seq);
        if entry.is_moved() {
            self.homes.remove(entry.seq);
        }
        entry.position
    }

    /// A message left its partition.
    pub fn hand_over(&mut self, to: PartKey, seq: Seq, in_transit: MessageInTransit) {
        self.homes.remove(seq);
        let hot = self.hot.take(seq);
        self.outbox.push(Handover { to, seq, in_transit, hot });
    }

    /// After any change: the agenda is true and waiters will be woken.
    pub fn finish(&mut self, part: &mut Partition) {
        let next = part.next_deadline();
        if let Some(next_ms) = next
            && part.armed_ms.is_none_or(|armed_ms| next_ms < armed_ms)
        {
            self.arm(part);
        }
        self.count(part, part.held());
        self.reorder_depth_max = self.reorder_depth_max.max(part.counts.reorder_depth_max);
        if let Some(breaker) = &mut part.breaker {
            self.turns.extend(breaker.take_turn(part.key));
        }
        let stirred = std::mem::take(&mut part.stirred) | std::mem::take(&mut part.lines.opened);
        if stirred && !part.woken && part.has_ready() {
            part.woken = true;
            self.woken.push(part.key);
        }
    }

    /// Puts a partition into the agenda with its very next time.
    pub fn arm(&mut self, part: &mut Partition) {
        self.disarm(part);
        part.armed_ms = part.next_deadline();
        if let Some(at) = part.armed_ms {
            self.agenda.set(at, part.key);
        }
    }

    /// Replaces what the shard counts for a partition by `held`.
    pub fn count(&mut self, part: &mut Partition, held: Held) {
        for (total, (now, before)) in self.held.iter_mut().zip(held.into_iter().zip(part.counted)) {
            *total = *total + now - before;
        }
        part.counted = held;
    }

    /// Takes a partition out of the agenda.
    pub fn disarm(&mut self, part: &mut Partition) {
        if let Some(at) = part.armed_ms.take() {
            self.agenda.clear(at, part.key);
        }
    }
}
