//! The task that answers other nodes: from the records, with nearer nodes added, and only after every check.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::queue::QueueReceiver;
use ron_kernel::{Deadline, TaskContext, TaskError, TaskResult};
use ron_store::wire::{Answer, AskError, Question, Reply, Request};
use ron_store::{PeerId, Record};
use ron_types::limits::dht as limits;
use ron_types::limits::records::{CLOSER_MAX, WIRE_RECORDS_MAX};

use crate::handle::note_refused;
use crate::shared::{Answering, Asked, Shared};

/// Requests that are answered in one go where waiting is allowed: handing over costs as much as an answer.
const BATCH_MAX: usize = 32;
/// Time in which the network takes an answer, or is stuck.
const HANDOVER_TIME: Duration = Duration::from_secs(1);
/// A node keeps records for which it is among this many times the number of nodes that should: nodes disagree a
/// little about who is nearest.
const RESPONSIBILITY_SLACK: usize = 2;

/// The task.
pub(crate) async fn answerer(context: TaskContext, shared: Arc<Shared>, mut asked: QueueReceiver<Asked>) -> TaskResult {
    context.ready().await;
    loop {
        let first = tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => continue,
            first = asked.recv() => first,
        };
        let Some(first) = first else { break };
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Some(next) = asked.try_recv()
        {
            batch.push(next);
        }
        let answers = answer_all(&shared, batch).await?;
        for answering in answers {
            // If the network is stuck, whoever asked has long gone elsewhere.
            let _ = shared.answers.send(answering, Deadline::after(HANDOVER_TIME)).await;
        }
    }
    Ok(())
}

/// Reading records may wait for the disk, and checking a signature takes as long as a small question in all.
async fn answer_all(shared: &Arc<Shared>, batch: Vec<Asked>) -> Result<Vec<Answering>, TaskError> {
    let shared = Arc::clone(shared);
    let work = move || batch.into_iter().filter_map(|asked| answer(&shared, asked)).collect();
    tokio::task::spawn_blocking(work).await.map_err(|error| TaskError::Failed(format!("answering ended: {error}")))
}

fn answer(shared: &Shared, asked: Asked) -> Option<Answering> {
    let Asked { peer, request, channel, by, .. } = asked;
    if by.has_passed() || !channel.is_open() {
        shared.counts.asked.late.inc();
        return None;
    }
    let answer = match request {
        Request::Ask { question, .. } => Answer::Reply(reply(shared, &question, &peer)),
        Request::Keep { records } => keep(shared, records, &peer),
        Request::Prove { digest, draw, .. } => {
            let proof = shared.records.get().and_then(|records| records.possession(&digest, draw));
            Answer::Possession(proof.map(Box::new))
        }
    };
    Some(Answering { channel, answer })
}

fn reply(shared: &Shared, question: &Question, asker: &PeerId) -> Reply {
    let now_ms = shared.now_ms();
    let mut reply = Reply { records: held(shared, question), closer: Vec::new() };
    let mut closer = shared.members.nearest(&question.key(), CLOSER_MAX + 1);
    closer.retain(|peer| peer != asker);
    closer.truncate(CLOSER_MAX);
    if reply.records.is_empty() {
        // Whoever found nothing has to ask on, and must know where; who found something is spared the bytes.
        let known = closer.iter().filter_map(|peer| shared.members.record_of(peer, now_ms));
        reply.records.extend(known.map(Record::Peer));
    }
    reply.closer = closer;
    reply
}

/// What this node holds about a question, as it may be given to others.
pub(crate) fn held(shared: &Shared, question: &Question) -> Vec<Record> {
    let now_ms = shared.now_ms();
    if let Question::Peer(peer) = question
        && let Some(newest) = record_of(shared, peer, now_ms)
    {
        return vec![Record::Peer(newest)];
    }
    let mut records = shared.records.get().map(|records| records.answer(question, now_ms).records).unwrap_or_default();
    records.truncate(WIRE_RECORDS_MAX);
    records
}

fn record_of(shared: &Shared, peer: &PeerId, now_ms: u64) -> Option<ron_store::PeerRecord> {
    if *peer == shared.own {
        return shared.own_record.load_full().map(|record| record.as_ref().clone());
    }
    shared.members.record_of(peer, now_ms)
}

/// Keeps what verifies and belongs here.
fn keep(shared: &Shared, records: Vec<Record>, peer: &PeerId) -> Answer {
    let Some(store) = shared.records.get().filter(|_| shared.is_server()) else {
        return Answer::Refused(AskError::Refused);
    };
    let (offered, now_ms) = (records.len(), shared.now_ms());
    let nearest = shared.replication() * RESPONSIBILITY_SLACK;
    let mut has_lied = false;
    let mut valid = Vec::with_capacity(offered);
    for record in records {
        if !shared.members.is_responsible(&record.key(), nearest) {
            shared.counts.refused.far.inc();
            continue;
        }
        match record.verify(now_ms) {
            Ok(()) => valid.push(record),
            Err(error) => {
                has_lied |= note_refused(shared, &error);
                // One forgery is enough; the signatures of the others are not worth the time.
                if has_lied {
                    break;
                }
            }
        }
    }
    if has_lied {
        shared.expel(*peer);
        return Answer::Refused(AskError::Refused);
    }
    let kept = if valid.is_empty() { 0 } else { store.offer(valid) };
    Answer::Kept { kept: kept as u32, refused: offered.saturating_sub(kept) as u32 }
}

const _: () = assert!(limits::ASKED_CAPACITY >= BATCH_MAX);
