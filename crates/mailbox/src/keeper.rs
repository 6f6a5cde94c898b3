//! The keeper of the log: recovers it, owns its writer thread, makes room in it, and ends the process when it fails.

mod memory;
mod reclaim;

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashSet;
use ron_kernel::{Deadline, TaskContext, TaskError, TaskResult};
use ron_log::{Log, LogError, Position, Shortage};
use ron_types::Error;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::engine::{Engine, Opened, REMEMBER_BYTES, lock, log_error};
use crate::events::Event;
use crate::job::{Job, ShardCall, Turn};
use crate::record::Record;
use crate::recovery;
use crate::scrub::scrub;
use crate::shard::{Journal, LostMessage, Shard};
use crate::slot::ShardSlot;
use crate::specs::SERVICE;
use crate::types::{Millis, PartKey, Seq};
use crate::wall::watch_clock;
use memory::watch_memory;
use reclaim::Reclaimer;

/// How often it looks whether a segment can go.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a shard may take over a job of upkeep.
const UPKEEP_WAIT: Duration = Duration::from_secs(30);
/// What the process says when it leaves because of its disk.
const FAILED_DISK: u8 = 70;

/// One life of the keeper.
pub(crate) async fn log_keeper(context: TaskContext, engine: Arc<Engine>) -> TaskResult {
    if engine.opened().is_err() {
        context.beating(recover(Arc::clone(&engine))).await?;
    }
    let opened = engine.opened()?;
    let writer = opened.log.start_writer().map_err(|error| TaskError::Failed(format!("log writer: {error}")))?;
    opened.log.let_callers_commit(has_another_thread());
    context.ready().await;
    let stopped = tokio::select! {
        biased;
        () = context.stopping() => None,
        error = opened.log.failure() => Some(error),
        _ = context.beating(background(&engine, opened)) => None,
    };
    if let Some(error) = stopped {
        engine.events.publish(Event::LogFailed { detail: error.to_string() });
        let place = &engine.options.location;
        tracing::error!(%error, %place, "the log has failed: nothing more is acknowledged, the node leaves");
        return Err(TaskError::Fatal { code: FAILED_DISK, detail: error.to_string() });
    }
    // Joining the writer waits for the disk; a thread may do that, the runtime may not.
    let sealed = tokio::task::spawn_blocking(move || writer.stop());
    match context.stop_deadline().run("log_seal", sealed).await {
        Ok(Ok(Ok(_))) => Ok(()),
        Ok(Ok(Err(error))) => Err(TaskError::Fatal { code: FAILED_DISK, detail: error.to_string() }),
        Ok(Err(_)) | Err(_) => Err(TaskError::Failed("the log was not sealed in time".to_owned())),
    }
}

/// A caller that waits for the disk takes a thread of the runtime with it: others must have one meanwhile.
fn has_another_thread() -> bool {
    let runtime = Handle::current();
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
}

async fn recover(engine: Arc<Engine>) -> TaskResult {
    let work = move || -> TaskResult {
        let routing = engine.routing.get().value;
        let recovered = recovery::open(&engine.options, &engine.topics, routing)?;
        let found = &recovered.opened.recovery;
        if found.has_losses() {
            let place = &engine.options.location;
            tracing::error!(?found, %place, "records or files of the log are lost or damaged; the rest is served");
            engine.integrity_failed("recovery", found.quarantined_records);
            engine.events.publish(Event::LogDamaged {
                records: found.quarantined_records,
                segments_missing: found.segments_missing,
                segments_cut: found.segments_cut,
            });
        }
        tracing::info!(
            records = found.records,
            segments = found.segments,
            torn_bytes = found.torn_bytes,
            topics = engine.topics.len(),
            "the mailbox's log is read"
        );
        recovered.install(&engine);
        Ok(())
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| TaskError::Failed("the recovery ended early".to_owned()))?
}

/// What goes on beside the writer; none of it ends by itself.
async fn background(engine: &Arc<Engine>, opened: &Opened) {
    let log = &opened.log;
    futures_util::join!(
        upkeep(engine, opened),
        watch_room(engine, log),
        watch_memory(engine),
        scrub(engine, log),
        watch_clock(engine, opened)
    );
}

/// Makes room: the oldest segment goes once nothing in it is needed; what still is gets copied forward first.
async fn upkeep(engine: &Arc<Engine>, opened: &Opened) {
    let mut reclaimer = Reclaimer::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        reclaimer.look(engine, &opened.log).await;
    }
}

/// Says whether there is room; apart from making room, because that takes long when there is none.
async fn watch_room(engine: &Engine, log: &Log) {
    // A former life of the keeper may have said something else.
    let mut told = None;
    loop {
        log.look_for_room();
        let shortage = log.usage().shortage;
        if told != Some(shortage) && tell_of_shortage(engine, shortage).await.is_ok() {
            match shortage {
                Some(Shortage::Quota) => tracing::warn!("the quota of the log is used up: sends are refused"),
                Some(Shortage::Device) => tracing::warn!("the device of the log is full: sends are refused"),
                None if told.is_some() => tracing::info!("the log has room again"),
                None => {}
            }
            told = Some(shortage);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Tells the supervisor, which takes back the readiness for writes and names the cause. One that does not listen is
/// told at the next look.
async fn tell_of_shortage(engine: &Engine, shortage: Option<Shortage>) -> Result<(), Error> {
    for (cause, of) in [("log_quota", Shortage::Quota), ("log_device", Shortage::Device)] {
        engine.kernel.pressure(SERVICE, cause, shortage == Some(of)).await?;
    }
    Ok(())
}

/// A record that may have to be copied forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyCandidate {
    part: PartKey,
    seq: Seq,
    position: Position,
}

impl CopyCandidate {
    /// The messages of a shard that are in a segment, told by the shard: a record that is damaged in a segment without
    /// a sidecar is not found by reading the segment.
    pub fn of_shard(shard: &Shard, segment: u32) -> Vec<CopyCandidate> {
        let here = shard.messages_in(segment).into_iter();
        here.map(|(part, seq, position)| CopyCandidate { part, seq, position }).collect()
    }

    /// Whether the shard holds the message at this very place.
    pub fn is_in(&self, shard: &Shard) -> bool {
        shard.holds(self.part, self.seq, self.position)
    }

    /// Whether the shard has something to write again before the record may go: the message, or its key.
    pub fn concerns(&self, shard: &Shard, now: Millis) -> bool {
        self.is_in(shard) || shard.remembers(now, self.part, self.seq)
    }

    /// Whether it is one of these messages.
    #[cfg(test)]
    pub fn is_among(&self, mut seqs: impl Iterator<Item = Seq>) -> bool {
        seqs.any(|seq| seq == self.seq)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::canceled("work on the log was given up"))?
}

/// Records of a segment that may have to be written again. With no key remembered anywhere (of `keys`), a segment in
/// which no body is needed is not even read.
pub(crate) fn candidates_of(log: &Log, segment: u32, keys: u64) -> Result<Vec<CopyCandidate>, LogError> {
    let is_dead = log.is_dead(segment);
    let (mut candidates, mut strange) = (Vec::new(), 0_u64);
    if is_dead && keys == 0 {
        return Ok(candidates);
    }
    log.records_of(segment, &mut |replayed| match Record::decode(replayed.head) {
        Ok(record) => {
            if let Some((part, seq)) = record.keeps().filter(|_| !is_dead || record.tells_key()) {
                candidates.push(CopyCandidate { part, seq, position: replayed.position });
            }
        }
        Err(_) => strange += 1,
    })?;
    match strange {
        0 => Ok(candidates),
        // It may speak of anything, so everything in its segment may be needed.
        strange => Err(LogError::UnknownVersion { what: format!("segment {segment} ({strange} of its records)") }),
    }
}

/// All shards, held at once: what one gives to another is seen in exactly one of them.
struct AllShards<'a> {
    slots: Vec<MutexGuard<'a, ShardSlot>>,
    /// Messages that each of them is about to take in.
    arriving: Vec<HashSet<Seq>>,
}

impl<'a> AllShards<'a> {
    fn hold(engine: &'a Engine) -> Result<Self, Error> {
        let slots: Result<Vec<_>, _> = engine.shards.iter().map(|handle| handle.shared.slot.lock()).collect();
        let slots = slots.map_err(|_| Error::canceled("a shard is being rebuilt"))?;
        let arriving = engine.shards.iter().map(|handle| {
            let handovers = lock(&handle.shared.handovers);
            handovers.iter().map(|(_, handover)| handover.seq).collect()
        });
        Ok(AllShards { arriving: arriving.collect(), slots })
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.slots.iter().filter_map(|slot| slot.shard.as_ref())
    }

    fn keys(&self) -> u64 {
        self.shards().map(Shard::keys).sum()
    }

    /// Whether this shard holds the message, or is about to take it in.
    fn is_at(&self, index: usize, candidate: &CopyCandidate) -> bool {
        let is_held = self.slots[index].shard.as_ref().is_some_and(|shard| candidate.is_in(shard));
        is_held || self.arriving[index].contains(&candidate.seq)
    }

    fn is_anywhere(&self, candidate: &CopyCandidate) -> bool {
        (0..self.slots.len()).any(|index| self.is_at(index, candidate))
    }

    /// Whether this shard has something to write again.
    fn concerns(&self, index: usize, now: Millis, candidate: &CopyCandidate) -> bool {
        let remembers = |shard: &Shard| candidate.concerns(shard, now);
        self.is_at(index, candidate) || self.slots[index].shard.as_ref().is_some_and(remembers)
    }

    /// Messages of a segment, whoever holds them; none while one is on its way or being let go of, which is known in a
    /// moment.
    fn messages_in(&self, segment: u32) -> Option<Vec<CopyCandidate>> {
        let is_none_on_its_way = self.arriving.iter().all(HashSet::is_empty);
        let is_settled = is_none_on_its_way && !self.shards().any(Shard::has_remains);
        is_settled.then(|| self.shards().flat_map(|shard| CopyCandidate::of_shard(shard, segment)).collect())
    }
}

/// Has each message's shard write it again, if it is still there and needed; a message that was moved is found where it
/// is now. Gives the bytes copied.
async fn copy_forward(
    engine: &Engine,
    log: &Log,
    batch: &[CopyCandidate],
    unreadable: Unreadable,
) -> Result<u64, Error> {
    let mut copied = 0;
    loop {
        let routing = engine.routing.get().version;
        let concerned: Vec<usize> = {
            let (all, now) = (AllShards::hold(engine)?, engine.opened()?.clock.now());
            let is_concerned = |index: &usize| batch.iter().any(|candidate| all.concerns(*index, now, candidate));
            (0..engine.shards.len()).filter(is_concerned).collect()
        };
        for index in concerned {
            copied += copy_of_shard(engine, log, index, batch, unreadable).await?;
        }
        // Shards are asked one after the other, and a message or a partition may have passed from one that was yet to
        // be asked to one that had been.
        let all = AllShards::hold(engine)?;
        let is_clear = !batch.iter().any(|candidate| all.is_anywhere(candidate));
        if is_clear && engine.routing.get().version == routing {
            return Ok(copied);
        }
    }
}

/// What one shard holds of these is written again; the bytes of it.
async fn copy_of_shard(
    engine: &Engine,
    log: &Log,
    index: usize,
    batch: &[CopyCandidate],
    unreadable: Unreadable,
) -> Result<u64, Error> {
    let asked = batch.to_vec();
    let held = on_shard(engine, index, move |turn| sort_out(turn.shard, turn.journal, turn.now, &asked)).await?;
    let keys = (batch.len() - held.len()) as u64 * REMEMBER_BYTES;
    if held.is_empty() {
        return Ok(keys);
    }
    let reader = log.clone();
    let (whole, damaged) = blocking(move || bodies_of(&reader, held, unreadable).map_err(log_error)).await?;
    let copied = whole.iter().map(|(candidate, _)| u64::from(candidate.position.len)).sum::<u64>();
    let lost = on_shard(engine, index, move |turn| {
        write_again(turn.shard, turn.journal, turn.now, &whole)?;
        lose(turn.shard, turn.journal, &damaged)
    });
    let lost = lost.await?;
    if !lost.is_empty() {
        // Nothing is told that a crash could take back.
        let flushed = log.clone();
        blocking(move || flushed.flush().map_err(log_error)).await?;
        lost.iter().for_each(|lost| engine.tell_of_loss(lost));
    }
    Ok(keys + copied)
}

/// Which of these the shard holds; keys of the others are written again where they must be remembered.
pub(crate) fn sort_out(
    shard: &mut Shard,
    journal: &mut dyn Journal,
    now: Millis,
    asked: &[CopyCandidate],
) -> Result<Vec<CopyCandidate>, Error> {
    let (held, gone): (Vec<CopyCandidate>, Vec<CopyCandidate>) =
        asked.iter().partition(|candidate| candidate.is_in(shard));
    for candidate in gone {
        shard.relocate(now, journal, candidate.part, candidate.seq, candidate.position, &[])?;
    }
    Ok(held)
}

/// Messages with their bodies.
pub(crate) type Bodies = Vec<(CopyCandidate, Bytes)>;

/// What is done about messages whose bodies the disk does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// They are tried again: the error may go by.
    TriedAgain,
    /// They count as damaged.
    Lost,
}

/// Bodies read back, and the messages whose bodies are damaged.
pub(crate) fn bodies_of(
    log: &Log,
    held: Vec<CopyCandidate>,
    unreadable: Unreadable,
) -> Result<(Bodies, Vec<CopyCandidate>), LogError> {
    let (mut whole, mut damaged) = (Vec::new(), Vec::new());
    for candidate in held {
        match log.read(candidate.position) {
            Ok(record) => whole.push((candidate, record.body)),
            Err(LogError::Corrupt { .. }) => damaged.push(candidate),
            Err(LogError::Io { .. }) if unreadable == Unreadable::Lost => damaged.push(candidate),
            Err(error) => return Err(error),
        }
    }
    Ok((whole, damaged))
}

/// Writes messages again that the shard still holds.
pub(crate) fn write_again(
    shard: &mut Shard,
    journal: &mut dyn Journal,
    now: Millis,
    bodies: &[(CopyCandidate, Bytes)],
) -> Result<(), Error> {
    bodies.iter().try_for_each(|(candidate, body)| {
        shard.relocate(now, journal, candidate.part, candidate.seq, candidate.position, body)
    })
}

/// Drops messages that the shard still holds and that cannot be written again.
pub(crate) fn lose(
    shard: &mut Shard,
    journal: &mut dyn Journal,
    damaged: &[CopyCandidate],
) -> Result<Vec<LostMessage>, Error> {
    let mut lost = Vec::new();
    for candidate in damaged {
        lost.extend(shard.lose(journal, candidate.part, candidate.seq, candidate.position)?);
    }
    Ok(lost)
}

impl Engine {
    /// Says what was lost to damage: once for each message, because it is gone by it.
    fn tell_of_loss(&self, lost: &LostMessage) {
        let LostMessage { part, seq, sent_ms, was_told } = *lost;
        let msg_id = self.secret.message_id(sent_ms, seq);
        let topic = self.topics.by_id(part.topic).map(|topic| topic.name.clone());
        let name = topic.as_ref().map_or("", |topic| topic.as_str());
        tracing::error!(topic = name, %msg_id, "a message is damaged on the disk; it goes with its segment");
        if !was_told {
            self.integrity_failed("reclaim", 1);
        }
        if let Some(topic) = topic {
            self.events.publish(Event::Lost { topic, msg_id });
        }
    }
}

/// Does something on a turn of a shard; its result comes with the turn and is not waited for to be durable, because a
/// segment is given back only when everything written before is.
async fn on_shard<R: Send + 'static>(
    engine: &Engine,
    index: usize,
    work: impl FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let deadline = Deadline::after(UPKEEP_WAIT);
    let (done, result) = oneshot::channel();
    // Kept to the end, because work that nobody waits for is not done.
    let (work, _answer) = ShardCall::new(0, move |turn: &mut Turn<'_>| drop(done.send(work(turn))));
    engine.ask_when_free(index, Job::Do(work), deadline).await?;
    deadline.run("upkeep", result).await?.map_err(|_| Error::canceled("the shard's worker ended"))?
}
