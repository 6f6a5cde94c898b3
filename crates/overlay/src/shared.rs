//! What the overlay's tasks and its handle share.

use std::net::SocketAddr;

use oap::Hello;
use ron_kernel::bus::Broadcast;
use ron_kernel::queue::{Payload, QueueSender};
use ron_kernel::{KernelHandle, Snapshot};
use ron_transport::{Closed, GoAway, NodeId, NodeKey, Reader, Session, SessionLimits, Tls, Writer};
use ron_types::Error;
use std::sync::Arc;
use tokio::sync::oneshot;

use crate::config::LiveOptions;
use crate::engine::EnginePorts;
use crate::metrics::Counts;
use crate::peers::{Link, Peers};
use crate::subscription::SubscriberPool;
use crate::words::OverlayEvent;

/// What is fixed while the node runs.
pub struct OverlayOptions {
    /// The node's identity, as TLS shows it.
    pub tls: Tls,
    /// The node's id.
    pub node_id: NodeId,
    /// The key whose public half the id is: signs what the node publishes, where it does.
    pub key: NodeKey,
    /// Where the framed plane listens; none on a node that only dials.
    pub listen: Option<SocketAddr>,
}

pub(crate) struct Shared {
    pub options: OverlayOptions,
    pub live: Snapshot<LiveOptions>,
    pub kernel: KernelHandle,
    pub peers: Peers,
    pub engines: EnginePorts,
    pub counts: Counts,
    pub events: Broadcast<OverlayEvent>,
    pub accepted: QueueSender<NewSession>,
    pub sessions: QueueSender<NewSession>,
    pub subscribers: Arc<SubscriberPool>,
    pub readers: QueueSender<ReadHalf>,
    pub writers: QueueSender<WriteHalf>,
}

/// A session after its handshake.
pub(crate) struct NewSession {
    pub session: Session,
    /// What the plane that accepted it holds for it, given back when the session ends.
    pub held: Held,
}

/// Something that is given back by being dropped.
pub(crate) type Held = Option<Box<dyn Send>>;

/// The reading half of a session, on its way to the task that runs it.
pub(crate) struct ReadHalf {
    pub reader: Reader,
    pub link: Arc<Link>,
    /// Told why reading ended; dropped if the task did.
    pub ended: oneshot::Sender<Closed>,
}

/// The writing half of a session, on its way to the task that runs it.
pub(crate) struct WriteHalf {
    pub writer: Writer,
    /// Told why writing ended; dropped if the task did.
    pub ended: oneshot::Sender<Closed>,
}

// Their number is bound enough: a session that waits holds no frames.
impl Payload for NewSession {}
impl Payload for ReadHalf {}
impl Payload for WriteHalf {}

impl Shared {
    /// What this node says of itself at the start of a session.
    pub fn hello(&self, limits: &SessionLimits) -> Hello {
        Hello::new(u32::try_from(limits.frame_bytes_max).unwrap_or(u32::MAX), limits.max_inflight)
    }

    /// Bounds of sessions with peers, as configured now.
    pub fn session_limits(&self) -> SessionLimits {
        let live = self.live.get();
        let live = &live.value;
        SessionLimits {
            frame_bytes_max: live.frames.frame_bytes_max,
            read_timeout: live.frames.read_timeout,
            write_stall: live.frames.write_timeout,
            handshake_timeout: live.handshake_timeout,
            idle_timeout: live.idle_timeout,
            egress_bytes_max: live.egress_bytes_max,
            egress_frames_max: live.egress_frames_max,
            ..SessionLimits::default()
        }
    }
}

/// The last word of a session that this node ends.
pub(crate) fn farewell(error: &Error) -> GoAway {
    GoAway::new(error.kind.http_status(), 0, error.to_string())
}
