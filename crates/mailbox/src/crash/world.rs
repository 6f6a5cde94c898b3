//! A mailbox without threads: topics, shards and a log on a simulated disk, driven step by step as workers do it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use ron_log::{Class, Disk, Log, LogError, Lsn, Position, SimDisk};
use ron_types::Error;

use super::deliveries::Deliveries;
use super::memory::{Memory, Model, Promise};
use super::reference::{End, Known, Message, Rules, Stand};
use crate::engine::{self, Routing};
use crate::job::LogJournal;
use crate::options::{LogLocation, MailboxOptions};
use crate::record::Record;
use crate::recovery::{self, Recovered};
use crate::shard::{Handover, Journal as _, Key, Nack, Nacked, Recv, Send, Shard};
use crate::topics::{SettingsSeen, StoredTopic, Topic, Topics};
use crate::types::{DeadReason, Dedup, Millis, PartKey, Seq, TopicId, TopicName, TopicSettings};

pub const SEGMENT_BYTES: u32 = 8192;
pub const START_MS: Millis = 1_700_000_000_000;

/// A shard with what its worker keeps beside it.
pub struct ShardHandle {
    pub shard: Shard,
    pub handovers: Vec<Handover>,
    pub changed_topics: Vec<TopicId>,
    pub settings_seen: SettingsSeen,
    last: Lsn,
}

pub struct World {
    pub log: Log,
    pub topics: Topics,
    pub routing: Routing,
    pub shards: Vec<ShardHandle>,
    pub now: Millis,
    pub seq: Seq,
    pub model: Model,
    pub memory: Memory,
    pub deliveries: Deliveries,
    /// Messages that were dropped because their bodies are damaged.
    pub lost: Vec<Seq>,
}

/// What a step may ask of a send.
#[derive(Clone, Copy, Default)]
pub struct TestMessage<'a> {
    pub partition: u16,
    pub group: Option<&'a str>,
    pub key: Option<u128>,
    pub delay_ms: u64,
    pub len: usize,
}

fn options(quota_bytes: u64) -> MailboxOptions {
    let location = LogLocation::Directory("simulated".into());
    MailboxOptions { location, segment_bytes: SEGMENT_BYTES, disk_bytes_max: quota_bytes, ..MailboxOptions::default() }
}

pub fn routing(shards: usize) -> Routing {
    Routing { shards, moving: false }
}

pub fn open(disk: &SimDisk, topics: &Topics, shards: usize, wall_ms: Millis) -> Result<Recovered, LogError> {
    open_as(disk, topics, shards, &Memory::new(wall_ms))
}

/// Opens the log as a node does that remembers this, and is configured so.
pub fn open_as(disk: &SimDisk, topics: &Topics, shards: usize, memory: &Memory) -> Result<Recovered, LogError> {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    recovery::open_on(disk, &options(memory.quota_bytes), topics, routing(shards), (memory.now, None))
}

/// The bytes of a message, different for each.
pub fn body_of(seq: Seq, len: usize) -> Vec<u8> {
    (0..len.max(8)).map(|place| (seq as usize * 31 + place * 7) as u8).collect()
}

impl World {
    /// A mailbox on an empty disk.
    pub fn new(disk: &SimDisk) -> Result<World, LogError> {
        World::begin(disk, Memory::new(START_MS))
    }

    /// A mailbox on an empty disk, configured as this memory says.
    pub fn begin(disk: &SimDisk, memory: Memory) -> Result<World, LogError> {
        let topics = Topics::default();
        let recovered = open_as(disk, &topics, 2, &memory)?;
        Ok(World::resume(recovered, topics, routing(2), memory))
    }

    /// A mailbox after a recovery.
    pub fn resume(recovered: Recovered, topics: Topics, routing: Routing, memory: Memory) -> World {
        let last = recovered.opened.recovery.last;
        let in_small_steps = |mut shard: Shard| {
            shard.set_step(2);
            shard
        };
        let shards = recovered.shards.into_iter().map(in_small_steps).map(|shard| ShardHandle {
            shard,
            handovers: Vec::new(),
            changed_topics: Vec::new(),
            settings_seen: SettingsSeen::new(),
            last,
        });
        let model = memory.past.last().map_or_else(Model::new, |(_, model)| model.clone());
        World {
            log: recovered.opened.log,
            topics,
            routing,
            shards: shards.collect(),
            now: memory.now,
            seq: recovered.seq_max,
            deliveries: Deliveries::after_start(&model),
            model,
            memory,
            lost: Vec::new(),
        }
    }

    pub fn topic(&self, name: &str) -> Arc<Topic> {
        self.topics.get(&name.parse().unwrap()).expect("the script made the topic")
    }

    pub fn part(&self, topic: &str, partition: u16) -> PartKey {
        PartKey { topic: self.topic(topic).id, partition }
    }

    pub fn lsn(&self) -> Lsn {
        self.log.appender().lsn()
    }

    /// One turn of a shard's worker. Says what left for other partitions.
    pub fn turn<R>(
        &mut self,
        index: usize,
        part: Option<PartKey>,
        work: impl FnOnce(&mut Shard, &mut LogJournal<'_>, Millis) -> R,
    ) -> (R, Vec<Seq>) {
        let mut released = Vec::new();
        let driven = &mut self.shards[index];
        let (result, moved) = {
            let mut journal = LogJournal::new(&self.log, &mut released);
            for id in std::mem::take(&mut driven.changed_topics) {
                driven.settings_seen.retain(|known, _| known.home() != id.0);
                driven.shard.forget_topic(id, &mut journal);
            }
            for handover in std::mem::take(&mut driven.handovers) {
                let Some(topic) = self.topics.by_id(handover.to.topic) else {
                    journal.release(handover.position());
                    continue;
                };
                self.topics.tell_if_new(&mut driven.shard, &mut driven.settings_seen, &topic);
                driven.shard.adopt(self.now, handover);
            }
            if let Some(topic) = part.and_then(|part| self.topics.by_id(part.topic)) {
                self.topics.tell_if_new(&mut driven.shard, &mut driven.settings_seen, &topic);
            }
            let result = work(&mut driven.shard, &mut journal, self.now);
            driven.last = journal.written().unwrap_or(driven.last);
            (result, driven.shard.take_outbox())
        };
        // The worker lets go of a step of what is left of emptied partitions.
        driven.shard.let_go(&mut |position| released.push(position));
        released.into_iter().for_each(|position| self.log.release(position));
        let seqs = moved.iter().map(|handover| handover.seq).collect();
        for handover in moved {
            self.shards[self.routing.shard_of(handover.to)].handovers.push(handover);
        }
        (result, seqs)
    }

    pub fn on_part<R>(
        &mut self,
        part: PartKey,
        work: impl FnOnce(&mut Shard, &mut LogJournal<'_>, Millis) -> R,
    ) -> (R, Vec<Seq>) {
        self.turn(self.routing.shard_of(part), Some(part), work)
    }

    /// A step is done: its answer waits for the log.
    pub fn done(&mut self, part: PartKey, promise: Promise) {
        let lsn = self.shards[self.routing.shard_of(part)].last;
        self.remember(lsn, promise);
    }

    pub fn remember(&mut self, lsn: Lsn, promise: Promise) {
        self.deliveries.check(&self.model.reference.messages);
        self.memory.now = self.now;
        self.memory.seq_max = self.memory.seq_max.max(self.seq);
        self.memory.owe(lsn, promise);
        self.memory.past.push((self.lsn().0, self.model.clone()));
        self.memory.answer(self.log.durable());
    }

    pub fn flush(&mut self) -> Result<(), LogError> {
        self.log.flush()?;
        self.memory.answer(self.log.durable());
        Ok(())
    }

    pub fn advance(&mut self, ms: u64) {
        self.now += ms;
        self.memory.now = self.now;
    }

    /// Writes a record that belongs to no shard.
    pub fn append(&mut self, class: Class, record: &Record<'_>) -> Result<(Lsn, Position), Error> {
        let mut appender = self.log.appender();
        let position = engine::append(&mut appender, class, record)?;
        Ok((appender.lsn(), position))
    }

    /// Writes a topic's record; refused if there is no room for it.
    pub fn append_topic(
        &mut self,
        class: Class,
        id: TopicId,
        name: &TopicName,
        stored: &StoredTopic,
    ) -> Result<Lsn, Error> {
        let settings = stored.text()?;
        let (lsn, position) = self.append(class, &Record::Topic { id, name: name.as_str(), settings: &settings })?;
        self.topics.newest.note_topic(id, position);
        Ok(lsn)
    }

    /// Makes a topic, or changes the settings of one.
    pub fn put_topic(&mut self, name: &str, settings: TopicSettings) {
        let name: TopicName = name.parse().unwrap();
        let planned = match self.topics.get(&name) {
            Some(_) => self.topics.plan_change(&name, settings).unwrap(),
            None => self.topics.plan_new(&name, settings, None).unwrap().expect("new"),
        };
        let stored = planned.stored(self.now, self.now);
        let lsn = self.append_topic(Class::Data, planned.id, &planned.name, &stored).expect("the log takes it");
        let topic = self.topics.put(planned.id, planned.name, stored);
        self.model.topics.insert(name.to_string(), (topic.id, (*topic.settings).clone()));
        let own = topic.dead_letters().cloned();
        for topic in std::iter::once(&topic).chain(own.as_ref()) {
            let rules = Rules { settings: (*topic.settings).clone(), dlq: self.topics.dead_letters_of(topic) };
            topic.parts().for_each(|part| drop(self.model.reference.rules.insert(part, rules.clone())));
        }
        // SettingsSeen at once, as the handle does.
        topic.parts().for_each(|part| drop(self.on_part(part, |_, _, _| ())));
        self.remember(lsn, Promise::Made(topic.id));
    }

    pub fn remove_topic(&mut self, name: &str) {
        let topic = self.topic(name);
        let (lsn, _) = self.append(Class::Settle, &Record::TopicGone { id: topic.id }).expect("the log takes it");
        self.topics.remove(topic.id);
        let parts: Vec<PartKey> =
            topic.parts().chain(topic.dead_letters().into_iter().flat_map(|d| d.parts())).collect();
        // Nobody waits for the shards: they follow when they take their next turn, or the power goes first.
        let owners: BTreeSet<usize> = parts.iter().map(|part| self.routing.shard_of(*part)).collect();
        owners.into_iter().for_each(|index| self.shards[index].changed_topics.push(topic.id));
        for part in parts {
            self.clear(part, lsn);
            self.model.reference.rules.remove(&part);
        }
        self.model.topics.remove(name);
        self.model.moves.remove(&topic.id);
        self.remember(lsn, Promise::Other);
    }

    pub fn purge(&mut self, part: PartKey) {
        let (purged, _) = self.on_part(part, |shard, journal, now| shard.purge(now, journal, part));
        purged.expect("the log takes it");
        let lsn = self.shards[self.routing.shard_of(part)].last;
        self.clear(part, lsn);
        self.done(part, Promise::Other);
    }

    fn clear(&mut self, part: PartKey, lsn: Lsn) {
        let reference = &mut self.model.reference;
        let here: Vec<Seq> = reference.messages.iter().filter(|one| one.part == part).map(|one| one.seq).collect();
        for seq in here {
            reference.end(seq, End::Purged);
            self.memory.owe(lsn, Promise::Gone(seq));
        }
        reference.keys.retain(|known| known.part != part);
    }

    pub fn send(&mut self, topic: &str, message: TestMessage<'_>) -> Seq {
        let part = self.part(topic, message.partition);
        self.seq += 1;
        let (seq, body) = (self.seq, body_of(self.seq, message.len));
        let key = message.key.map(|hash| Key { hash, payload: hash as u64 });
        let (group, sent_body) = (message.group.map(str::to_owned), Bytes::from(body.clone()));
        let (sent, _) = self.on_part(part, |shard, journal, now| {
            let delay_ms = Some(message.delay_ms);
            let (group, body, dedup) = (message.group, sent_body, Dedup::default());
            let sent_ms = now;
            shard.send(now, journal, Send { part, group, key, dedup, delay_ms, sent_ms, seq, body })
        });
        let sent = sent.expect("the log takes it");
        let known = key.and_then(|key| self.model.reference.known(self.now, part, key.hash)).map(|known| known.seq);
        assert_eq!((sent.seq, sent.duplicate), (known.unwrap_or(seq), known.is_some()), "key {key:?} at {}", self.now);
        if known.is_none() {
            let stand = if message.delay_ms > 0 { Stand::Delayed(self.now + message.delay_ms) } else { Stand::Ready };
            let since_ms = self.now;
            let message = Message::new(part, seq, group, body, since_ms, stand);
            self.model.reference.messages.push(message);
            let window = self.model.reference.rules[&part].settings.replay_window_ms;
            if let Some(Key { hash, payload }) = key {
                let until_ms = self.now + window;
                self.model.reference.keys.push(Known { part, hash, payload, seq, until_ms });
            }
        }
        // A duplicate of one that is settled promises no message.
        let is_held = self.model.view(sent.seq).is_some();
        self.done(part, if is_held { Promise::Sent(sent.seq) } else { Promise::Other });
        sent.seq
    }

    /// Receives; in a first-in-first-out topic exactly what the reference says.
    pub fn recv(&mut self, part: PartKey, max_messages: usize, visibility_ms: u64) -> Vec<Seq> {
        let before = self.model.reference.clone();
        let (leased, moved) = self.on_part(part, |shard, journal, now| {
            let mut out = Vec::new();
            let recv = Recv { max_messages, max_bytes: usize::MAX, visibility_ms: Some(visibility_ms), consumer: "c" };
            shard.recv(now, journal, part, recv, &mut out).map(|()| out)
        });
        let leased = leased.expect("the log takes it");
        self.note_ended_leases();
        self.model.reference.settle(self.now, part);
        self.note_dead(&before);
        self.memory.past.push((self.lsn().0, self.model.clone()));
        let reference = &mut self.model.reference;
        let given: Vec<Seq> = leased.iter().map(|leased| leased.seq).collect();
        if reference.is_fifo(part) {
            let (expected, _) = reference.fifo_order(part, max_messages);
            assert_eq!(given, expected, "the order of {part:?}");
        }
        for seq in moved {
            if reference.get(part, seq).is_some() {
                reference.die(self.now, seq, DeadReason::MaxAttempts);
                self.model.errors.insert(seq, "given back".to_owned());
            }
        }
        for leased in &leased {
            let message = self.model.reference.get(part, leased.seq).expect("only what is here is delivered");
            message.attempts += 1;
            message.fence += 1;
            message.stand = Stand::Leased(self.now + visibility_ms);
            assert_eq!((leased.attempt, leased.fence), (message.attempts, message.fence), "of {}", leased.seq);
            self.deliveries.count(leased.seq);
        }
        self.done(part, Promise::Other);
        given
    }

    /// A state amid a step: leases have run out, and nothing has come of that yet.
    pub(super) fn note_ended_leases(&mut self) {
        let mut amid = self.model.clone();
        for message in &mut amid.reference.messages {
            if matches!(message.stand, Stand::Leased(until_ms) if until_ms <= self.now) {
                message.stand = Stand::Ready;
            }
        }
        self.memory.past.push((self.lsn().0, amid));
    }

    /// What is said of those that died by themselves.
    fn note_dead(&mut self, before: &super::reference::Reference) {
        let was_dead = |seq| before.messages.iter().any(|old: &Message| old.seq == seq && old.dead.is_some());
        for message in self.model.reference.messages.iter().filter(|message| !was_dead(message.seq)) {
            let error = match message.dead {
                Some((DeadReason::MaxAttempts, _)) => "the lease ran out",
                _ => "",
            };
            self.model.errors.insert(message.seq, error.to_owned());
        }
        let left: Vec<Seq> = self.model.reference.ended.keys().copied().collect();
        self.memory.ledger.maybe_gone.extend(left);
    }

    /// Messages under a lease that holds.
    pub fn leased(&self) -> Vec<(PartKey, Seq, u32)> {
        let holds = |one: &&Message| matches!(one.stand, Stand::Leased(until_ms) if until_ms > self.now);
        self.model.reference.messages.iter().filter(holds).map(|one| (one.part, one.seq, one.fence)).collect()
    }

    pub fn ack(&mut self, seq: Seq) {
        let (part, _, fence) = self.lease_of(seq);
        let (answers, _) = self.on_part(part, |shard, journal, now| shard.ack(now, journal, part, &[(seq, fence)]));
        assert_eq!(answers, [Ok(())], "the lease of {seq} holds");
        self.model.reference.end(seq, End::Acked);
        self.done(part, Promise::Gone(seq));
    }

    fn lease_of(&self, seq: Seq) -> (PartKey, Seq, u32) {
        self.leased().into_iter().find(|lease| lease.1 == seq).expect("the script has the lease")
    }

    pub fn nack(&mut self, seq: Seq, delay_ms: u64, reject: bool) {
        let (part, _, fence) = self.lease_of(seq);
        let reason = format!("failed {seq}");
        let (answer, _) = self.on_part(part, |shard, journal, now| {
            let nack = Nack { reason: &reason, delay_ms: Some(delay_ms), reject };
            shard.nack(now, journal, part, seq, fence, nack, 0)
        });
        match answer.expect("the lease holds") {
            Nacked::Died => {
                let why = if reject { DeadReason::Rejected } else { DeadReason::MaxAttempts };
                self.model.reference.die(self.now, seq, why);
                self.model.errors.insert(seq, reason);
            }
            Nacked::Requeued { due_ms } => {
                let stand = if due_ms > self.now { Stand::Delayed(due_ms) } else { Stand::Ready };
                self.model.reference.get(part, seq).expect("it is there").stand = stand;
                if due_ms <= self.now {
                    self.model.reference.go_behind(part, seq);
                }
            }
        }
        self.done(part, Promise::Other);
    }

    pub fn extend(&mut self, seq: Seq, visibility_ms: u64) {
        let (part, _, fence) = self.lease_of(seq);
        let (answer, _) =
            self.on_part(part, |shard, journal, now| shard.extend(now, journal, part, seq, fence, visibility_ms));
        let until_ms = answer.expect("the lease holds");
        let stand = if visibility_ms == 0 { Stand::Freed } else { Stand::Leased(until_ms) };
        self.model.reference.get(part, seq).expect("it is there").stand = stand;
        if visibility_ms == 0 {
            self.model.reference.go_behind(part, seq);
        }
        self.done(part, Promise::Other);
    }
}

#[path = "upkeep.rs"]
mod upkeep;
