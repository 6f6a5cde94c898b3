//! The task that knows the other nodes: the bootstrap list, the overlay's announcements, and the file of known nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use ron_kernel::retry::RetryLimits;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_store::{Multiaddr, PeerId, Record};
use ron_transport::PeerAddress;
use ron_types::limits::dht as limits;
use tokio::sync::oneshot;

use crate::convert::both_transports;
use crate::members::Entry;
use crate::peers_file;
use crate::ports::Announcement;
use crate::shared::{Order, Shared};
use crate::swarm::renew_own_record;
use crate::words::{DhtEvent, Source};

/// First wait before the bootstrap list is dialled again while nobody is known is drawn from this window; it doubles.
const REDIAL_JITTER: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(500));
/// First wait before the neighbourhood is looked up once more; it doubles. Nodes that join at the same moment miss each
/// other in their first walks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest wait before the bootstrap list is dialled again.
const REDIAL_CAP: Duration = Duration::from_secs(30);
/// Exponent beyond which the wait between dials is at its cap anyway.
const WAITS_MAX: u32 = 16;
/// Remembered nodes that are dialled at the start.
const DIALS_MAX: usize = 32;
/// Time in which the name of a host must have been found.
const RESOLVE_TIME: Duration = Duration::from_secs(3);
/// Longest announcement that is looked at.
const ANNOUNCEMENT_BYTES_MAX: usize = 2048;
/// Announcements that are checked in a second: each costs a signature, and each node announces once a minute.
const ANNOUNCEMENTS_PER_SECOND: u32 = 256;

/// The task.
pub(crate) async fn membership(context: TaskContext, shared: Arc<Shared>) -> TaskResult {
    context.ready().await;
    let remembered = remember(&shared).await;
    if remembered == 0 && shared.live.get().value.bootstrap.is_empty() {
        // Nobody was named: as far as this node can know, it is the network.
        shared.members.joined();
    }
    let mut heard = listen(&shared);
    let mut is_heard = true;
    let mut announce = tokio::time::interval(limits::ANNOUNCE_INTERVAL);
    let mut save = tokio::time::interval(limits::PEERS_SAVED_EVERY);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut checked = 0;
    let mut settings = shared.live.watch();
    let mut tries = 0_u32;
    let mut redial_at = ron_kernel::clock::now();
    let (mut look_wait, mut look_at) = (LOOK_AGAIN_AFTER, redial_at + LOOK_AGAIN_AFTER);
    loop {
        tokio::select! {
            () = context.stopping() => break,
            () = context.heartbeat() => {}
            () = tokio::time::sleep_until(redial_at) => {
                let is_alone = shared.members.len() == 0;
                tries = if is_alone { (tries + 1).min(WAITS_MAX) } else { 0 };
                if is_alone {
                    context.beating(dial_bootstrap(&shared)).await;
                }
                redial_at = ron_kernel::clock::now() + wait(tries);
            }
            () = tokio::time::sleep_until(look_at), if look_wait < shared.live.get().value.refresh_interval => {
                let (done, _) = oneshot::channel();
                let _ = shared.orders.offer(Order::Walk { done });
                look_wait *= 2;
                look_at = ron_kernel::clock::now() + look_wait;
            }
            () = shared.rejoin.notified() => context.beating(dial_bootstrap(&shared)).await,
            _ = settings.changed() => context.beating(dial_bootstrap(&shared)).await,
            () = shared.own_record_changed.notified() => tell(&shared),
            _ = announce.tick() => {
                renew_own_record(&shared);
                if !is_heard {
                    (heard, is_heard) = (listen(&shared), true);
                }
            }
            _ = second.tick() => checked = 0,
            announcement = heard.next(), if checked < ANNOUNCEMENTS_PER_SECOND => match announcement {
                Some(announcement) => {
                    checked += 1;
                    hear(&shared, &announcement);
                }
                // The overlay ended; it is asked again, and until it is back nothing is known to be complete.
                None => {
                    shared.members.hears(None);
                    (heard, is_heard) = (stream::pending().boxed(), false);
                }
            },
            _ = save.tick() => context.beating(save_peers(&shared)).await,
        }
    }
    save_peers(&shared).await;
    Ok(())
}

fn wait(tries: u32) -> Duration {
    if tries == 0 {
        return REDIAL_CAP;
    }
    RetryLimits { first_wait: REDIAL_JITTER, cap: REDIAL_CAP, tries_max: u32::MAX }.wait(tries)
}

/// Dials nodes that an earlier life knew; gives their number.
async fn remember(shared: &Arc<Shared>) -> usize {
    let Some(path) = shared.options.peers_file.clone() else { return 0 };
    let reading = tokio::task::spawn_blocking(move || peers_file::read(&path).map_err(|error| (path, error)));
    let known = match reading.await {
        Ok(Ok(known)) => known,
        Ok(Err((path, error))) => {
            tracing::warn!(path = %path.display(), %error, "the file of known nodes cannot be read");
            return 0;
        }
        Err(_) => return 0,
    };
    let now_ms = shared.now_ms();
    let count = known.len();
    for (number, (peer, addrs)) in known.into_iter().enumerate() {
        let is_taken = shared.members.suggest(peer, &addrs, Source::Remembered, now_ms);
        if is_taken && number < DIALS_MAX {
            let _ = shared.orders.offer(Order::Dial { peer, addrs, done: None });
        }
    }
    count
}

/// Dials the nodes of the bootstrap list that are not connected.
async fn dial_bootstrap(shared: &Shared) {
    let list = shared.live.get().value.bootstrap.clone();
    let by = Deadline::after(RESOLVE_TIME);
    for address in list {
        let peer = PeerId::from(address.node_id);
        if peer == shared.own || shared.members.is_connected(&peer) {
            continue;
        }
        let addrs = resolve(&address, by).await;
        shared.members.suggest(peer, &addrs, Source::Bootstrap, shared.now_ms());
        let _ = shared.orders.offer(Order::Dial { peer, addrs, done: None });
    }
}

/// Addresses of a node of the bootstrap list. Its port is for both transports, as a node listens.
async fn resolve(address: &PeerAddress, by: Deadline) -> Vec<Multiaddr> {
    let host_and_port = address.host_and_port();
    match by.run("dns", tokio::net::lookup_host(&host_and_port)).await {
        Ok(Ok(found)) => found.flat_map(both_transports).take(limits::ADDRESSES_PER_PEER_MAX).collect(),
        Ok(Err(error)) => {
            tracing::warn!(peer = %address, %error, "a node of the bootstrap list has no address");
            Vec::new()
        }
        Err(error) => {
            tracing::warn!(peer = %address, %error, "a node of the bootstrap list has no address");
            Vec::new()
        }
    }
}

fn listen(shared: &Shared) -> BoxStream<'static, Announcement> {
    let Some(gossip) = &shared.options.gossip else { return stream::pending().boxed() };
    shared.members.hears(Some(shared.now_ms()));
    gossip.announcements()
}

/// Tells the overlay where this node is reached.
fn tell(shared: &Shared) {
    if let (Some(gossip), Some(record)) = (&shared.options.gossip, shared.own_record.load_full()) {
        gossip.announce(Record::Peer(record.as_ref().clone()).encode().into());
    }
}

/// A node announced itself, or somebody says so: the signature tells.
fn hear(shared: &Shared, announcement: &Announcement) {
    if announcement.content.len() > ANNOUNCEMENT_BYTES_MAX {
        shared.counts.refused.oversized.inc();
        return;
    }
    let Ok(Record::Peer(record)) = Record::decode(&announcement.content) else {
        shared.counts.refused.garbage.inc();
        return;
    };
    // Every node speaks for itself, and nobody has a reason to announce another. A member of the overlay can forge its
    // origin as well; what that leads to is bounded by how many nodes are known that nobody has met.
    if record.peer != announcement.origin {
        shared.counts.refused.forged.inc();
        return;
    }
    let now_ms = shared.now_ms();
    if record.peer == shared.own {
        return;
    }
    // A copy of what is known is not verified again.
    if shared.members.record_of(&record.peer, now_ms).is_some_and(|known| known == record) {
        return;
    }
    if let Err(error) = Record::Peer(record.clone()).verify(now_ms) {
        crate::handle::note_refused(shared, &error);
        return;
    }
    let peer = record.peer;
    match shared.members.announced(record, now_ms) {
        Entry::Refused | Entry::Forgotten => drop(shared.counts.peers_refused.inc()),
        entry => {
            let _ = shared.orders.offer(Order::Enter { peer, addrs: shared.members.addrs_of(&peer) });
            if entry == Entry::New {
                shared.events.publish(DhtEvent::Joined(peer));
            }
        }
    }
}

/// Writes the known nodes down, if they changed.
async fn save_peers(shared: &Shared) {
    let Some(path) = shared.options.peers_file.clone() else { return };
    let Some(peers) = shared.members.to_save() else { return };
    let writing = tokio::task::spawn_blocking(move || peers_file::write(&path, &peers).map_err(|error| (path, error)));
    if let Ok(Err((path, error))) = writing.await {
        shared.members.save_again();
        tracing::warn!(path = %path.display(), %error, "the file of known nodes cannot be written");
    }
}
