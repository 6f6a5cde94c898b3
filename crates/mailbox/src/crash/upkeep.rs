//! What a driven mailbox does beside deliveries: changes, redrives, what is due, compaction, rebalancing.

use bytes::Bytes;
use ron_log::{Class, Log, LogError, Lsn, Position};

use super::super::memory::Promise;
use super::super::reference::{End, Message, Stand};
use super::{World, body_of, routing};
use crate::engine::REMEMBER_BYTES;
use crate::keeper::{self, CopyCandidate, Unreadable};
use crate::moves::{MoveTask, Moves};
use crate::rebalancer::rehouse;
use crate::record::Record;
use crate::shard::Shard;
use crate::topics::StoredTopic;
use crate::types::{Millis, PartKey, Seq, TopicId};

impl World {
    fn message(&self, seq: Seq) -> Message {
        let found = self.model.reference.messages.iter().find(|message| message.seq == seq);
        found.expect("the script knows the message").clone()
    }

    /// Messages of a partition, in order.
    pub fn held(&self, part: PartKey) -> Vec<Seq> {
        self.model.reference.messages.iter().filter(|one| one.part == part).map(|one| one.seq).collect()
    }

    /// Messages that nobody has seen.
    pub fn unseen(&self) -> Vec<Seq> {
        self.model.reference.messages.iter().filter(|one| one.attempts == 0).map(|one| one.seq).collect()
    }

    pub fn cancel(&mut self, seq: Seq) {
        let part = self.message(seq).part;
        let (answer, _) = self.on_part(part, |shard, journal, now| shard.cancel(now, journal, part, seq));
        answer.expect("nobody has seen it");
        self.model.reference.end(seq, End::Canceled);
        self.done(part, Promise::Gone(seq));
    }

    pub fn reschedule(&mut self, seq: Seq, delay_ms: u64) {
        let part = self.message(seq).part;
        let due_ms = self.now + delay_ms;
        let (answer, _) = self.on_part(part, |shard, journal, now| shard.reschedule(now, journal, part, seq, due_ms));
        answer.expect("nobody has seen it");
        let stand = if delay_ms > 0 { Stand::Delayed(due_ms) } else { Stand::Ready };
        self.model.reference.get(part, seq).expect("it is there").stand = stand;
        self.done(part, Promise::Other);
    }

    pub fn edit(&mut self, seq: Seq, len: usize) {
        let part = self.message(seq).part;
        let body = body_of(seq + 1000, len);
        let bytes = Bytes::from(body.clone());
        let (answer, _) = self.on_part(part, |shard, journal, now| shard.edit(now, journal, part, seq, bytes));
        answer.expect("nobody has seen it");
        self.model.reference.get(part, seq).expect("it is there").body = body;
        self.done(part, Promise::Other);
    }

    /// A message gets another chance by the move of this number.
    pub fn redrive(&mut self, seq: Seq, to: PartKey, moved_by: u64) {
        let from = self.message(seq).part;
        let (answer, _) =
            self.on_part(from, |shard, journal, now| shard.redrive(now, journal, from, seq, to, moved_by));
        answer.expect("it is dead and with nobody");
        self.model.reference.get(from, seq).expect("it is there").dead = None;
        self.model.reference.arrive(self.now, seq, to);
        self.model.errors.remove(&seq);
        self.topics.moves.count(from.topic, moved_by);
        self.model.moves.insert(from.topic, self.topics.moves.of(from.topic));
        self.done(from, Promise::Other);
    }

    fn append_move(&mut self, class: Class, id: TopicId, task: &MoveTask) -> (Lsn, Position) {
        let text = Moves::text(task).unwrap();
        self.append(class, &Record::Moves { id, now_ms: self.now, tasks: &text }).expect("the log takes it")
    }

    /// Orders, changes or ends a move of a topic, as the handle and the reprocessor do.
    pub fn change_moves(&mut self, id: TopicId, change: impl FnOnce(&[MoveTask], u64) -> MoveTask) {
        let task = change(&self.topics.moves.of(id), self.topics.moves.next_id(self.now));
        let (lsn, _) = self.append_move(Class::Data, id, &task);
        self.topics.moves.put(id, task);
        self.model.moves.insert(id, self.topics.moves.of(id));
        self.remember(lsn, Promise::Other);
    }

    /// What is due happens everywhere.
    pub fn tick(&mut self) {
        let before = self.model.reference.clone();
        for _ in 0..3 {
            for index in 0..self.shards.len() {
                self.turn(index, None, |shard, journal, now| shard.tick(now, journal, &mut || 0));
            }
        }
        self.note_ended_leases();
        self.model.reference.settle_all(self.now);
        self.note_dead(&before);
        let lsn = self.lsn();
        self.remember(lsn, Promise::Other);
    }

    /// Partitions go to so many shards, as the rebalancer does it; what is on its way follows its partition.
    pub fn rebalance(&mut self, shards: usize) -> Result<(), LogError> {
        self.flush()?;
        let after = routing(shards);
        let mut owned: Vec<&mut Shard> = self.shards.iter_mut().map(|driven| &mut driven.shard).collect();
        rehouse(&mut owned, &self.topics, after);
        let on_their_way: Vec<_> =
            self.shards.iter_mut().flat_map(|driven| std::mem::take(&mut driven.handovers)).collect();
        self.routing = after;
        for handover in on_their_way {
            self.shards[after.shard_of(handover.to)].handovers.push(handover);
        }
        let last = self.lsn();
        for driven in &mut self.shards {
            driven.last = last;
            driven.shard.forget_rules();
            driven.settings_seen.clear();
        }
        Ok(())
    }

    /// Gives the oldest segment back if that is worth it, as the keeper does it.
    pub fn compact(&mut self) -> Result<bool, LogError> {
        self.compact_with(&mut |_, _| ())
    }

    /// The same, with something happening before each shard is asked.
    pub fn compact_with(&mut self, between: &mut dyn FnMut(&mut World, usize)) -> Result<bool, LogError> {
        let keys: u64 = self.shards.iter().map(|driven| driven.shard.keys()).sum();
        self.log.set_kept_bytes(self.topics.newest.bytes() + keys * REMEMBER_BYTES);
        let Some(segment) = self.log.reclaimable() else { return Ok(false) };
        for id in self.topics.newest.topics_until(segment) {
            let topic = self.topics.by_id(id).expect("its record is forgotten with it");
            let copied = self.append_topic(Class::Copy, id, &topic.name, &StoredTopic::from(&*topic));
            copied.expect("the log takes it");
        }
        for id in self.topics.moves.topics() {
            if self.topics.newest.moves_go_with(id, segment) {
                let tasks = self.topics.moves.of(id);
                let copies: Vec<Position> =
                    tasks.iter().map(|task| self.append_move(Class::Copy, id, task).1).collect();
                self.topics.newest.note_moves(id, &copies);
            }
        }
        if self.log.is_dead(segment) {
            // It goes unread, so that the count must be right.
            let held: Vec<_> = self.shards.iter().flat_map(|driven| driven.shard.messages_in(segment)).collect();
            assert!(held.is_empty(), "{held:?} are in segment {segment}, of which nothing is needed");
        }
        let candidates = keeper::candidates_of(&self.log, segment, keys)?;
        let now = self.now;
        let is_needed =
            |candidate: &&CopyCandidate| (0..self.shards.len()).any(|index| self.concerns(index, candidate, now));
        let needed: Vec<CopyCandidate> = candidates.iter().filter(is_needed).copied().collect();
        for batch in needed.chunks(4) {
            self.copy_forward(batch, between)?;
        }
        self.seq += 1;
        let mark = Record::Mark { now_ms: self.now, shards: 1, seq: self.seq, boot: None };
        let numbers = Record::TopicNumbers { taken: self.topics.numbers_taken() };
        for told in [numbers, mark] {
            self.append(told.class(), &told).expect("the log takes it");
        }
        while let Err(error) = self.log.retire(segment) {
            let LogError::StillNeeded { .. } = error else { return Err(error) };
            let shards = self.shards.iter();
            let left: Vec<_> = shards.flat_map(|driven| CopyCandidate::of_shard(&driven.shard, segment)).collect();
            if left.is_empty() {
                // The shards are still letting go of it, and every turn does a step.
                assert!(self.shards.iter().any(|driven| driven.shard.has_remains()), "{error}, and no shard knows why");
                (0..self.shards.len()).for_each(|index| drop(self.turn(index, None, |_, _, _| ())));
            }
            self.copy_forward(&left, between)?;
        }
        let lsn = self.lsn();
        self.remember(lsn, Promise::Other);
        Ok(true)
    }

    /// Whether a shard has something to write again before a record may go.
    fn concerns(&self, index: usize, candidate: &CopyCandidate, now: Millis) -> bool {
        let driven = &self.shards[index];
        let mut on_their_way = driven.handovers.iter().map(|one| one.seq);
        candidate.concerns(&driven.shard, now) || candidate.is_among(&mut on_their_way)
    }

    fn copy_forward(
        &mut self,
        batch: &[CopyCandidate],
        between: &mut dyn FnMut(&mut World, usize),
    ) -> Result<(), LogError> {
        let log: Log = self.log.clone();
        loop {
            let (routing, now) = (self.routing, self.now);
            let is_concerned = |index: &usize| batch.iter().any(|candidate| self.concerns(*index, candidate, now));
            let concerned: Vec<usize> = (0..self.shards.len()).filter(is_concerned).collect();
            for index in 0..self.shards.len() {
                between(self, index);
                if !concerned.contains(&index) {
                    continue;
                }
                let (held, _) =
                    self.turn(index, None, |shard, journal, now| keeper::sort_out(shard, journal, now, batch));
                let (whole, damaged) =
                    keeper::bodies_of(&log, held.expect("the log takes it"), Unreadable::TriedAgain)?;
                let (lost, _) = self.turn(index, None, |shard, journal, now| {
                    keeper::write_again(shard, journal, now, &whole)?;
                    keeper::lose(shard, journal, &damaged)
                });
                self.lost.extend(lost.expect("the log takes it").iter().map(|lost| lost.seq));
            }
            let is_held = |candidate: &CopyCandidate| {
                self.shards.iter().any(|driven| {
                    candidate.is_in(&driven.shard) || candidate.is_among(driven.handovers.iter().map(|one| one.seq))
                })
            };
            if self.routing == routing && !batch.iter().any(is_held) {
                return Ok(());
            }
        }
    }
}
