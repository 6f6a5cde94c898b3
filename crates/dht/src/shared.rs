//! What the DHT's tasks and its handle share, and what they send each other.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use libp2p::request_response::ResponseChannel;
use ron_cells::Sequence;
use ron_kernel::bus::Broadcast;
use ron_kernel::queue::{Payload, QueueSender};
use ron_kernel::{Deadline, KernelHandle, Snapshot, clock};
use ron_store::wire::{Answer, AskError, Request};
use ron_store::{Multiaddr, PeerId, PeerRecord, Record};
use ron_transport::NodeKey;
use ron_types::limits::dht as limits;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use crate::config::LiveOptions;
use crate::convert::{Reach, ip_of, reach_of};
use crate::members::Members;
use crate::metrics::Counts;
use crate::network::codec::Carried;
use crate::ports::{Gossip, Records};
use crate::words::DhtEvent;

/// What is fixed while the node runs.
pub struct DhtOptions {
    /// The node's identity: its public half is the peer id.
    pub key: NodeKey,
    /// File of the known nodes; none in amnesia mode.
    pub peers_file: Option<PathBuf>,
    /// The overlay, if the node has it.
    pub gossip: Option<Arc<dyn Gossip>>,
}

pub(crate) struct Shared {
    pub options: DhtOptions,
    pub own: PeerId,
    pub live: Snapshot<LiveOptions>,
    pub kernel: KernelHandle,
    pub members: Members,
    pub counts: Arc<Counts>,
    pub events: Broadcast<DhtEvent>,
    pub orders: QueueSender<Order>,
    pub asked: QueueSender<Asked>,
    pub answers: QueueSender<Answering>,
    pub keep: QueueSender<ToPlace>,
    /// Set once, by whoever keeps the records; until then questions are answered with nearer nodes alone.
    pub records: OnceLock<Arc<dyn Records>>,
    pub listen_addrs: ArcSwap<Vec<Multiaddr>>,
    /// What this node says of itself; none while it keeps nothing for others.
    pub own_record: ArcSwapOption<PeerRecord>,
    /// Told when `own_record` changed.
    pub own_record_changed: Notify,
    /// Told when the bootstrap list is to be dialled now.
    pub rejoin: Notify,
    /// Told when other addresses of others are dialled than before.
    pub networks_changed: Notify,
    /// Numbers of what this node says of itself.
    pub sequence: Sequence,
    pub is_server: AtomicBool,
}

/// Something the network is to do.
pub(crate) enum Order {
    /// Ask a node, or offer it records.
    Send(Sending),
    /// Connect to a node, and say when it has said what it is, or why it cannot be reached.
    Dial { peer: PeerId, addrs: Vec<Multiaddr>, done: Option<Reached> },
    /// The operator named a node: it has places that others do not have, and is connected to.
    Name { peer: PeerId, addrs: Vec<Multiaddr> },
    /// A node announced itself and is known now.
    Enter { peer: PeerId, addrs: Vec<Multiaddr> },
    /// A node is no longer known.
    Forget { peer: PeerId },
    /// A node broke the rules.
    Expel { peer: PeerId },
    /// Look the neighbourhood up, and say when that is done.
    Walk { done: oneshot::Sender<()> },
}

/// Hears what became of a dial.
pub(crate) type Reached = oneshot::Sender<Result<(), String>>;

/// A request on its way to another node.
pub(crate) struct Sending {
    pub peer: PeerId,
    pub addrs: Vec<Multiaddr>,
    pub request: Request,
    /// Gets what became of it. Dropped without a word only if the network ends.
    pub reply: oneshot::Sender<Result<Answer, AskError>>,
    /// Resolves when nobody waits for the answer any more.
    pub cancelled: oneshot::Receiver<()>,
}

/// A request of another node.
pub(crate) struct Asked {
    pub peer: PeerId,
    pub request: Request,
    pub channel: ResponseChannel<Carried>,
    /// After this nobody waits for the answer.
    pub by: Deadline,
    pub bytes: usize,
}

/// An answer for another node.
pub(crate) struct Answering {
    pub peer: PeerId,
    pub channel: ResponseChannel<Carried>,
    /// The answer as it is sent.
    pub bytes: Vec<u8>,
}

/// A record on its way to nodes near its key.
pub(crate) struct ToPlace {
    pub record: Record,
    pub rank: Rank,
    /// Nodes to give it to; none for the nearest ones.
    pub at: Option<Vec<PeerId>>,
    /// Length of the record as it is sent.
    bytes: usize,
    /// Its part of what a sweep may have on its way; none if a caller wants it placed.
    _swept: Option<OwnedSemaphorePermit>,
}

/// What is placed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// What was published at this node.
    Own,
    /// What this node keeps for others.
    Others,
}

impl ToPlace {
    pub fn new(record: Record, rank: Rank, at: Option<Vec<PeerId>>, swept: Option<OwnedSemaphorePermit>) -> Self {
        ToPlace { bytes: record.encode().len(), record, rank, at, _swept: swept }
    }
}

impl Payload for Order {
    fn bytes(&self) -> usize {
        0
    }
}

impl Payload for Asked {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Payload for Answering {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Payload for ToPlace {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Shared {
    pub fn is_server(&self) -> bool {
        self.is_server.load(Ordering::Relaxed)
    }

    /// Wall-clock time, which records are dated with.
    pub fn now_ms(&self) -> u64 {
        clock::unix_millis()
    }

    /// Where others reach this node, best first.
    pub fn own_addrs(&self) -> Vec<Multiaddr> {
        let live = self.live.get();
        told_addrs(&live.value.announced(), live.value.addr.ip(), &self.listen_addrs.load())
    }

    /// A number for what this node says of itself now: the time, and above all numbers before.
    pub fn next_sequence(&self, now_ms: u64) -> u64 {
        self.sequence.skip_past(now_ms.saturating_sub(1));
        self.sequence.next()
    }

    /// Nodes that keep one record.
    pub fn replication(&self) -> usize {
        self.live.get().value.replication
    }

    /// Whether this node is not to be counted on, nor this record believed: whoever signed wrongly lied, and honest
    /// nodes pass nothing on that does not verify.
    pub fn expel(&self, peer: PeerId) {
        self.members.distrust(peer, self.now_ms());
        tracing::warn!(%peer, "a node sent a forged record; it is left alone for a while");
        // If there is no room, its next misdeed is met the same way.
        let _ = self.orders.offer(Order::Expel { peer });
    }
}

/// Where others are told to find a node: at what its operator announces, then where it listens, public addresses first.
/// Link-local addresses mean another machine on every link, and loopback is told only by a node that is made to listen
/// there.
fn told_addrs(announced: &[Multiaddr], configured: IpAddr, listens: &[Multiaddr]) -> Vec<Multiaddr> {
    let reach = |addr: &&Multiaddr| match ip_of(addr).and_then(reach_of) {
        Some(reach @ (Reach::Public | Reach::Private)) => Some(reach),
        Some(reach @ Reach::Loopback) if configured.is_loopback() => Some(reach),
        _ => None,
    };
    let mut told: Vec<Multiaddr> = announced.to_vec();
    let mut listens: Vec<&Multiaddr> = listens.iter().filter(|addr| reach(addr).is_some()).collect();
    listens.sort_by_key(|addr| (reach(addr), (*addr).clone()));
    for addr in listens {
        if !told.contains(addr) {
            told.push(addr.clone());
        }
    }
    told.truncate(limits::ADDRESSES_PER_PEER_MAX);
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::over_tcp;

    fn addrs(texts: &[&str]) -> Vec<Multiaddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn a_node_that_listens_everywhere_tells_where_others_reach_it_public_addresses_first() {
        let everywhere = IpAddr::from([0, 0, 0, 0]);
        let listens = addrs(&[
            "/ip4/127.0.0.1/tcp/4001",
            "/ip4/169.254.1.1/tcp/4001",
            "/ip4/172.17.0.1/tcp/4001",
            "/ip4/203.0.113.9/tcp/4001",
            "/ip6/fe80::1/tcp/4001",
            "/ip4/203.0.113.9/udp/4001/quic-v1",
            "/ip6/::1/tcp/4001",
        ]);
        let reached = ["/ip4/203.0.113.9/tcp/4001", "/ip4/203.0.113.9/udp/4001/quic-v1", "/ip4/172.17.0.1/tcp/4001"];
        assert_eq!(told_addrs(&[], everywhere, &listens), addrs(&reached));
        // What the operator announces comes before all of them, once.
        let outside = addrs(&["/ip4/198.51.100.7/tcp/9", "/ip4/172.17.0.1/tcp/4001"]);
        let told = told_addrs(&outside, everywhere, &listens);
        assert_eq!(told, [&outside[..], &addrs(&reached[..2])].concat());
        // However many networks it is in.
        let private = (0..40_u8).map(|net| over_tcp(([10, 0, net, 1], 4001).into()));
        let many: Vec<Multiaddr> = private.chain(listens).collect();
        let told = told_addrs(&[], everywhere, &many);
        assert_eq!((told.len(), &told[..2]), (limits::ADDRESSES_PER_PEER_MAX, &addrs(&reached[..2])[..]));
        // The nodes of one machine know each other by loopback.
        let loopback = addrs(&["/ip4/127.0.0.1/tcp/4001"]);
        assert_eq!(told_addrs(&[], [127, 0, 0, 1].into(), &loopback), loopback);
    }
}
