//! What every part of the mailbox shares: the log, the topics, the shards and the way to them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ron_auth::Subject;
use ron_cells::Sequence;
use ron_kernel::gate::Gate;
use ron_kernel::queue::QueueSender;
use ron_kernel::rate::TenantRates;
use ron_kernel::share::{Bound, SubjectShares};
use ron_kernel::{Deadline, KernelHandle, Snapshot, clock};
use ron_log::{Appender, Class, Log, LogError, Lsn, Position, Recovery, Shortage};
use ron_types::limits::TENANTS_MAX;
use ron_types::limits::mailbox::{RECEIVERS_MAX, SHARDS_MAX};
use ron_types::{Error, Kind};
use tokio::sync::{Notify, watch};

use crate::capabilities::SENDS_PER_SECOND;
use crate::clock::{Hold, Steady};
use crate::events::{Event, Events};
use crate::holders::{self, LeaseHolders};
use crate::job::{Job, Wake};
use crate::key_shares::KeyShares;
use crate::metrics::Counts;
use crate::moves::{MoveState, MoveTask, MoveView, Moves, OrderedMove};
use crate::options::{LiveOptions, MailboxOptions};
use crate::origins::Origins;
use crate::receipt::Secret;
use crate::receiving::{ReceiveTerms, ReturnedLeases};
use crate::record::Record;
use crate::scrub::Scrubber;
use crate::shard::{Handover, Shard};
use crate::slot::ShardSlot;
use crate::topics::{StoredTopic, Topic, Topics};
use crate::types::{Millis, PartKey, TopicId, TopicName, TopicSettings};

/// Bytes of a remembered key in the log, about: two hashes, two times, its message, and what every record has.
pub(crate) const REMEMBER_BYTES: u64 = 96;

/// Receives that wait for a message.
const RECEIVERS: Bound = Bound { what: "waiting receives", help: "end some of them or wait for a shorter time" };

/// Shared by the handle and every task of the mailbox.
pub(crate) struct Engine {
    pub options: MailboxOptions,
    pub live: Snapshot<LiveOptions>,
    pub topics: Topics,
    pub secret: Secret,
    pub shards: Vec<ShardHandle>,
    pub routing: Snapshot<Routing>,
    pub numbers: Sequence,
    /// Where messages were sent to, for those who know only their ids.
    pub origins: Origins,
    pub kernel: KernelHandle,
    pub counts: Counts,
    /// How fast each sender that has a limit may send.
    send_rates: TenantRates,
    /// Who has leases.
    pub holders: LeaseHolders,
    /// Receives that wait for a message, each once, however many partitions it waits for.
    pub receivers: Arc<SubjectShares>,
    /// Keys that each sender's messages have left behind.
    pub key_shares: KeyShares,
    pub events: Events,
    /// Permits of callers that use a core here.
    pub ops: Gate,
    pub move_orders: QueueSender<OrderedMove>,
    pub scrubber: Scrubber,
    /// The nearest deadline of each shard; the scanner sleeps until the nearest of all.
    pub deadlines: watch::Sender<[Millis; SHARDS_MAX]>,
    opened: OnceLock<Opened>,
    opening: Notify,
}

/// What exists once the log has been recovered.
pub(crate) struct Opened {
    pub log: Log,
    pub clock: Steady,
    /// What a jump of the wall clock holds back. The shards have copies, which end by themselves.
    pub hold: Mutex<Hold>,
    pub recovery: Recovery,
}

impl Opened {
    /// What is held back now.
    pub fn hold(&self) -> Hold {
        let hold = *lock(&self.hold);
        if hold.is_on(self.clock.now()) { hold } else { Hold::NONE }
    }
}

/// One shard as seen from outside.
pub(crate) struct ShardHandle {
    pub jobs: QueueSender<Job>,
    pub wakes: QueueSender<Wake>,
    /// Leases it gave to receivers that had gone.
    pub returned: Arc<ReturnedLeases>,
    pub shared: SharedShard,
}

impl ShardHandle {
    pub fn new(jobs: QueueSender<Job>, wakes: QueueSender<Wake>) -> ShardHandle {
        let waker = wakes.clone();
        // A full queue already holds a wake-up.
        let returned = ReturnedLeases::new(move || drop(waker.offer(Wake)));
        ShardHandle { jobs, wakes, returned, shared: SharedShard::default() }
    }
}

/// A shard's state, kept outside of its worker, because callers run turns of their own. A panic in the middle of a
/// change poisons the lock; the worker's next life then rebuilds the shard from the log.
#[derive(Default)]
pub(crate) struct SharedShard {
    pub slot: Mutex<ShardSlot>,
    /// A reply waits for the log since the worker last looked.
    pub reply_waits: Notify,
    /// Messages moved here by other shards, with the number of the record that says so.
    pub handovers: Mutex<Vec<(Lsn, Handover)>>,
    /// Topics with other settings, or none any more, of which the shard may have partitions.
    pub changed_topics: Mutex<Vec<TopicId>>,
    /// What was last published about it.
    pub numbers: Mutex<ShardNumbers>,
}

/// Numbers of one shard after its last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ShardNumbers {
    /// Messages that may be delivered.
    pub ready: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages with consumers.
    pub leased: u64,
    /// Receivers waiting for a message.
    pub waiters: u64,
    /// Most newer messages delivered before an older one that was ready.
    pub reorder_depth_max: u64,
    /// Partitions whose breaker is not closed.
    pub breakers_open: u64,
    /// Bytes of memory that messages, groups and keys take.
    pub memory_bytes: u64,
    /// Bytes of these that idempotency keys take.
    pub key_bytes: u64,
}

/// Which shard owns a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Routing {
    /// Shards that own partitions.
    pub shards: usize,
    /// Partitions are on the move: nothing new is taken on.
    pub moving: bool,
}

impl Routing {
    /// The owner of a partition: a stable hash, so that every node and every run agrees.
    pub fn shard_of(self, part: PartKey) -> usize {
        let mut mixed =
            (u64::from(part.topic.home()) << 16 | u64::from(part.partition)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % self.shards.max(1) as u64) as usize
    }
}

impl Engine {
    pub fn new(
        options: MailboxOptions,
        live: Snapshot<LiveOptions>,
        shards: Vec<ShardHandle>,
        kernel: KernelHandle,
        events: Events,
        ops: Gate,
        move_orders: QueueSender<OrderedMove>,
    ) -> Engine {
        let ready_shards = live.get().value.ready_shards.clamp(1, SHARDS_MAX);
        Engine {
            secret: Secret::new(options.secret),
            options,
            live,
            topics: Topics::default(),
            shards,
            routing: Snapshot::new(Routing { shards: ready_shards, moving: false }),
            numbers: Sequence::new(1),
            origins: Origins::default(),
            kernel,
            counts: Counts::default(),
            send_rates: TenantRates::new("messages", TENANTS_MAX),
            holders: LeaseHolders::default(),
            receivers: SubjectShares::new(RECEIVERS, RECEIVERS_MAX),
            key_shares: KeyShares::default(),
            events,
            ops,
            move_orders,
            scrubber: Scrubber::default(),
            deadlines: watch::Sender::new([Millis::MAX; SHARDS_MAX]),
            opened: OnceLock::new(),
            opening: Notify::new(),
        }
    }

    /// The log and the clock, or a refusal while they are not there yet.
    pub fn opened(&self) -> Result<&Opened, Error> {
        self.opened.get().ok_or_else(|| Error::new(Kind::Degraded, "the mailbox is still reading its log"))
    }

    /// Resolves once the log has been recovered.
    pub async fn until_opened(&self) -> &Opened {
        loop {
            let opening = self.opening.notified();
            if let Some(opened) = self.opened.get() {
                return opened;
            }
            opening.await;
        }
    }

    /// Says that the log has been recovered; only the first time counts.
    pub fn set_opened(&self, opened: Opened) {
        let _ = self.opened.set(opened);
        self.opening.notify_waiters();
    }

    /// The shard that owns a partition now.
    pub fn route(&self, part: PartKey) -> Result<usize, Error> {
        self.routing().map(|routing| routing.shard_of(part))
    }

    /// The shards that own partitions now; a refusal while partitions move.
    pub fn routing(&self) -> Result<Routing, Error> {
        let routing = self.routing.get().value;
        if routing.moving {
            return Err(Error::busy("the mailbox, whose partitions are being moved,"));
        }
        Ok(routing)
    }

    /// Gives a message that was moved to another partition to the shard that owns it.
    pub fn hand_over(&self, lsn: Lsn, handover: Handover) {
        self.tell_of_death(&handover);
        self.pass_on(lsn, handover);
    }

    /// Puts a moved message where the owner of its partition takes it in on its next turn.
    pub fn pass_on(&self, lsn: Lsn, handover: Handover) {
        let handle = &self.shards[self.routing.get().value.shard_of(handover.to)];
        lock(&handle.shared.handovers).push((lsn, handover));
        // A full queue already holds a wake-up.
        let _ = handle.wakes.offer(Wake);
    }

    fn tell_of_death(&self, handover: &Handover) {
        let Some(dead) = handover.dead() else { return };
        let Some(topic) = self.topics.by_id(dead.source.topic) else { return };
        self.counts.died(topic.name.as_str(), dead.reason);
        let msg_id = self.secret.message_id(handover.sent_ms(), handover.seq);
        self.events.publish(Event::Died { topic: topic.name.clone(), msg_id, reason: dead.reason });
    }

    /// Tells the scanner when this shard next has something due.
    pub fn publish_deadline(&self, shard: usize, deadline: Option<Millis>) {
        let deadline = deadline.unwrap_or(Millis::MAX);
        self.deadlines.send_if_modified(|deadlines| {
            let nearest = deadlines.iter().copied().min().unwrap_or(Millis::MAX);
            deadlines[shard] = deadline;
            // The scanner is only woken for something earlier than what it sleeps for.
            deadline < nearest
        });
    }

    /// Resolves once the node drains.
    pub async fn draining(&self) {
        let mut stopping = self.kernel.watch_stopping();
        // A closed watch means that the kernel is gone.
        let _ = stopping.wait_for(|stopping| stopping.draining).await;
    }

    /// Counts messages against the rate of their sender, or says when it may send them. The node's own limit (0 sets
    /// none) holds for everybody but the operator, whose load is his own affair. A capability's limit of 0 means none:
    /// there is no time at which a message may be sent, so that is a refusal and not a wait.
    pub fn admit(&self, by: &Subject, messages: u32) -> Result<(), Error> {
        if by.limit(SENDS_PER_SECOND) == Some(0) {
            return Err(Error::new(Kind::Forbidden, format!("{} may send 0 messages in a second: none", by.name)));
        }
        let of_node = u64::from(self.live.get().value.tenant_sends_per_second);
        let of_node = (of_node > 0 && !by.is_operator).then_some(of_node);
        match by.limit(SENDS_PER_SECOND).into_iter().chain(of_node).min() {
            Some(per_second) => self.send_rates.take(&by.name, per_second, messages),
            None => Ok(()),
        }
    }

    /// Makes a topic, of the share of a subject if one is named; false if it exists with just these settings. Also the
    /// number of the record that makes it safe.
    pub fn make_topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
        by: Option<&Arc<str>>,
    ) -> Result<(Lsn, Arc<Topic>, bool), Error> {
        // The log is held from the look to the change, here and below: two who make the same topic make one, and the
        // log tells of changes in the order in which they were made. It is in the log before it is in the table, so
        // that no message's record comes before its topic's.
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        let Some(planned) = self.topics.plan_new(name, settings, by)? else {
            return Ok((appender.lsn(), self.topics.expect(name)?, false));
        };
        let now = opened.clock.now();
        let stored = planned.stored(now, now);
        self.append_topic(&mut appender, Class::Data, planned.id, &planned.name, &stored)?;
        let topic = self.topics.put(planned.id, planned.name, stored);
        self.events.publish(Event::TopicMade { topic: topic.name.clone() });
        Ok((appender.lsn(), topic, true))
    }

    /// Changes a topic's settings from what they are; also the number of the record that says so.
    pub fn edit_topic(
        &self,
        name: &TopicName,
        change: impl FnOnce(&mut TopicSettings) -> Result<(), Error>,
    ) -> Result<(Lsn, Arc<Topic>), Error> {
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        let topic = self.topics.expect(name)?;
        let mut settings = (*topic.settings).clone();
        change(&mut settings)?;
        let planned = self.topics.plan_change(name, settings)?;
        if planned.settings == *topic.settings {
            return Ok((appender.lsn(), topic));
        }
        // A pause was data; its end must be possible in a full log, or nobody could consume. One for each pause.
        let resumed = TopicSettings { paused: false, ..(*topic.settings).clone() };
        let only_resumes = topic.settings.paused && planned.settings == resumed;
        let class = if only_resumes { Class::Settle } else { Class::Data };
        let stored = planned.stored(topic.created_ms, opened.clock.now());
        self.append_topic(&mut appender, class, planned.id, &planned.name, &stored)?;
        let topic = self.topics.put(planned.id, planned.name, stored);
        self.tell_owners(&topic);
        Ok((appender.lsn(), topic))
    }

    /// Leaves word of a change of a topic with the shards that own its partitions: they follow it on their next turn,
    /// whoever asked for it. To be done while the log is held, so that no turn comes between the record and the word.
    fn tell_owners(&self, topic: &Topic) {
        for index in self.owners_of(topic) {
            let handle = &self.shards[index];
            let mut changed = lock(&handle.shared.changed_topics);
            changed.push(topic.id);
            // Of the others it has been told; a full queue already holds a wake-up.
            if changed.len() == 1 {
                let _ = handle.wakes.offer(Wake);
            }
        }
    }

    /// The shards that own partitions of a topic or of its own dead letters.
    pub fn owners_of(&self, topic: &Topic) -> BTreeSet<usize> {
        let routing = self.routing.get().value;
        let letters = topic.dead_letters().into_iter().flat_map(|letters| letters.parts());
        topic.parts().chain(letters).map(|part| routing.shard_of(part)).collect()
    }

    /// Begins or changes a move out of a topic; also the number of the record that says so.
    pub fn change_moves(
        &self,
        name: &TopicName,
        change: impl FnOnce(&Topic, Millis, &[MoveTask]) -> Result<MoveTask, Error>,
    ) -> Result<(Lsn, MoveView), Error> {
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        let (topic, now_ms) = (self.topics.expect(name)?, opened.clock.now());
        let tasks = self.topics.moves.of(topic.id);
        let task = change(&topic, now_ms, &tasks)?;
        // An order is data, and so is all that may be said of it again and again; it ends once.
        let ends = task.state.has_ended() || task.state == MoveState::Canceling;
        let is_over = tasks.iter().any(|known| known.id == task.id && known.state == task.state);
        let class = if ends && !is_over { Class::Settle } else { Class::Data };
        append(&mut appender, class, &Record::Moves { id: topic.id, now_ms, tasks: &Moves::text(&task)? })?;
        self.topics.moves.put(topic.id, task.clone());
        Ok((appender.lsn(), MoveView { from: topic.name.clone(), task }))
    }

    /// Takes a topic out of the table, and with it all that it holds; also the number of the record that says so.
    ///
    /// Topics that send their dead there are let go of by `detach`, or it is a conflict that there are some.
    pub fn remove_topic(
        &self,
        name: &TopicName,
        detach: Option<&(dyn Fn(&mut TopicSettings) + Sync)>,
    ) -> Result<(Lsn, Arc<Topic>), Error> {
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        let topic = self.topics.expect(name)?;
        let users = self.topics.dependents_of(topic.id);
        if let (None, Some(user)) = (detach, users.first()) {
            let detail = format!("topic {user} sends its dead letters here; name another for it first");
            return Err(Error::new(Kind::Conflict, detail));
        }
        let gone = Record::TopicGone { id: topic.id };
        append(&mut appender, gone.class(), &gone)?;
        self.topics.remove(topic.id);
        self.tell_owners(&topic);
        self.events.publish(Event::TopicGone { topic: topic.name.clone() });
        // Behind the end of the topic, so that nobody is detached from one that stays.
        if let Some(detach) = detach {
            let now = opened.clock.now();
            users.iter().for_each(|user| self.detach_source(&mut appender, user, detach, now));
        }
        Ok((appender.lsn(), topic))
    }

    /// Lets go of a topic that sends its dead to one that has just gone.
    fn detach_source(
        &self,
        appender: &mut Appender<'_>,
        name: &TopicName,
        detach: &dyn Fn(&mut TopicSettings),
        now: Millis,
    ) {
        let Some(source) = self.topics.get(name) else { return };
        let written = self.topics.plan_edit(name, detach).and_then(|(planned, created_ms)| {
            let stored = planned.stored(created_ms, now);
            self.append_topic(appender, Class::Settle, planned.id, &planned.name, &stored)?;
            Ok(stored)
        });
        // One that cannot be changed keeps the name of a topic that is gone, which does nothing either. Its shards must
        // hear of that all the same: they would let messages die towards the number of that topic, and lose them.
        let stored = written.unwrap_or_else(|_| StoredTopic::from(&*source));
        self.tell_owners(&self.topics.put(source.id, source.name.clone(), stored));
    }

    /// Writes a topic's record again if the segment that is about to go holds the newest one.
    pub fn write_topic_again(&self, id: TopicId, segment: u32) -> Result<(), Error> {
        let mut appender = self.opened()?.log.appender();
        let Some(topic) = self.topics.by_id(id).filter(|_| self.topics.newest.topic_goes_with(id, segment)) else {
            return Ok(());
        };
        self.append_topic(&mut appender, Class::Copy, topic.id, &topic.name, &StoredTopic::from(&*topic))
    }

    /// Writes again what is being moved out of a topic, if the segment that is about to go may hold the newest record
    /// of it. All its moves, because each message that was moved counts for the one that is open when it is read back.
    pub fn write_moves_again(&self, id: TopicId, segment: u32) -> Result<(), Error> {
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        if !self.topics.newest.moves_go_with(id, segment) {
            return Ok(());
        }
        let now_ms = opened.clock.now();
        let mut copies = Vec::new();
        // A record for each: a list of all would outgrow the head of a record.
        for task in self.topics.moves.of(id) {
            let record = Record::Moves { id, now_ms, tasks: &Moves::text(&task)? };
            copies.push(append(&mut appender, Class::Copy, &record)?);
        }
        self.topics.newest.note_moves(id, &copies);
        Ok(())
    }

    fn append_topic(
        &self,
        appender: &mut Appender<'_>,
        class: Class,
        id: TopicId,
        name: &TopicName,
        stored: &StoredTopic,
    ) -> Result<(), Error> {
        let position = append(appender, class, &Record::Topic { id, name: name.as_str(), settings: &stored.text()? })?;
        self.topics.newest.note_topic(id, position);
        Ok(())
    }

    /// Bytes of records without a body that are still needed: topics, moves, and keys that must be remembered.
    pub fn kept_bytes(&self) -> u64 {
        let shards = self.shards.iter();
        let keys = shards.map(|handle| lock(&handle.shared.slot).shard.as_ref().map_or(0, Shard::keys)).sum::<u64>();
        self.topics.newest.bytes() + keys * REMEMBER_BYTES
    }

    /// Writes down which numbers are taken and what time it is, because records that told it are about to go.
    pub fn write_mark(&self) -> Result<(), Error> {
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        let shards = self.routing.get().value.shards as u32;
        let (now_ms, hold) = (opened.clock.now(), opened.hold());
        if hold != Hold::NONE {
            let held = Record::Held { now_ms, hold };
            append(&mut appender, held.class(), &held)?;
        }
        let numbers = Record::TopicNumbers { taken: self.topics.numbers_taken() };
        append(&mut appender, numbers.class(), &numbers)?;
        let mark = Record::Mark { now_ms, shards, seq: self.numbers.next(), boot: clock::boot_time() };
        append(&mut appender, mark.class(), &mark).map(drop)
    }

    /// Writes down what the clock holds back from now on; the number of the record that says so.
    pub fn write_hold(&self, hold: Hold) -> Result<Lsn, Error> {
        let opened = self.opened()?;
        let mut appender = opened.log.appender();
        let held = Record::Held { now_ms: opened.clock.now(), hold };
        append(&mut appender, held.class(), &held)?;
        *lock(&opened.hold) = hold;
        Ok(appender.lsn())
    }

    /// Waits until a record is safe.
    pub async fn durable(&self, lsn: Lsn, deadline: Deadline) -> Result<(), Error> {
        let log = &self.opened()?.log;
        if log.durability() == ron_log::Durability::Ram {
            log.flush().map_err(log_error)?;
        }
        deadline.run("log_commit", log.watch().reached(lsn)).await?.map(drop).map_err(log_error)
    }

    /// Counts messages whose bytes are not what was sent.
    pub fn integrity_failed(&self, reason: &'static str, messages: u64) {
        self.counts.integrity_failed(reason, messages);
    }

    /// Bytes of memory that messages, groups and keys of the whole node take.
    pub fn memory_bytes(&self) -> u64 {
        self.shards.iter().map(|handle| lock(&handle.shared.numbers).memory_bytes).sum()
    }

    /// Refuses new messages where those there are take all the memory they may; gives the bytes that are free. Looked
    /// at before a message is prepared, so a crowd of senders may pass together: the limit is passed by no more than
    /// what the queues hold.
    pub fn admit_memory(&self) -> Result<u64, Error> {
        let (used, max) = (self.memory_bytes(), self.live.get().value.memory_bytes_max);
        if used < max {
            return Ok(max - used);
        }
        let detail = format!(
            "the memory for messages is used up ({used} of {max} bytes, `mailbox.memory_bytes_max`); acknowledge some \
             to make room"
        );
        Err(Error::new(Kind::Busy, detail))
    }

    /// Leases that a receiver may be given now; Busy with what helps if there are none for it.
    pub fn lease_room(&self, terms: &ReceiveTerms) -> Result<usize, Error> {
        holders::room(terms.holder.as_deref(), self.leased(), self.live.get().value.global_inflight as u64)
    }

    /// Leases the node may give, if it has given all of them.
    pub fn leases_spent(&self) -> Option<u64> {
        let max = self.live.get().value.global_inflight as u64;
        (self.leased() >= max).then_some(max)
    }

    /// Share of the memory for messages that is used, above 1 where it is passed.
    pub fn memory_share(&self) -> f32 {
        self.memory_bytes() as f32 / self.live.get().value.memory_bytes_max.max(1) as f32
    }

    /// Leases of the whole node.
    pub fn leased(&self) -> u64 {
        self.shards.iter().map(|handle| lock(&handle.shared.numbers).leased).sum()
    }
}

/// Locks what stays consistent even if somebody panicked while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a failure of the log means to a caller.
pub(crate) fn log_error(error: LogError) -> Error {
    match error {
        LogError::Full { shortage: Shortage::Quota } => {
            Error::new(Kind::Busy, "the disk quota of the mailbox is used up; acknowledge messages to make room")
        }
        LogError::Full { shortage: Shortage::Device } => Error::new(
            Kind::Busy,
            "the device of the mailbox's log is full; free space on it, or acknowledge messages to make room",
        ),
        LogError::Busy => Error::busy("the log, because the disk is behind,"),
        LogError::TooLarge { len, len_max } => {
            Error::new(Kind::FrameTooLarge, format!("a record of {len} bytes is over {len_max}"))
        }
        LogError::Corrupt { .. } => Error::new(Kind::Integrity, "the message's bytes are damaged on the disk"),
        other => Error::new(Kind::Degraded, other.to_string()),
    }
}

/// Writes a record that belongs to no shard.
pub(crate) fn append(appender: &mut Appender<'_>, class: Class, record: &Record<'_>) -> Result<Position, Error> {
    let mut head = Vec::new();
    record.encode(&mut head);
    appender.append(class, &head, &[]).map_err(log_error)
}
