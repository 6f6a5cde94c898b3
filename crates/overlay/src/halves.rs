//! The two halves of sessions: the task that reads all of them, and the task that writes all of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use oap::{AppId, Frame, status};
use ron_gossip::wire;
use ron_kernel::queue::QueueReceiver;
use ron_kernel::retry;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, TaskContext, TaskResult, clock};
use ron_transport::{Closed, GoAway, Heard, Reader};
use ron_types::limits::overlay::PEERS_MAX;

use crate::engine::Batch;
use crate::peers::Link;
use crate::shared::{DRAIN_TIME, ReadHalf, Shared, WriteHalf};

/// Wait before a batch that an engine had no room for is offered again.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(2));
/// Time after which such a batch is given up: what is missing is then repaired like any loss.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// Codes of farewells that refuse a session. Not that of one of two sessions that crossed, nor of a node that leaves.
const REFUSALS: [u16; 5] =
    [status::UNAUTHENTICATED, status::FORBIDDEN, status::NOT_FOUND, status::TOO_LARGE, status::BUSY];

/// The task: runs the reading half of every session, to the end of the session: what is not read when a connection ends
/// makes the kernel throw away what was written to it last.
pub(crate) async fn reader(
    context: TaskContext,
    shared: Arc<Shared>,
    mut halves: QueueReceiver<ReadHalf>,
) -> TaskResult {
    let mut children = Children::new("overlay_reader", 2 * PEERS_MAX, context.kernel().metrics());
    context.ready().await;
    loop {
        let half = tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => continue,
            half = halves.recv() => half,
        };
        let Some(ReadHalf { reader, link, ended }) = half else { break };
        let (context, shared) = (context.clone(), Arc::clone(&shared));
        children.spawn(async move {
            let mut reading = pin!(read(reader, &link, &shared));
            let closed = tokio::select! {
                closed = &mut reading => closed,
                () = context.stopping() => {
                    link.outbox.close(&GoAway::normal(), Deadline::after(DRAIN_TIME));
                    Deadline::after(DRAIN_TIME).run("drain", reading).await.unwrap_or(Closed::Done)
                }
            };
            let _ = ended.send(closed);
        });
    }
    children.finish(context.stop_deadline()).await;
    Ok(())
}

/// Reads until the session ends; frames go to the engine of their lane, batch by batch.
async fn read(mut reader: Reader, link: &Arc<Link>, shared: &Shared) -> Closed {
    let mut heard = Vec::new();
    let mut leave_by = None;
    loop {
        if let Err(closed) = reader.next_batch_by(&mut heard, leave_by).await {
            shared.counts.read_ended(&closed);
            return closed;
        }
        let mut batches: Vec<Vec<Frame>> = vec![Vec::new(); shared.engines.count()];
        for one in heard.drain(..) {
            match one {
                Heard::Frame(frame) if frame.app == AppId::GOSSIP => {
                    match wire::peek_lane(&frame.payload).and_then(wire::flow_of) {
                        Ok(flow) => batches[shared.engines.of(flow)].push(frame),
                        Err(error) => shared.counts.misbehaved(link, &error),
                    }
                }
                // Between nodes only gossip is spoken; clients have sessions of their own.
                Heard::Frame(_) => shared.counts.frame_refused("app"),
                Heard::Credit { .. } => {}
                Heard::GoAway(farewell) => {
                    note_farewell(farewell, link, shared);
                    // It went ahead of what its sender has queued, and has told its publishers to be sent: that still
                    // comes. What this node says ends as well, so that both can end without cutting anything off.
                    let by = *leave_by.get_or_insert_with(|| Deadline::after(DRAIN_TIME));
                    link.outbox.close(&GoAway::normal(), by);
                }
            }
        }
        for (engine, frames) in batches.into_iter().enumerate().filter(|(_, frames)| !frames.is_empty()) {
            shared.counts.received(frames.len());
            hand_over(shared, engine, Batch { link: Arc::clone(link), frames }).await;
        }
    }
}

/// Has the operator of this node see that the other one refused it, and why.
fn note_farewell(GoAway { code, reason, .. }: GoAway, link: &Link, shared: &Shared) {
    let node_id = link.node_id;
    if !REFUSALS.contains(&code) {
        return tracing::debug!(%node_id, code, reason, "a peer leaves");
    }
    shared.counts.session_refused("refused");
    if let Some(more) = shared.refusals.note((node_id, "refused"), clock::now()) {
        tracing::warn!(%node_id, code, reason, more, "a peer refused this node");
    }
    let _ = link.refusal.set(format!("it refused this node with {code}: {reason}"));
}

/// Offers a batch until there is room: meanwhile nothing is read, so that the peer is slowed down and nobody else.
async fn hand_over(shared: &Shared, engine: usize, mut batch: Batch) {
    let by = Deadline::after(RETRY_TIME);
    loop {
        match shared.engines.offer(engine, batch) {
            Ok(()) => return,
            Err(refused) if by.has_passed() => {
                shared.counts.lost(refused.frames.len());
                shared.engines.frames_lost(engine, &refused.link);
                return;
            }
            Err(refused) => batch = refused,
        }
        tokio::time::sleep(retry::jitter(RETRY_WAIT.0, RETRY_WAIT.1)).await;
    }
}

/// The task: runs the writing half of every session, each in exactly one child.
pub(crate) async fn writer(
    context: TaskContext,
    shared: Arc<Shared>,
    mut halves: QueueReceiver<WriteHalf>,
) -> TaskResult {
    let mut children = Children::new("overlay_writer", 2 * PEERS_MAX, context.kernel().metrics());
    context.ready().await;
    loop {
        let half = tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => continue,
            half = halves.recv() => half,
        };
        let Some(WriteHalf { writer, ended }) = half else { break };
        let shared = Arc::clone(&shared);
        children.spawn(async move {
            let closed = writer.run().await;
            shared.counts.write_ended(&closed);
            let _ = ended.send(closed);
        });
    }
    // The supervisor has closed every outbox by now; what is queued goes out before the connection does.
    children.finish(context.stop_deadline()).await;
    Ok(())
}
