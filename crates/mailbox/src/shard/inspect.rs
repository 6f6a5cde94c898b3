//! Looking without touching: where a message is and why, and the numbers of a partition.

use std::fmt::Write;

use ron_log::Position;

use super::Shard;
use crate::index::Entry;
use crate::partition::Partition;
use crate::partition::keys::KEY_BYTES;
use crate::partition::past::{Past, Try};
use crate::types::{Content, Explanation, Millis, PartKey, PartStats, Seq, State, Summary};

impl Shard {
    /// The partitions it owns that ever had a message, in no order.
    pub fn parts(&self) -> impl Iterator<Item = PartKey> + '_ {
        self.parts.keys().copied()
    }

    /// A receive would give something.
    pub fn has_ready(&self, part: PartKey) -> bool {
        self.parts.get(&part).is_some_and(|part| part.has_ready())
    }

    /// The message is in the partition, in whatever state.
    pub fn is_held(&self, part: PartKey, seq: Seq) -> bool {
        self.parts.get(&part).is_some_and(|part| part.index.get(seq).is_some())
    }

    /// The number of the lease a message is under.
    pub fn fence_of(&self, part: PartKey, seq: Seq) -> Option<u32> {
        let entry = self.parts.get(&part)?.index.get(seq)?;
        (entry.state() == State::Leased).then_some(entry.fence)
    }

    /// The partition that a message is in which came from another.
    pub(crate) fn home_of(&self, seq: Seq) -> Option<PartKey> {
        self.context.homes.get(seq)
    }

    /// The partition a message is in, looking through all of them; for tests.
    pub fn find(&self, seq: Seq) -> Option<PartKey> {
        let home = self.context.homes.get(seq);
        home.or_else(|| self.parts.values().find(|part| part.index.get(seq).is_some()).map(|part| part.key))
    }

    /// Ready, delayed and leased messages of all its partitions, and the deepest reordering.
    pub fn totals(&self) -> PartStats {
        let [ready, delayed, leased, ..] = self.context.held;
        PartStats { ready, delayed, leased, reorder_depth_max: self.context.reorder_depth_max, ..PartStats::default() }
    }

    /// Partitions whose breaker is not closed.
    pub fn breakers_open(&self) -> u64 {
        self.context.held[3]
    }

    /// Bytes of memory that messages, groups and keys of all its partitions take.
    pub fn memory_bytes(&self) -> u64 {
        self.context.held[5]
    }

    /// Bytes of memory that idempotency keys of all its partitions take.
    pub fn key_bytes(&self) -> u64 {
        self.keys() * KEY_BYTES
    }

    /// Whether the body at this place is a message's of this shard: only then [`Shard::relocate`] needs it.
    pub fn holds(&self, part: PartKey, seq: Seq, position: Position) -> bool {
        let home = self.context.homes.get(seq).unwrap_or(part);
        let entry = self.parts.get(&home).and_then(|part| part.index.get(seq));
        entry.is_some_and(|entry| entry.position == position)
    }

    /// Whether the partition remembers a key that this message came with.
    pub(crate) fn remembers(&self, now: Millis, part: PartKey, seq: Seq) -> bool {
        self.parts.get(&part).is_some_and(|part| part.keys.of(now, seq).is_some())
    }

    /// The numbers of a partition.
    pub fn stats(&self, part: PartKey) -> PartStats {
        self.parts.get(&part).map_or_else(PartStats::default, |part| part.stats())
    }

    /// Messages after a number, in order, without leasing them.
    pub fn browse(&self, part: PartKey, after: Option<Seq>, limit: usize, out: &mut Vec<Summary>) {
        let Some(part) = self.parts.get(&part) else { return };
        let from = after.map_or(0, |after| after.saturating_add(1));
        out.extend(part.index.from(from).take(limit).map(|entry| self.summary(part, entry)));
    }

    /// One message of a partition, without leasing it.
    pub fn summary_of(&self, part: PartKey, seq: Seq) -> Option<Summary> {
        let part = self.parts.get(&part)?;
        part.index.get(seq).map(|entry| self.summary(part, entry))
    }

    /// Why a message is where it is.
    pub fn explain(&self, now: Millis, part: PartKey, seq: Seq) -> Option<Explanation> {
        let part = self.parts.get(&part)?;
        let entry = part.index.get(seq)?;
        let past = part.past_of(entry);
        let running = past.and_then(|past| past.tries.last()).map(Try::attempt);
        let lease = running.filter(|_| entry.state() == State::Leased && entry.at > now);
        Some(Explanation {
            summary: self.summary(part, entry),
            lease: lease.map(|attempt| (attempt, entry.at)),
            blocked_by: part.blocked_by(entry),
            ahead: part.lines.ahead(entry.group, seq),
            noisy_share: part.lines.noisy_share(entry.group),
            leases_max: part.leases_spent(),
            paused: part.settings.paused,
            breaker: part.breaker_view(),
            history: past.map_or_else(Vec::new, Past::attempts),
        })
    }

    /// Everything that must be the same after the journal was read back, as text to compare; for tests.
    pub fn fingerprint(&self, now: Millis) -> String {
        let mut keys: Vec<_> = self.parts.keys().collect();
        keys.sort_unstable();
        let mut text = String::new();
        for key in keys {
            self.parts[key].fingerprint(now, &mut text);
        }
        text
    }

    pub(super) fn summary(&self, part: &Partition, entry: &Entry) -> Summary {
        let hot = self.context.hot.get(entry.seq).cloned();
        let moved = part.moved.value(entry.seq);
        Summary {
            part: part.key,
            seq: entry.seq,
            sent_ms: entry.sent_ms(),
            since_ms: moved.map_or_else(|| entry.sent_ms(), |moved| moved.since_ms),
            group: part.lines.name(entry.group).cloned(),
            attempts: entry.attempts(),
            state: entry.state(),
            due_ms: (entry.state() != State::Ready).then_some(entry.at),
            dead: moved.and_then(|moved| moved.dead.as_deref().cloned()),
            content: hot.map_or(Content::Cold(entry.position), Content::Hot),
        }
    }
}

impl Partition {
    /// The oldest message of its group that has to go before it.
    fn blocked_by(&self, entry: &Entry) -> Option<Seq> {
        if !self.is_fifo() || entry.state() != State::Ready || entry.is_freed() {
            return None;
        }
        let out = Some(self.lines.first_out(entry.group)).filter(|out| *out < entry.seq);
        out.or_else(|| self.lines.head(entry.group).filter(|head| *head < entry.seq))
    }

    fn fingerprint(&self, now: Millis, text: &mut String) {
        let known = self.index.len() > 0 || self.keys.iter(now).next().is_some();
        if !known {
            return;
        }
        let stats = self.stats();
        let counts = (stats.ready, stats.delayed, stats.leased, stats.bytes, stats.groups, stats.oldest_ms);
        let _ = writeln!(text, "{:?} {counts:?} dlq {:?}", self.key, self.dlq);
        for entry in self.index.from(0) {
            let group = self.group_of(entry.seq);
            let _ = writeln!(text, "  {:?} {:?}", self.whole(entry, group.as_deref(), now), entry.position);
            let head = self.lines.head(entry.group);
            let _ = writeln!(text, "    head {head:?} held up by {}", self.lines.first_out(entry.group));
        }
        for (seq, memo) in self.keys.iter(now) {
            let _ = writeln!(text, "  key of {seq}: {memo:?}");
        }
    }
}
