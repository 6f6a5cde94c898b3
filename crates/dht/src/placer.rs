//! The task that gives records to the nodes nearest to their keys: many records in one offer, few offers at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ron_kernel::queue::QueueReceiver;
use ron_kernel::retry::RetryLimits;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_store::wire::{Answer, AskError, Request};
use ron_store::{Key, PeerId, Record};
use ron_types::limits::dht as limits;
use tokio::sync::Semaphore;

use crate::shared::{Shared, ToPlace};
use crate::{handle, walk};

/// Records that are taken from the queue at once: the more, the fewer offers.
const BATCH_MAX: usize = 512;
/// Time in which a node must have taken an offer.
const OFFER_TIME: Duration = Duration::from_secs(3);
/// Time to find the nearest nodes of a key where not all are known.
const WALK_TIME: Duration = Duration::from_secs(3);
/// Offers that wait for their turn; beyond this the task waits for them.
const OFFERS_WAITING_MAX: usize = 4096;

/// The task.
pub(crate) async fn placer(context: TaskContext, shared: Arc<Shared>, mut keep: QueueReceiver<ToPlace>) -> TaskResult {
    let mut offers = Children::new("dht_offer", OFFERS_WAITING_MAX, context.kernel().metrics());
    let at_once = Arc::new(Semaphore::new(limits::OFFERS_AT_ONCE_MAX));
    context.ready().await;
    loop {
        let first = tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => continue,
            first = keep.recv() => first,
        };
        let Some(first) = first else { break };
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Some(next) = keep.try_recv()
        {
            batch.push(next);
        }
        let by_peer = context.beating(by_peer(&shared, batch)).await;
        for (peer, records) in by_peer {
            for request in Request::to_keep(records) {
                let (shared, at_once) = (Arc::clone(&shared), Arc::clone(&at_once));
                let waits = context.beating(Arc::clone(&at_once).acquire_owned()).await;
                let Ok(permit) = waits else { return Ok(()) };
                offers.spawn(async move {
                    offer(&shared, peer, request).await;
                    drop(permit);
                });
            }
        }
    }
    offers.finish(context.stop_deadline()).await;
    Ok(())
}

/// The records of each node that shall have some.
async fn by_peer(shared: &Arc<Shared>, batch: Vec<ToPlace>) -> BTreeMap<PeerId, Vec<Record>> {
    let mut by_peer: BTreeMap<PeerId, Vec<Record>> = BTreeMap::new();
    let mut walked: Option<(Key, Vec<PeerId>)> = None;
    for ToPlace { record, at } in batch {
        let key = record.key();
        let peers = match (at, &walked) {
            (Some(peers), _) => peers,
            (None, Some((last, peers))) if *last == key => peers.clone(),
            (None, _) => {
                let by = Deadline::after(WALK_TIME);
                let peers = walk::nearest(shared, &key, shared.replication(), by).await;
                walked = Some((key, peers.clone()));
                peers
            }
        };
        for peer in peers {
            by_peer.entry(peer).or_default().push(record.clone());
        }
    }
    by_peer
}

/// Offers records to a node, again if it was busy or away for a moment: keeping a record twice is keeping it.
async fn offer(shared: &Arc<Shared>, peer: PeerId, request: Request) {
    let Request::Keep { records } = &request else { return };
    let offered = records.len() as u64;
    let waits = RetryLimits::default();
    let mut tries = 1;
    let kept = loop {
        match handle::send(shared, peer, request.clone(), OFFER_TIME).await {
            Ok(Answer::Kept { kept, .. }) => break u64::from(kept).min(offered),
            Ok(Answer::Refused(AskError::Busy)) | Err(_) if tries < waits.tries_max => {
                tokio::time::sleep(waits.wait(tries)).await;
                tries += 1;
            }
            Ok(_) | Err(_) => break 0,
        }
    };
    shared.counts.placed.inc_by(kept);
    shared.counts.not_placed.inc_by(offered - kept);
}
