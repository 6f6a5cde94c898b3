//! What the DHT's tasks and its handle share, and what they send each other.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use libp2p::request_response::ResponseChannel;
use ron_kernel::bus::Broadcast;
use ron_kernel::queue::{Payload, QueueSender};
use ron_kernel::{Deadline, KernelHandle, Snapshot, clock};
use ron_store::wire::{Answer, AskError, Reply, Request};
use ron_store::{Multiaddr, PeerId, PeerRecord, Record};
use ron_transport::NodeKey;
use tokio::sync::{Notify, oneshot};

use crate::config::LiveOptions;
use crate::members::Members;
use crate::metrics::Counts;
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
    pub is_server: AtomicBool,
}

/// Something the network is to do.
pub(crate) enum Order {
    /// Ask a node, or offer it records.
    Send(Sending),
    /// Connect to a node, and say when it has said what it is, or why it cannot be reached.
    Dial { peer: PeerId, addrs: Vec<Multiaddr>, done: Option<Reached> },
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
    pub channel: ResponseChannel<Answer>,
    /// After this nobody waits for the answer.
    pub by: Deadline,
    pub bytes: usize,
}

/// An answer for another node.
pub(crate) struct Answering {
    pub channel: ResponseChannel<Answer>,
    pub answer: Answer,
}

/// A record on its way to nodes near its key.
pub(crate) struct ToPlace {
    pub record: Record,
    /// Nodes to give it to; none for the nearest ones.
    pub at: Option<Vec<PeerId>>,
}

/// Bytes of a proof of possession, about.
const POSSESSION_BYTES: usize = 3 * 1024;
/// What a record takes in memory, about: a provider record with two addresses.
const RECORD_BYTES: usize = 512;

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
        match &self.answer {
            Answer::Reply(Reply { records, closer }) => records.len() * RECORD_BYTES + closer.len() * 48,
            Answer::Possession(Some(_)) => POSSESSION_BYTES,
            _ => 0,
        }
    }
}

impl Payload for ToPlace {
    fn bytes(&self) -> usize {
        RECORD_BYTES
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
