//! From the log back to the state that wrote it: at the start, and for a shard whose worker broke in mid-change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ron_kernel::clock::BootTime;
use ron_kernel::{TaskError, clock};
use ron_log::{Disk, Log, LogError, LogOptions, Lsn, Position, RamDisk, RealDisk, Replayed};
use ron_types::Error;
use ron_types::limits::mailbox as limits;

use crate::clock::{BootMark, Hold, JUMP_MAX, Steady};
use crate::engine::{Engine, Opened, Routing, lock};
use crate::options::{LogLocation, MailboxOptions};
use crate::origins::Origins;
use crate::record::Record;
use crate::shard::{Handover, Shard};
use crate::slot::UnfinishedTurn;
use crate::topics::{SettingsSeen, StoredTopic, Topics};
use crate::types::{Millis, PartKey, Seq, TopicId, TopicName, TopicSettings};

/// What a log says, gathered record by record: the same for a start, a rebuild and a simulation.
pub(crate) struct Replay<'a> {
    topics: &'a Topics,
    routing: Routing,
    shards: Vec<Shard>,
    settings_seen: Vec<SettingsSeen>,
    /// Topics that each shard was told of last, since any topic changed: most records are of those.
    told: Vec<[Option<TopicId>; 2]>,
    /// Messages between two partitions; kept for its room.
    in_transit: Vec<Handover>,
    /// Time at which the replay began.
    start_ms: Millis,
    now: Millis,
    /// Records of later times were written by a clock that was ahead and has been set right since.
    believed_max_ms: Millis,
    /// Newest time that a record tells and that is believed.
    newest_ms: Millis,
    /// What was last said to be held back.
    hold: Hold,
    /// Newest mark that says what the machine's own clock showed.
    boot_mark: Option<BootMark>,
    seq_max: Seq,
    /// Highest number of a topic that any record names.
    topic_max: TopicId,
    /// Records that could be read but not understood: written by a newer version.
    strange: u64,
    /// The table of topics is already newer than the log's records of it.
    topics_are_known: bool,
    /// Topics that were removed.
    gone: BTreeSet<TopicId>,
    /// Where messages were sent to.
    origins: Origins,
    /// A shard whose turn was left in the middle.
    unfinished: Option<(usize, UnfinishedTurn)>,
    /// What that turn moved, in the order of its records, with the number of each.
    moved: Vec<(Lsn, Handover)>,
}

impl<'a> Replay<'a> {
    pub fn new(topics: &'a Topics, routing: Routing, topics_are_known: bool, now: Millis) -> Self {
        let shards: Vec<Shard> = (0..limits::SHARDS_MAX).map(|_| Shard::new(limits::HOT_BYTES_MAX)).collect();
        Replay {
            topics,
            routing,
            settings_seen: shards.iter().map(|_| SettingsSeen::new()).collect(),
            told: vec![[None; 2]; shards.len()],
            in_transit: Vec::new(),
            shards,
            start_ms: now,
            now,
            believed_max_ms: Steady::believed_max(now),
            newest_ms: 0,
            hold: Hold::NONE,
            boot_mark: None,
            seq_max: 0,
            topic_max: TopicId(0),
            strange: 0,
            topics_are_known,
            gone: BTreeSet::new(),
            origins: Origins::default(),
            unfinished: None,
            moved: Vec::new(),
        }
    }

    /// Notes what a turn moved that was left in the middle: since it began, no other turn of its shard wrote anything.
    pub fn note_moves_of(mut self, shard: usize, turn: Option<UnfinishedTurn>) -> Self {
        self.unfinished = turn.map(|turn| (shard, turn));
        self
    }

    /// Messages that the turn moved and that other shards were not given.
    fn take_left_behind(&mut self) -> Vec<(Lsn, Handover)> {
        let Some((index, turn)) = self.unfinished else { return Vec::new() };
        let left = self.moved.drain(..).skip(turn.handed_over);
        left.filter(|(_, handover)| self.routing.shard_of(handover.to) != index).collect()
    }

    /// Takes in one record.
    pub fn take(&mut self, replayed: &Replayed<'_>, released: &mut Vec<Position>) {
        let Ok(record) = Record::decode(replayed.head) else {
            self.strange += 1;
            return;
        };
        let is_believed = record.time().is_none_or(|time| self.see_time(time));
        self.seq_max = self.seq_max.max(record.seq_max());
        self.origins.note_replayed(&record);
        self.topic_max = self.topic_max.max(record.topic_max());
        match &record {
            Record::Topic { id, name, settings } => self.put_topic(*id, name, settings, replayed.position),
            Record::TopicGone { id } => self.drop_topic(*id, released),
            Record::Moves { id, tasks, .. } => self.put_moves(*id, tasks),
            Record::Held { hold, .. } if is_believed => self.hold = *hold,
            Record::Mark { now_ms, boot: Some(boot), .. } => {
                self.boot_mark = Some(BootMark { now_ms: *now_ms, boot: *boot });
            }
            Record::Move { from, reason: None, error, .. } if !self.topics_are_known => {
                self.topics.moves.count_replayed(from.topic, error);
            }
            _ => {}
        }
        if let Some(part) = record.part() {
            self.replay(part, &record, replayed, released);
        }
    }

    /// Takes the time of the next record; whether it is believed. Time does not go on from what a clock wrote that was
    /// hours ahead: everything would be dated ahead until the wall clock has caught up. What was granted by that clock
    /// lasts as long as it was granted for, from now on.
    fn see_time(&mut self, time: Millis) -> bool {
        if time > self.believed_max_ms {
            return false;
        }
        // Only a clock that was set back goes back by so much. From there on the records tell what time it is and how
        // long the node was away; what is older tells it no more.
        let is_set_back = time.saturating_add(JUMP_MAX.as_millis() as u64) < self.newest_ms;
        self.newest_ms = if is_set_back { time } else { self.newest_ms.max(time) };
        self.now = self.start_ms.max(self.newest_ms);
        true
    }

    fn replay(&mut self, part: PartKey, record: &Record<'_>, replayed: &Replayed<'_>, released: &mut Vec<Position>) {
        let index = self.tell(part);
        let shard = &mut self.shards[index];
        shard.replay(self.now, record, replayed.position, replayed.body_len);
        shard.take_released(released);
        let mut in_transit = std::mem::take(&mut self.in_transit);
        shard.move_outbox(&mut in_transit);
        for handover in in_transit.drain(..) {
            if self.unfinished.is_some_and(|(of, turn)| of == index && replayed.lsn > turn.began) {
                self.moved.push((replayed.lsn, handover.clone()));
            }
            let owner = self.tell(handover.to);
            self.shards[owner].adopt(self.now, handover);
        }
        self.in_transit = in_transit;
    }

    /// Makes sure that the owner of a partition knows its settings; says who that is.
    fn tell(&mut self, part: PartKey) -> usize {
        let index = self.routing.shard_of(part);
        let told = &mut self.told[index];
        if !told.contains(&Some(part.topic))
            && let Some(topic) = self.topics.by_id(part.topic)
        {
            self.topics.tell_if_new(&mut self.shards[index], &mut self.settings_seen[index], &topic);
            *told = [Some(part.topic), told[0]];
        }
        index
    }

    fn put_topic(&mut self, id: TopicId, name: &str, settings: &str, position: Position) {
        if self.topics_are_known {
            return;
        }
        self.told.fill([None; 2]);
        match (name.parse(), serde_json::from_str::<StoredTopic>(settings)) {
            (Ok(name), Ok(stored)) => {
                self.topics.put(id, name, stored);
                self.topics.newest.note_topic(id, position);
            }
            _ => self.strange += 1,
        }
    }

    fn put_moves(&mut self, id: TopicId, tasks: &str) {
        if !self.topics_are_known && self.topics.moves.put_text(id, tasks).is_err() {
            self.strange += 1;
        }
    }

    fn drop_topic(&mut self, id: TopicId, released: &mut Vec<Position>) {
        if !self.topics_are_known {
            self.topics.remove(id);
        }
        self.gone.insert(id);
        self.told.fill([None; 2]);
        for (shard, seen) in self.shards.iter_mut().zip(&mut self.settings_seen) {
            for gone in id.with_dead_letters() {
                seen.remove(&gone);
            }
            shard.replay_gone(id);
            shard.take_released(released);
        }
    }

    /// What can be said only after the last record: compaction writes topics again behind their messages, so a shard
    /// may have heard of the rules of a partition, or of its dead letters, too early or not at all.
    fn finish(&mut self, released: &mut Vec<Position>) {
        self.topics.skip_numbers(self.topic_max);
        if !self.topics_are_known {
            self.topics.link_by_name();
        }
        self.told.fill([None; 2]);
        let held: BTreeSet<PartKey> = self.shards.iter().flat_map(Shard::parts).collect();
        for part in held {
            let home = TopicId(part.topic.home());
            if self.topics.by_id(home).is_none() && self.holds_messages(part) {
                self.find_home(home, released);
            }
            let index = self.routing.shard_of(part);
            self.settings_seen[index].remove(&part.topic);
            self.told[index] = [None; 2];
            self.tell(part);
        }
        if !self.topics_are_known {
            self.topics.forget_moves_of_gone();
        }
    }

    fn holds_messages(&self, part: PartKey) -> bool {
        self.shards[self.routing.shard_of(part)].stats(part).held() > 0
    }

    /// Messages without a topic: sent while it was being removed, or else the record of it is damaged, and one damaged
    /// record must not hide all the messages of a topic.
    fn find_home(&mut self, home: TopicId, released: &mut Vec<Position>) {
        if self.topics_are_known || self.gone.contains(&home) {
            return self.drop_topic(home, released);
        }
        let Ok(name) = format!("recovered.{}", home.0).parse::<TopicName>() else { return };
        tracing::error!(topic = %name, "messages without a topic were found; they are kept in a topic of this name");
        let settings = TopicSettings {
            max_attempts: 0,
            retention_ms: limits::RETENTION_MAX.as_millis() as u64,
            partitions: limits::PARTITIONS_MAX,
            ..TopicSettings::default()
        };
        self.topics.put(home, name, StoredTopic::new(settings, self.now));
    }
}

/// What a start found.
pub(crate) struct Recovered {
    pub opened: Opened,
    pub shards: Vec<Shard>,
    pub seq_max: Seq,
    pub origins: Origins,
}

impl Recovered {
    /// Gives it to the engine, whose shards can be asked from then on.
    pub fn install(self, engine: &Engine) {
        engine.numbers.skip_past(self.seq_max);
        engine.origins.install(self.origins);
        for (handle, mut shard) in engine.shards.iter().zip(self.shards) {
            shard.follow_clock(self.opened.clock.read());
            lock(&handle.shared.slot).install(shard, self.opened.log.durable());
        }
        engine.set_opened(self.opened);
    }
}

/// Opens the log and builds every shard from it. Blocking, and as long as the log.
pub(crate) fn open(options: &MailboxOptions, topics: &Topics, routing: Routing) -> Result<Recovered, TaskError> {
    let disk: Arc<dyn Disk> = match &options.location {
        LogLocation::Memory => Arc::new(RamDisk::new()),
        LogLocation::Directory(path) => {
            let disk = RealDisk::open(path).map_err(|error| cannot_open(&options.location, &error))?;
            Arc::new(disk)
        }
    };
    let recovered = open_on(disk, options, topics, routing, (clock::unix_millis(), clock::boot_time()));
    let mut recovered = recovered.map_err(|error| cannot_open(&options.location, &error))?;
    // Reading took its time; a clock that stayed behind by it would end the next run's delays early.
    recovered.opened.clock = Steady::start(clock::unix_millis(), recovered.opened.clock.now());
    Ok(recovered)
}

/// As [`open`], on a given disk and at a given time of the wall clock and of the machine's own.
pub(crate) fn open_on(
    disk: Arc<dyn Disk>,
    options: &MailboxOptions,
    topics: &Topics,
    routing: Routing,
    (wall_ms, boot): (Millis, Option<BootTime>),
) -> Result<Recovered, LogError> {
    topics.reset();
    let mut replay = Replay::new(topics, routing, false, wall_ms);
    let mut released = Vec::new();
    let (log, recovery) = Log::open(disk, log_options(options), &mut |replayed, live| {
        replay.take(&replayed, &mut released);
        released.drain(..).for_each(|position| live.release(position));
    })?;
    replay.finish(&mut released);
    released.drain(..).for_each(|position| log.release(position));
    if replay.strange > 0 {
        // Their checksums are whole: another version wrote them. Serving without them would be guessing.
        return Err(LogError::UnknownVersion { what: format!("{} of the log's records", replay.strange) });
    }
    let measured_ms = replay.boot_mark.map_or(0, |mark| mark.measured_since(replay.newest_ms, boot));
    let hold = Hold::at_start(wall_ms, replay.newest_ms, measured_ms, replay.hold);
    if hold != Hold::NONE {
        // Before any other record: those to come are from after the jump, so that the next start could not know of it.
        let held = Record::Held { now_ms: wall_ms.max(replay.now), hold };
        let mut head = Vec::new();
        held.encode(&mut head);
        if let Err(error) = log.appender().append(held.class(), &head, &[]) {
            // No reason not to start: it holds in this run, and is written again with the next record of the time.
            tracing::warn!(%error, "what the clock holds back could not be written down");
        }
        replay.shards.iter_mut().for_each(|shard| shard.hold_back(hold));
    }
    let opened = Opened { log, clock: Steady::start(wall_ms, replay.now), hold: Mutex::new(hold), recovery };
    Ok(Recovered { opened, shards: replay.shards, seq_max: replay.seq_max, origins: replay.origins })
}

/// Segments the quota has room for at least; longer ones than that are not made.
const SEGMENTS_MIN: u64 = 8;
/// Segments the reserve has room for at least: one that is being copied, and two of acknowledgements and deaths while
/// it is, because the last one is given back only when its copies are durable.
const RESERVE_SEGMENTS_MIN: u64 = 3;
/// Part of the quota that is the reserve, where that is more; and the bound of it in bytes.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES_MAX: u64 = 1 << 30;

const _: () = assert!(RESERVE_SEGMENTS_MIN * 2 <= SEGMENTS_MIN, "the reserve never takes more than half of the quota");
const _: () = assert!(limits::DISK_BYTES_MAX as u64 / SEGMENTS_MIN >= limits::SEGMENT_BYTES as u64);
const _: () = assert!(RESERVE_SEGMENTS_MIN * limits::SEGMENT_BYTES as u64 <= RESERVE_BYTES_MAX);

fn log_options(options: &MailboxOptions) -> LogOptions {
    let in_memory = options.location == LogLocation::Memory;
    let quota_bytes = options.disk_bytes_max;
    let segment_bytes = u64::from(options.segment_bytes).min(quota_bytes / SEGMENTS_MIN);
    let reserve_bytes = (quota_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX).max(RESERVE_SEGMENTS_MIN * segment_bytes);
    LogOptions {
        segment_bytes: segment_bytes as u32,
        quota_bytes,
        reserve_bytes,
        zero_ahead: !in_memory,
        sidecars: !in_memory,
        ..LogOptions::default()
    }
}

fn cannot_open(place: &LogLocation, error: &impl std::fmt::Display) -> TaskError {
    TaskError::Init { code: 70, detail: format!("the mailbox's log in {place} cannot be opened: {error}") }
}

/// Builds one shard anew from the log, because its worker broke in the middle of a change.
pub(crate) async fn rebuild(engine: Arc<Engine>, index: usize) -> Result<(), Error> {
    tracing::warn!(shard = index, "the shard's worker broke in mid-change: its state is read from the log again");
    let work = move || -> Result<(), LogError> {
        let opened = engine.opened().map_err(|_| LogError::Closed)?;
        let handle = &engine.shards[index];
        // Nobody writes for this shard now, so what is in the log is all there is.
        let mut known = opened.log.appender().lsn();
        let unfinished = lock(&handle.shared.slot).pending.unfinished;
        let clock = opened.clock.read();
        let replay = Replay::new(&engine.topics, engine.routing.get().value, true, clock.now_ms);
        let mut replay = replay.note_moves_of(index, unfinished);
        let mut ignored = Vec::new();
        opened.log.replay(&mut |replayed| {
            // What others have handed over meanwhile is taken in as well, and must not be a second time.
            known = known.max(replayed.lsn);
            replay.take(&replayed, &mut ignored);
            ignored.clear();
        })?;
        replay.finish(&mut ignored);
        let left_behind = replay.take_left_behind();
        let before = lock(&handle.shared.slot).shard.take();
        let arrived = lock(&handle.shared.handovers).extract_if(.., |(lsn, _)| *lsn <= known).collect::<Vec<_>>();
        let arrived = arrived.into_iter().map(|(_, handover)| (handover.to, handover.seq, handover.position()));
        // What the broken shard kept in the log and no shard needs: it was going, or its topic has gone meanwhile.
        let held = before.iter().flat_map(Shard::positions).chain(arrived);
        let is_needed = |(part, seq, position)| replay.shards.iter().any(|shard| shard.holds(part, seq, position));
        let unneeded: Vec<Position> = held.filter(|held| !is_needed(*held)).map(|(.., position)| position).collect();
        opened.log.release_all(unneeded.into_iter());
        // Moves come from other shards, so all were built; one is kept.
        let mut shard = replay.shards.into_iter().nth(index).ok_or(LogError::Closed)?;
        // Read as of the time the replay began at; its first turn follows a clock that was set meanwhile.
        shard.follow_clock(clock);
        shard.hold_back(opened.hold());
        lock(&handle.shared.slot).install(shard, known);
        // While the slot is poisoned nobody asks all shards for what they hold, and these are with none of them.
        left_behind.into_iter().for_each(|(lsn, handover)| engine.hand_over(lsn, handover));
        handle.shared.slot.clear_poison();
        Ok(())
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::new(ron_types::Kind::Degraded, "the rebuild ended early"))?
        .map_err(crate::engine::log_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_holds_its_segments_and_leaves_half_of_the_quota() {
        for quota_bytes in [16 << 20, 100 << 20, 1 << 30, 64 << 30, 1 << 50] {
            for segment_bytes in [2 << 20, 16 << 20, 1 << 30] {
                let options =
                    MailboxOptions { disk_bytes_max: quota_bytes, segment_bytes, ..MailboxOptions::default() };
                let log = log_options(&options);
                let segment = u64::from(log.segment_bytes);
                assert!(segment * SEGMENTS_MIN <= quota_bytes && log.segment_bytes <= segment_bytes);
                assert!(log.reserve_bytes >= RESERVE_SEGMENTS_MIN * segment, "{log:?}");
                assert!(log.reserve_bytes * 2 <= quota_bytes, "{log:?}");
            }
        }
    }
}
