//! The task that gives records to the nodes nearest to their keys: many records in one offer, few walks and few offers
//! at once, and what this node publishes before what it only keeps.

mod placing;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use ron_kernel::queue::QueueReceiver;
use ron_kernel::retry::RetryLimits;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_store::PeerId;
use ron_store::wire::{Answer, AskError, Request};
use ron_types::limits::dht as limits;

use crate::placer::placing::Placing;
use crate::shared::{Shared, ToPlace};
use crate::{handle, walk};

/// Time in which a node must have taken an offer.
const OFFER_TIME: Duration = Duration::from_secs(3);
/// Time to find the nearest nodes of a key where not all are known.
const WALK_TIME: Duration = Duration::from_secs(3);

/// The task.
pub(crate) async fn placer(context: TaskContext, shared: Arc<Shared>, mut keep: QueueReceiver<ToPlace>) -> TaskResult {
    let mut offers = Children::new("dht_offer", limits::OFFERS_AT_ONCE_MAX, context.kernel().metrics());
    let walking = Arc::clone(&shared);
    let mut placing = Placing::new(move |key| {
        let shared = Arc::clone(&walking);
        async move { walk::nearest(&shared, &key, shared.replication(), Deadline::after(WALK_TIME)).await }.boxed()
    });
    context.ready().await;
    loop {
        tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => {}
            () = offers.room(), if placing.has_offer() => {
                if let Some((peer, records)) = placing.next_offer() {
                    let shared = Arc::clone(&shared);
                    offers.spawn(async move {
                        for request in Request::to_keep(records) {
                            offer(&shared, peer, request).await;
                        }
                    });
                }
            }
            () = placing.walked(), if placing.is_walking() => {}
            Some(to_place) = keep.recv(), if placing.has_room() => placing.take(to_place),
        }
    }
    offers.finish(context.stop_deadline()).await;
    Ok(())
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
