//! The two halves of sessions: the task that reads all of them, and the task that writes all of them.

use std::sync::Arc;
use std::time::Duration;

use oap::{AppId, Frame};
use ron_gossip::wire;
use ron_kernel::queue::QueueReceiver;
use ron_kernel::retry;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_transport::{Closed, Heard, Reader};
use ron_types::limits::overlay::PEERS_MAX;

use crate::engine::Batch;
use crate::peers::Link;
use crate::shared::{ReadHalf, Shared, WriteHalf};

/// Wait before a batch that an engine had no room for is offered again.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(2));
/// Time after which such a batch is given up: what is missing is then repaired like any loss.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// The task: runs the reading half of every session.
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
            let closed = tokio::select! {
                closed = read(reader, &link, &shared) => closed,
                () = context.stopping() => Closed::Done,
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
    loop {
        if let Err(closed) = reader.next_batch(&mut heard).await {
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
                    let (node_id, code) = (link.node_id, farewell.code);
                    tracing::debug!(%node_id, code, reason = farewell.reason, "a peer leaves");
                    return Closed::Done;
                }
            }
        }
        for (engine, frames) in batches.into_iter().enumerate().filter(|(_, frames)| !frames.is_empty()) {
            shared.counts.received(frames.len());
            hand_over(shared, engine, Batch { link: Arc::clone(link), frames }).await;
        }
    }
}

/// Offers a batch until there is room: meanwhile nothing is read, so that the peer is slowed down and nobody else.
async fn hand_over(shared: &Shared, engine: usize, mut batch: Batch) {
    let by = Deadline::after(RETRY_TIME);
    loop {
        match shared.engines.offer(engine, batch) {
            Ok(()) => return,
            Err(refused) if by.has_passed() => {
                shared.counts.lost(refused.frames.len());
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
