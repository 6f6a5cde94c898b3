//! The task that knows the other nodes: the bootstrap list, the overlay's announcements, and the file of known nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
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
    let remembered = remembered(&shared).await;
    dial_remembered(&shared, &remembered);
    if remembered.is_empty() && shared.live.get().value.bootstrap.is_empty() {
        // Nobody was named: as far as this node can know, it is the network.
        shared.members.joined();
    }
    let mut heard = listen(&shared);
    let mut is_heard = true;
    let mut announce = tokio::time::interval(limits::ANNOUNCE_INTERVAL);
    let mut save = tokio::time::interval(limits::PEERS_SAVED_EVERY);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut quota = Quota::default();
    let mut settings = shared.live.watch();
    let mut tries = 0_u32;
    let mut redial_at = ron_kernel::clock::now();
    let (mut look_wait, mut look_at) = (LOOK_AGAIN_AFTER, redial_at + LOOK_AGAIN_AFTER);
    loop {
        tokio::select! {
            () = context.stopping() => break,
            () = context.heartbeat() => {}
            () = tokio::time::sleep_until(redial_at) => {
                let is_alone = shared.members.met_count() == 0;
                tries = if is_alone { (tries + 1).min(WAITS_MAX) } else { 0 };
                context.beating(dial_bootstrap(&shared)).await;
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
            // What an earlier life knew may be in a network that this node is in after all.
            () = shared.networks_changed.notified() => dial_remembered(&shared, &remembered),
            () = shared.own_record_changed.notified() => tell(&shared),
            _ = announce.tick() => {
                renew_own_record(&shared);
                if !is_heard {
                    (heard, is_heard) = (listen(&shared), true);
                }
            }
            _ = second.tick() => quota = Quota::default(),
            announcement = heard.next(), if quota.checked < ANNOUNCEMENTS_PER_SECOND => match announcement {
                Some(announcement) => hear(&shared, &announcement, &mut quota),
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

/// Announcements that were looked at in this second.
#[derive(Default)]
struct Quota {
    checked: u32,
    newcomers: u32,
}

/// Nodes that an earlier life knew.
async fn remembered(shared: &Shared) -> Vec<(PeerId, Vec<Multiaddr>)> {
    let Some(path) = shared.options.peers_file.clone() else { return Vec::new() };
    let reading = tokio::task::spawn_blocking(move || peers_file::read(&path).map_err(|error| (path, error)));
    match reading.await {
        Ok(Ok(known)) => known,
        Ok(Err((path, error))) => {
            tracing::warn!(path = %path.display(), %error, "the file of known nodes cannot be read");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// Dials the first nodes of an earlier life that are not known yet.
fn dial_remembered(shared: &Shared, remembered: &[(PeerId, Vec<Multiaddr>)]) {
    let now_ms = shared.now_ms();
    let mut dials = 0;
    for (peer, addrs) in remembered.iter().filter(|(peer, _)| !shared.members.is_known(peer)) {
        let is_taken = shared.members.suggest(*peer, addrs, Source::Remembered, now_ms);
        if is_taken && dials < DIALS_MAX {
            dials += 1;
            let _ = shared.orders.offer(Order::Dial { peer: *peer, addrs: shared.members.addrs_of(peer), done: None });
        }
    }
}

/// Dials the nodes of the bootstrap list that are not known and connected.
async fn dial_bootstrap(shared: &Shared) {
    let list = shared.live.get().value.bootstrap.clone();
    let of_others = list.into_iter().filter(|address| PeerId::from(address.node_id) != shared.own);
    let listed: Vec<PeerAddress> = of_others.collect();
    shared.members.list(listed.iter().map(|address| PeerId::from(address.node_id)));
    let is_missing = |address: &PeerAddress| {
        let peer = PeerId::from(address.node_id);
        !(shared.members.is_connected(&peer) && shared.members.is_met(&peer))
    };
    let missing: Vec<PeerAddress> = listed.into_iter().filter(is_missing).collect();
    let mut found = resolve_each(&missing, RESOLVE_TIME, tokio::net::lookup_host);
    while let Some((address, resolved)) = found.next().await {
        let peer = PeerId::from(address.node_id);
        let addrs = resolved.unwrap_or_else(|error| {
            tracing::warn!(peer = %address, %error, "a node of the bootstrap list has no address");
            Vec::new()
        });
        shared.members.suggest(peer, &addrs, Source::Bootstrap, shared.now_ms());
        let _ = shared.orders.offer(Order::Name { peer, addrs });
    }
}

/// Addresses of nodes of the bootstrap list, each as soon as it is found, and each within this time: a name whose
/// resolver hangs holds up no other. The port of a node is for both transports, as it listens.
fn resolve_each<L, F, A>(
    nodes: &[PeerAddress],
    time: Duration,
    lookup: L,
) -> impl futures_util::Stream<Item = (&PeerAddress, Result<Vec<Multiaddr>, String>)>
where
    L: Fn(String) -> F,
    F: Future<Output = io::Result<A>>,
    A: Iterator<Item = SocketAddr>,
{
    let resolving = nodes.iter().map(|address| {
        let looking = lookup(address.host_and_port());
        async move {
            let found = match Deadline::after(time).run("dns", looking).await {
                Ok(Ok(found)) => Ok(found.flat_map(both_transports).take(limits::ADDRESSES_PER_PEER_MAX).collect()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            (address, found)
        }
    });
    resolving.collect::<FuturesUnordered<_>>()
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
fn hear(shared: &Shared, announcement: &Announcement, quota: &mut Quota) {
    if announcement.content.len() > ANNOUNCEMENT_BYTES_MAX {
        shared.counts.refused.oversized.inc();
        return;
    }
    let Ok(Record::Peer(record)) = Record::decode(&announcement.content) else {
        shared.counts.refused.garbage.inc();
        return;
    };
    let now_ms = shared.now_ms();
    // Every node speaks for itself, and nobody has a reason to announce another. A member of the overlay can forge its
    // origin as well; what that leads to is bounded by how many nodes are known that nobody has met.
    if record.peer != announcement.origin {
        shared.counts.refused.forged.inc();
        return;
    }
    if record.peer == shared.own {
        return;
    }
    if !shared.members.is_known(&record.peer) {
        if quota.newcomers >= limits::NEWCOMERS_PER_SECOND {
            // It says so again within a minute; until then not everybody is known.
            shared.members.unheard(now_ms);
            shared.counts.peers_refused.inc();
            return;
        }
        quota.newcomers += 1;
    }
    // A copy of what is known is not verified again.
    if shared.members.record_of(&record.peer, now_ms).is_some_and(|known| known == record) {
        return;
    }
    quota.checked += 1;
    if let Err(error) = Record::Peer(record.clone()).verify(now_ms) {
        crate::handle::note_refused(shared, &error);
        return;
    }
    let peer = record.peer;
    match shared.members.announced(record, now_ms) {
        Entry::Refused | Entry::Forgotten => drop(shared.counts.peers_refused.inc()),
        entry => {
            let addrs = shared.members.addrs_of(&peer);
            if shared.members.is_met(&peer) {
                let _ = shared.orders.offer(Order::Enter { peer, addrs });
            } else if shared.members.is_to_be_met(&peer, now_ms) {
                let _ = shared.orders.offer(Order::Dial { peer, addrs, done: None });
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_whose_resolver_hangs_holds_up_no_other() {
        let id = "0123456789abcdef".repeat(4);
        let nodes: Vec<PeerAddress> = ["hangs.example:1", "fails.example:2", "192.0.2.3:3", "found.example:4"]
            .iter()
            .map(|host| format!("{id}@{host}").parse().expect("an address"))
            .collect();
        let lookup = |host: String| async move {
            match host.split('.').next() {
                Some("hangs") => std::future::pending().await,
                Some("fails") => Err(io::Error::from(io::ErrorKind::NotFound)),
                _ => Ok((1..=20).map(|last| SocketAddr::from(([192, 0, 2, last], 4001)))),
            }
        };
        let started = ron_kernel::clock::now();
        let mut found: Vec<(u16, bool, Duration)> = Vec::new();
        let mut resolving = std::pin::pin!(resolve_each(&nodes, RESOLVE_TIME, lookup));
        while let Some((address, addrs)) = resolving.next().await {
            let is_bounded = addrs.as_ref().is_ok_and(|addrs| addrs.len() == limits::ADDRESSES_PER_PEER_MAX);
            found.push((address.port, is_bounded, started.elapsed()));
        }
        found.sort();
        let expected = [(1, false, RESOLVE_TIME), (2, false, Duration::ZERO)];
        let at_once = [(3, true, Duration::ZERO), (4, true, Duration::ZERO)];
        assert_eq!(found, [expected, at_once].concat());
    }
}
