//! The overlay as surfaces and the framed plane see it. It knows neither HTTP nor JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ron_auth::Subject;
use ron_gossip::{LaneName, MsgId};
use ron_kernel::Deadline;
use ron_kernel::bus::BroadcastReceiver;
use ron_transport::{ConnectError, NodeId, PeerAddress, Session, SessionLimits};
use ron_types::limits::overlay::PAYLOAD_BYTES_MAX;
use ron_types::{Error, Kind};

use crate::engine::{NewSubscriber, PublishStream, StreamMessage, Trace};
use crate::shared::{NewSession, Shared};
use crate::subscription::{self, Subscriber, Subscription};
use crate::words::{LaneLink, OverlayEvent, PeerView, Published};

/// Metric of the usage meter for messages that a tenant published.
const MESSAGES_PUBLISHED: &str = "overlay.messages_published";
/// Metric of the usage meter for their bytes.
const BYTES_PUBLISHED: &str = "overlay.bytes_published";
/// Time an engine has to answer; it never waits, so this is only reached on a machine that stands still.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The overlay. Clones are the same overlay.
#[derive(Clone)]
pub struct Overlay {
    pub(crate) shared: Arc<Shared>,
}

impl Overlay {
    /// Id of this node.
    pub fn node_id(&self) -> NodeId {
        self.shared.options.node_id
    }

    /// Where peers reach this node; none if it only dials.
    pub fn listen(&self) -> Option<SocketAddr> {
        self.shared.options.listen
    }

    /// Publishes a message for this tenant. It is taken or refused at once; nobody waits for a slow peer.
    pub async fn publish(&self, tenant: &str, lane: LaneName, payload: Bytes) -> Result<Published, Error> {
        check_lane(&lane)?;
        check_size(payload.len())?;
        let bytes = payload.len() as u64;
        let published = self.shared.engines.publish(lane, payload, Deadline::after(ANSWER_TIME)).await?;
        self.count(tenant, 1, bytes);
        Ok(published)
    }

    /// Publishes messages of a stream, in their order; gives them back when there is no room. A refusal by the engine
    /// ends the stream: [`PublishStream::refusal`].
    pub fn publish_stream(
        &self,
        tenant: &str,
        lane: LaneName,
        stream: &PublishStream,
        messages: Vec<StreamMessage>,
    ) -> Result<(), (Vec<StreamMessage>, Error)> {
        if let Err(reserved) = check_lane(&lane) {
            return Err((messages, reserved));
        }
        if let Some(large) = messages.iter().find_map(|message| check_size(message.payload.len()).err()) {
            return Err((messages, large));
        }
        let (count, bytes) = (messages.len() as u64, messages.iter().map(|message| message.payload.len() as u64).sum());
        self.shared.engines.publish_stream(lane, stream, messages)?;
        self.count(tenant, count, bytes);
        Ok(())
    }

    /// Waits until everything that was handed on for this lane before is published or refused.
    pub async fn settle(&self, lane: &LaneName) -> Result<(), Error> {
        self.shared.engines.fence(lane, Deadline::after(ANSWER_TIME)).await
    }

    /// Publishes a message of the node itself, which is counted for no tenant. The only way onto a reserved lane.
    pub fn announce(&self, lane: LaneName, payload: Bytes) -> Result<(), Error> {
        check_size(payload.len())?;
        let message = StreamMessage { payload, outcome: None };
        // A stream of one message: a refusal of one announcement says nothing of the next.
        let (stream, _refused) = PublishStream::new();
        self.shared.engines.publish_stream(lane, &stream, vec![message]).map_err(|(_, error)| error)
    }

    fn count(&self, tenant: &str, messages: u64, bytes: u64) {
        let meter = self.shared.kernel.meter();
        meter.count(tenant, MESSAGES_PUBLISHED, messages);
        meter.count(tenant, BYTES_PUBLISHED, bytes);
    }

    /// Subscribes to a lane for a subject, beginning with what the ring still holds of the numbers in `from`; `own`
    /// says whether this node's own publications are heard.
    pub async fn subscribe(
        &self,
        by: &Subject,
        lane: LaneName,
        from: Vec<(NodeId, u64)>,
        own: bool,
    ) -> Result<Subscription, Error> {
        let (writer, subscription) = subscription::inbox(&self.shared.subscribers);
        self.subscribe_with(by, lane, from, own, Box::new(writer)).await?;
        Ok(subscription)
    }

    /// As [`Overlay::subscribe`], with a subscriber that takes items in its own way.
    pub async fn subscribe_with(
        &self,
        by: &Subject,
        lane: LaneName,
        from: Vec<(NodeId, u64)>,
        own: bool,
        subscriber: Box<dyn Subscriber>,
    ) -> Result<(), Error> {
        let new = NewSubscriber { by: by.clone(), lane, from, own, subscriber };
        self.shared.engines.subscribe(new, Deadline::after(ANSWER_TIME)).await
    }

    /// How every peer stands.
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        let links = self.shared.engines.links(Deadline::after(ANSWER_TIME)).await?;
        let lanes_of = |node_id: NodeId| -> Vec<LaneLink> {
            let mut lanes: Vec<LaneLink> =
                links.iter().filter(|(peer, _)| *peer == node_id).map(|(_, link)| link.clone()).collect();
            lanes.sort_by_key(|link| link.lane);
            lanes
        };
        let view = |peer: crate::peers::Standing| PeerView {
            node_id: peer.node_id,
            address: peer.address,
            state: peer.state,
            direction: peer.direction,
            tls_group: peer.link.as_ref().map(|link| link.facts.tls_group),
            rtt: peer.link.as_ref().and_then(|link| link.outbox.rtt()),
            queued_bytes: peer.link.as_ref().map_or(0, |link| link.outbox.queued_bytes()),
            queued_bytes_max: peer.link.as_ref().map_or(0, |link| link.outbox.bytes_max()),
            busy_total: peer.link.as_ref().map_or(0, |link| link.busy.load(Ordering::Relaxed)),
            lanes: lanes_of(peer.node_id),
        };
        Ok(self.shared.peers.standing().into_iter().map(view).collect())
    }

    /// Keeps a session with this node from now on; naming it again is fine.
    pub fn add_peer(&self, address: PeerAddress) -> Result<(), Error> {
        self.shared.peers.add(address)?;
        self.shared.events.publish(OverlayEvent::PeersChanged);
        Ok(())
    }

    /// Ends the session with this node and no longer dials it; false if it was no peer.
    pub fn remove_peer(&self, node_id: NodeId) -> bool {
        let was_there = self.shared.peers.remove(node_id);
        if was_there {
            self.shared.events.publish(OverlayEvent::PeersChanged);
        }
        was_there
    }

    /// What this node knows of a message, while its ring holds it.
    pub async fn trace(&self, msg_id: MsgId) -> Result<Option<Trace>, Error> {
        self.shared.engines.trace(msg_id, Deadline::after(ANSWER_TIME)).await
    }

    /// What happens to peers, from now on.
    pub fn events(&self) -> BroadcastReceiver<OverlayEvent> {
        self.shared.events.subscribe("overlay", self.shared.kernel.metrics())
    }

    /// Hands over a session that another node opened at the framed plane; `held` is dropped when it ends.
    pub fn offer_session(&self, session: Session, held: Box<dyn Send>) -> Result<(), Error> {
        self.shared.sessions.offer(NewSession { session, held: Some(held) })
    }

    /// Bounds of sessions with peers, as configured now.
    pub fn session_limits(&self) -> SessionLimits {
        self.shared.session_limits()
    }

    /// Counts a session with a client that began at the framed plane.
    pub fn count_session(&self, tls_group: &'static str) {
        self.shared.counts.handshake_done(tls_group);
    }

    /// Counts a handshake at the framed plane that came to nothing.
    pub fn count_failed_handshake(&self, error: &ConnectError) {
        self.shared.counts.handshake_failed(error);
    }
}

/// Lane on which the nodes of the DHT tell each other where they are.
pub const DHT_LANE: &str = "_dht";

/// Lanes that the node itself publishes on. By name and not by a pattern: every other name is free for users.
const NODE_LANES: &[&str] = &[DHT_LANE];

/// Refuses lanes that are the node's own, whatever a token says: what is told there, nodes believe of each other.
pub fn check_lane(lane: &LaneName) -> Result<(), Error> {
    if !NODE_LANES.contains(&lane.as_str()) {
        return Ok(());
    }
    Err(Error::new(Kind::Forbidden, format!("lane {lane} is the node's own: nobody else publishes on it")))
}

fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(Kind::FrameTooLarge, format!("a message of {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are taken")))
}
