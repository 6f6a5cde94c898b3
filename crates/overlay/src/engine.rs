//! The engines: each owns the lanes that fall to it, and is the only one that touches them.
//!
//! An engine takes orders first (peers that come and go, subscriptions, questions), then batches of frames and
//! publications. Nothing it does waits: a peer's outbox that is full says so, a subscriber that is slow loses items.

mod catch_up;
mod lane_table;
mod life;
mod ports;
mod publishing;
mod shell;

use std::sync::Arc;

use bytes::Bytes;
use oap::Frame;
use ron_auth::Subject;
use ron_gossip::{LaneName, MsgId};
use ron_kernel::queue::Payload;
use ron_transport::NodeId;
use ron_types::Error;
use tokio::sync::oneshot;

pub(crate) use catch_up::CATCH_UP_BYTES;
pub(crate) use life::gossip_engine;
pub(crate) use ports::EnginePorts;
pub use publishing::{OutcomeCallback, PublishStream, StreamMessage};

use crate::peers::Link;
use crate::subscription::Subscriber;
use crate::words::{LaneLink, Published};

/// Frames of one peer that one read gave, all of lanes of one engine.
pub(crate) struct Batch {
    pub link: Arc<Link>,
    pub frames: Vec<Frame>,
}

/// Work that may be refused when there is too much of it.
pub(crate) enum Work {
    /// What a peer sent.
    Frames(Batch),
    /// One message of a caller who waits for the outcome.
    Publish { lane: LaneName, payload: Bytes, outcome: oneshot::Sender<Result<Published, Error>> },
    /// Messages of a stream; a refusal of one without a callback ends the stream.
    Stream { lane: LaneName, stream: PublishStream, messages: Vec<StreamMessage> },
    /// Answered when everything before it is done.
    Fence(oneshot::Sender<()>),
}

/// Work that must not be lost, and of which there is little.
pub(crate) enum Order {
    PeerUp(Arc<Link>),
    PeerDown(Arc<Link>),
    Subscribe(NewSubscriber, oneshot::Sender<Result<(), Error>>),
    /// The part of each peer in each lane.
    Links(oneshot::Sender<Vec<(NodeId, LaneLink)>>),
    /// What is known of a message.
    Trace(MsgId, oneshot::Sender<Option<Trace>>),
}

/// A subscriber on its way to an engine.
pub(crate) struct NewSubscriber {
    /// Subject among whose subscriptions it is.
    pub by: Subject,
    pub lane: LaneName,
    /// Numbers to begin with, by origin: what the ring still holds of them comes first.
    pub from: Vec<(NodeId, u64)>,
    /// Whether it hears what this node itself publishes.
    pub own: bool,
    pub subscriber: Box<dyn Subscriber>,
}

/// A message's way through this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The lane.
    pub lane: LaneName,
    /// Who published it.
    pub origin: NodeId,
    /// Life of the publisher.
    pub epoch: u64,
    /// Its number.
    pub seq: u64,
    /// Links it came over.
    pub hops: u8,
    /// The peer it came from; none if it was published here.
    pub from: Option<NodeId>,
    /// Peers it was pushed to.
    pub eager: Vec<NodeId>,
    /// Peers that were told of it.
    pub lazy: Vec<NodeId>,
}

impl Payload for Work {
    /// With what holds the items: thousands of small ones fit into one read.
    fn bytes(&self) -> usize {
        let frame_bytes = |frame: &Frame| size_of::<Frame>() + frame.encoded_len();
        let message_bytes = |message: &StreamMessage| size_of::<StreamMessage>() + message.payload.len();
        match self {
            Work::Frames(batch) => batch.frames.iter().map(frame_bytes).sum(),
            Work::Publish { payload, .. } => payload.len(),
            Work::Fence(_) => 0,
            Work::Stream { messages, .. } => messages.iter().map(message_bytes).sum(),
        }
    }
}

impl Payload for Order {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_content_take_room_too() {
        let message = || StreamMessage { payload: Bytes::new(), outcome: None };
        let (stream, _refused) = PublishStream::new();
        let messages: Vec<StreamMessage> = (0..1000).map(|_| message()).collect();
        let work = Work::Stream { lane: "lane".parse().expect("a name"), stream, messages };
        assert!(work.bytes() >= 1000 * size_of::<StreamMessage>());
    }
}
