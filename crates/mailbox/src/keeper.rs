//! The keeper of the log: recovers it, owns its writer thread, makes room in it, and ends the process when it fails.

mod reclaim;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ron_kernel::{Deadline, TaskContext, TaskError, TaskResult};
use ron_log::{Log, LogError, Position, Shortage};
use ron_types::Error;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::engine::{Engine, Opened, lock, log_error};
use crate::events::Event;
use crate::job::{Job, ShardCall, Turn};
use crate::record::Record;
use crate::recovery;
use crate::scrub::scrub;
use crate::shard::{Journal, LostMessage, Shard};
use crate::specs::SERVICE;
use crate::types::{Millis, PartKey, Seq, TopicId};
use crate::wall::watch_clock;
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
        engine.numbers.skip_past(recovered.seq_max);
        for (handle, shard) in engine.shards.iter().zip(recovered.shards) {
            lock(&handle.shared.slot).install(shard, recovered.opened.log.durable());
        }
        engine.set_opened(recovered.opened);
        Ok(())
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| TaskError::Failed("the recovery ended early".to_owned()))?
}

/// What goes on beside the writer; none of it ends by itself.
async fn background(engine: &Engine, opened: &Opened) {
    let log = &opened.log;
    futures_util::join!(
        upkeep(engine, opened),
        watch_room(engine, log),
        scrub(engine, log),
        watch_clock(engine, opened)
    );
}

/// Makes room: the oldest segment goes once nothing in it is needed; what still is gets copied forward first.
async fn upkeep(engine: &Engine, opened: &Opened) {
    let mut reclaimer = Reclaimer::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        opened.log.set_kept_bytes(engine.kept_bytes());
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

    /// Whether it is one of these messages.
    pub fn is_among(&self, mut seqs: impl Iterator<Item = Seq>) -> bool {
        seqs.any(|seq| seq == self.seq)
    }
}

/// What a segment holds that may still be needed.
#[derive(Default)]
pub(crate) struct Contents {
    pub messages: Vec<CopyCandidate>,
    pub topics: BTreeSet<TopicId>,
    /// Topics of which it tells what is being moved out of them.
    pub moves: BTreeSet<TopicId>,
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, LogError> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::canceled("work on the log was given up"))?.map_err(log_error)
}

/// What compaction must ask the shards about before a segment may go.
pub(crate) fn contents_of(log: &Log, segment: u32) -> Result<Contents, LogError> {
    let mut contents = Contents::default();
    let mut strange = 0_u64;
    log.records_of(segment, &mut |replayed| match Record::decode(replayed.head) {
        Ok(Record::Topic { id, .. }) => drop(contents.topics.insert(id)),
        Ok(Record::Moves { id, .. }) => drop(contents.moves.insert(id)),
        Ok(record) => {
            if let Some((part, seq)) = record.keeps() {
                contents.messages.push(CopyCandidate { part, seq, position: replayed.position });
            }
        }
        Err(_) => strange += 1,
    })?;
    match strange {
        0 => Ok(contents),
        // It may speak of anything, so everything in its segment may be needed.
        strange => Err(LogError::UnknownVersion { what: format!("segment {segment} ({strange} of its records)") }),
    }
}

/// Has each message's shard write it again, if it is still there and needed; a message that was moved is found where it
/// is now. Gives the bytes copied.
async fn copy_forward(engine: &Engine, log: &Log, batch: &[CopyCandidate]) -> Result<u64, Error> {
    let mut copied = 0;
    loop {
        let routing = engine.routing.get().version;
        for index in 0..engine.shards.len() {
            let asked = batch.to_vec();
            let held =
                on_shard(engine, index, move |turn| sort_out(turn.shard, turn.journal, turn.now, &asked)).await?;
            if held.is_empty() {
                continue;
            }
            let reader = log.clone();
            let (whole, damaged) = blocking(move || bodies_of(&reader, held)).await?;
            copied += whole.iter().map(|(candidate, _)| u64::from(candidate.position.len)).sum::<u64>();
            let lost = on_shard(engine, index, move |turn| {
                write_again(turn.shard, turn.journal, turn.now, &whole)?;
                lose(turn.shard, turn.journal, &damaged)
            });
            lost.await?.iter().for_each(|lost| engine.tell_of_loss(lost));
        }
        // Shards are asked one after the other, and a message or a partition may have passed from one that was yet to
        // be asked to one that had been.
        if engine.routing.get().version == routing && is_clear(engine, batch)? {
            return Ok(copied);
        }
    }
}

/// Nobody holds any of these, asked of all shards at once.
fn is_clear(engine: &Engine, asked: &[CopyCandidate]) -> Result<bool, Error> {
    let held: Result<Vec<_>, _> = engine.shards.iter().map(|handle| handle.shared.slot.lock()).collect();
    let held = held.map_err(|_| Error::canceled("a shard is being rebuilt"))?;
    let is_held = |candidate: &CopyCandidate| {
        held.iter().any(|slot| slot.shard.as_ref().is_some_and(|shard| candidate.is_in(shard)))
    };
    let is_on_its_way = |candidate: &CopyCandidate| {
        let mut shards = engine.shards.iter();
        shards.any(|handle| candidate.is_among(lock(&handle.shared.handovers).iter().map(|(_, handover)| handover.seq)))
    };
    Ok(!asked.iter().any(|candidate| is_held(candidate) || is_on_its_way(candidate)))
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

/// Bodies read back, and the messages whose bodies are damaged.
pub(crate) fn bodies_of(log: &Log, held: Vec<CopyCandidate>) -> Result<(Bodies, Vec<CopyCandidate>), LogError> {
    let (mut whole, mut damaged) = (Vec::new(), Vec::new());
    for candidate in held {
        match log.read(candidate.position) {
            Ok(record) => whole.push((candidate, record.body)),
            Err(LogError::Corrupt { .. }) => damaged.push(candidate),
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

async fn on_shard<R: Send + 'static>(
    engine: &Engine,
    index: usize,
    work: impl FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    let deadline = Deadline::after(UPKEEP_WAIT);
    let (work, answer) = ShardCall::new(0, work);
    engine.ask(index, Job::Do(work))?;
    deadline.run("upkeep", answer).await?.map_err(|_| Error::canceled("the shard's worker ended"))?
}
