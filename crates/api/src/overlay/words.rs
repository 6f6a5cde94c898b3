//! The JSON of the overlay's surface: what is read and written, and how it is described.

use ron_transport::{Direction, NodeId};
use serde::{Deserialize, Serialize, Serializer};
use svc_overlay::words::{Item, Outcome, PeerOutcome, PeerView, Published};
use svc_overlay::{LaneName, MsgId, Trace};
use utoipa::ToSchema;

use crate::mailbox::Base64;

/// A message to publish.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishRequest {
    /// Content of the message.
    pub payload_b64: Base64,
}

/// A message that the node took.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublishAnswer {
    /// Name of the message, 32 hex digits; it never stands for two contents.
    msg_id: String,
    /// The node that published it: this one.
    origin: String,
    /// The lane.
    lane: String,
    /// Life of the origin; its numbers begin again with each.
    epoch: u64,
    /// Number of the message in its lane and epoch, from 1 and without holes.
    seq: u64,
    /// What became of it at each peer that it is pushed to.
    peers: Vec<PeerOutcomeWords>,
}

/// What became of a message at one peer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PublishOutcome)]
pub(super) struct PeerOutcomeWords {
    /// The peer; this node itself with `no_peers`.
    node_id: String,
    /// `sent`, `busy`, `too_large`, `no_peers` or `not_ready`.
    outcome: &'static str,
    /// With `busy`: time after which another try may find room.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// With `too_large`: bytes of the largest payload that the peer takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_max: Option<u64>,
}

/// How this node stands with its peers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PeersAnswer {
    /// Id of this node.
    pub node_id: String,
    /// Address at which peers reach this node; null if it only dials.
    pub listen: Option<String>,
    /// Every peer that was configured, added or let in.
    pub peers: Vec<PeerWords>,
}

/// How one peer stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OverlayPeer)]
pub(super) struct PeerWords {
    /// Id of the peer.
    node_id: String,
    /// Where it is dialled, or where it came from.
    addr: String,
    /// `connected`, `dialing`, `backoff` or `draining`.
    state: &'static str,
    /// Who opened the session: `out` if this node does, `in` if the peer did.
    direction: &'static str,
    /// Key exchange of the session; null without one.
    tls_group: Option<&'static str>,
    /// Milliseconds to the peer and back, measured last; null if not measured yet.
    rtt_ms: Option<f64>,
    /// Bytes that wait for it.
    queued_bytes: u64,
    /// Bytes that may wait for it.
    queued_bytes_max: u64,
    /// Messages that its full queue has refused.
    busy_total: u64,
    /// Its part in each lane.
    lanes: Vec<LaneWords>,
}

/// A peer's part in one lane.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OverlayLaneLink)]
pub(super) struct LaneWords {
    /// The lane.
    lane: String,
    /// `eager` if messages are pushed to the peer, `lazy` if it is only told of them.
    link: &'static str,
}

/// A node to keep a session with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerRequest {
    /// Id of the node, 64 lower-case hex digits: nobody is trusted by address.
    pub node_id: String,
    /// Its OAP port as HOST:PORT, an IPv6 address in brackets.
    pub addr: String,
}

/// A peer that the node keeps a session with from now on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PeerAdded {
    /// Id of the peer.
    pub node_id: String,
    /// Where it is dialled.
    pub addr: String,
}

/// A message's way through this node.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TraceAnswer {
    /// The lane.
    lane: String,
    /// The node that published it.
    origin: String,
    /// Life of the origin.
    epoch: u64,
    /// Number of the message in its lane and epoch.
    seq: u64,
    /// Links it came over.
    hops: u8,
    /// The peer it came from first; null if it was published here.
    from: Option<String>,
    /// Peers it was pushed to.
    eager: Vec<String>,
    /// Peers that were only told of it.
    lazy: Vec<String>,
}

/// The data of one event of a subscription. Its kind is the name of the event, and over WebSocket the member `type`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OverlayEventData)]
pub(super) enum EventWords<'a> {
    /// `ready`: everything published from now on is heard.
    Ready {
        /// The lane.
        lane: &'a str,
        /// Id of this node.
        #[schema(value_type = String)]
        node_id: Hex<NodeId>,
    },
    /// `message`: each once, and in the order of its origin.
    Message {
        /// Name of the message.
        #[schema(value_type = String)]
        msg_id: Hex<MsgId>,
        /// The node that published it.
        #[schema(value_type = String)]
        origin: Hex<NodeId>,
        /// The lane.
        lane: &'a str,
        /// Life of the origin.
        epoch: u64,
        /// Number of the message in its lane and epoch.
        seq: u64,
        /// Content of the message.
        payload_b64: Base64,
        /// Links it came over.
        hops: u8,
    },
    /// `gap`: messages that nobody could give any more.
    Gap {
        /// The node that published them.
        #[schema(value_type = String)]
        origin: Hex<NodeId>,
        /// Life of the origin.
        epoch: u64,
        /// First number missed.
        from: u64,
        /// Last number missed.
        to: u64,
    },
    /// `epoch`: an origin was started anew, and its numbers begin again.
    Epoch {
        /// The origin.
        #[schema(value_type = String)]
        origin: Hex<NodeId>,
        /// Its new life.
        epoch: u64,
    },
    /// `lagged`: this subscriber was too slow.
    Lagged {
        /// Events that it lost.
        dropped: u64,
    },
    /// `end`: the last event of a stream that the node ends.
    End {
        /// `draining`, `revoked` or `restarted`.
        reason: &'static str,
    },
    /// `published`: the answer to a publication over WebSocket that has an id.
    Published {
        /// The id that the client gave.
        id: &'a str,
        /// What the node took.
        #[serde(flatten)]
        published: PublishAnswer,
    },
    /// `refused`: a publication over WebSocket that the node did not take.
    Refused {
        /// The id that the client gave.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        /// Stable code of the reason.
        code: &'static str,
        /// The reason.
        detail: &'a str,
        /// Time after which another try may be taken.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

/// A name that is written as hex digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hex<T>(pub T);

impl<T: std::fmt::Display> Serialize for Hex<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An event as a text frame of a WebSocket.
#[derive(Serialize)]
struct TypedEvent<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    event: &'a EventWords<'a>,
}

impl<'a> EventWords<'a> {
    pub(super) fn of(lane: &'a LaneName, item: Item) -> Self {
        match item {
            Item::Message(message) => EventWords::Message {
                msg_id: Hex(message.msg_id(lane)),
                origin: Hex(message.origin),
                lane: lane.as_str(),
                epoch: message.epoch,
                seq: message.seq,
                payload_b64: Base64(message.payload),
                hops: message.hops,
            },
            Item::Gap { origin, epoch, from, to } => EventWords::Gap { origin: Hex(origin), epoch, from, to },
            Item::Epoch { origin, epoch } => EventWords::Epoch { origin: Hex(origin), epoch },
            Item::Lagged { dropped } => EventWords::Lagged { dropped },
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            EventWords::Ready { .. } => "ready",
            EventWords::Message { .. } => "message",
            EventWords::Gap { .. } => "gap",
            EventWords::Epoch { .. } => "epoch",
            EventWords::Lagged { .. } => "lagged",
            EventWords::End { .. } => "end",
            EventWords::Published { .. } => "published",
            EventWords::Refused { .. } => "refused",
        }
    }

    /// Appends the event as server-sent text.
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(b"event: ");
        text.extend_from_slice(self.kind().as_bytes());
        text.extend_from_slice(b"\ndata: ");
        serde_json::to_writer(&mut *text, self).expect("texts and numbers can be written");
        text.extend_from_slice(b"\n\n");
    }

    /// The event as one JSON object with its kind in it.
    pub(super) fn typed(&self) -> String {
        let typed = TypedEvent { r#type: self.kind(), event: self };
        serde_json::to_string(&typed).expect("texts and numbers can be written")
    }
}

impl PublishAnswer {
    pub(super) fn new(lane: &LaneName, published: &Published) -> Self {
        PublishAnswer {
            msg_id: published.msg_id.to_string(),
            origin: published.origin.to_string(),
            lane: lane.as_str().to_owned(),
            epoch: published.epoch,
            seq: published.seq,
            peers: published.peers.iter().map(PeerOutcomeWords::new).collect(),
        }
    }
}

impl PeerOutcomeWords {
    fn new(peer: &PeerOutcome) -> Self {
        let (mut retry_after_ms, mut bytes_max) = (None, None);
        match peer.outcome {
            // Zero would be an invitation to spin.
            Outcome::Busy { retry_after } => retry_after_ms = Some((retry_after.as_millis() as u64).max(1)),
            Outcome::TooLarge { max } => bytes_max = Some(max as u64),
            Outcome::Sent | Outcome::NoPeers | Outcome::NotReady => {}
        }
        let (node_id, outcome) = (peer.node_id.to_string(), peer.outcome.as_str());
        PeerOutcomeWords { node_id, outcome, retry_after_ms, bytes_max }
    }
}

impl From<PeerView> for PeerWords {
    fn from(peer: PeerView) -> Self {
        let lanes = peer.lanes.iter().map(|link| LaneWords {
            lane: link.lane.as_str().to_owned(),
            link: if link.is_eager { "eager" } else { "lazy" },
        });
        PeerWords {
            node_id: peer.node_id.to_string(),
            addr: peer.address,
            state: peer.state.as_str(),
            direction: match peer.direction {
                Direction::In => "in",
                Direction::Out => "out",
            },
            tls_group: peer.tls_group,
            rtt_ms: peer.rtt.map(|rtt| rtt.as_micros() as f64 / 1000.0),
            queued_bytes: peer.queued_bytes as u64,
            queued_bytes_max: peer.queued_bytes_max as u64,
            busy_total: peer.busy_total,
            lanes: lanes.collect(),
        }
    }
}

impl From<Trace> for TraceAnswer {
    fn from(trace: Trace) -> Self {
        let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect();
        TraceAnswer {
            lane: trace.lane.as_str().to_owned(),
            origin: trace.origin.to_string(),
            epoch: trace.epoch,
            seq: trace.seq,
            hops: trace.hops,
            from: trace.from.map(|from| from.to_string()),
            eager: names(&trace.eager),
            lazy: names(&trace.lazy),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use serde_json::{Value, json};
    use svc_overlay::words::Message;

    use super::*;

    fn node(byte: u8) -> NodeId {
        NodeId::from_bytes([byte; 32])
    }

    #[test]
    fn an_event_is_written_for_streams_and_for_sockets() {
        let lane = LaneName::new("chat").expect("a name");
        let payload = Bytes::from_static(b"hi");
        let message = Message { origin: node(1), epoch: 9, seq: 3, hops: 2, payload };
        let msg_id = message.msg_id(&lane).to_string();
        let event = EventWords::of(&lane, Item::Message(message));
        let mut text = Vec::new();
        event.append_to(&mut text);
        let text = String::from_utf8(text).expect("text");
        let data = text.strip_prefix("event: message\ndata: ").and_then(|text| text.strip_suffix("\n\n"));
        let mut expected = json!({
            "msg_id": msg_id, "origin": "01".repeat(32), "lane": "chat", "epoch": 9, "seq": 3,
            "payload_b64": "aGk=", "hops": 2,
        });
        assert_eq!(serde_json::from_str::<Value>(data.expect(&text)).expect("JSON"), expected);
        expected["type"] = "message".into();
        assert_eq!(serde_json::from_str::<Value>(&event.typed()).expect("JSON"), expected);
    }

    #[test]
    fn the_other_events_have_their_words() {
        let lane = LaneName::new("a").expect("a name");
        for (item, expected) in [
            (
                Item::Gap { origin: node(2), epoch: 1, from: 4, to: 6 },
                json!({"type": "gap", "origin": "02".repeat(32), "epoch": 1, "from": 4, "to": 6}),
            ),
            (
                Item::Epoch { origin: node(2), epoch: 5 },
                json!({"type": "epoch", "origin": "02".repeat(32), "epoch": 5}),
            ),
            (Item::Lagged { dropped: 7 }, json!({"type": "lagged", "dropped": 7})),
        ] {
            let typed = EventWords::of(&lane, item).typed();
            assert_eq!(serde_json::from_str::<Value>(&typed).expect("JSON"), expected);
        }
    }

    #[test]
    fn outcomes_say_when_to_come_back_and_how_much_is_taken() {
        let written = |outcome| {
            let peer = PeerOutcomeWords::new(&PeerOutcome { node_id: node(1), outcome });
            let mut json = serde_json::to_value(peer).expect("JSON");
            json.as_object_mut().expect("an object").remove("node_id");
            json
        };
        for (outcome, expected) in [
            (Outcome::Sent, json!({"outcome": "sent"})),
            (Outcome::Busy { retry_after: Duration::from_micros(10) }, json!({"outcome": "busy", "retry_after_ms": 1})),
            (Outcome::TooLarge { max: 5 }, json!({"outcome": "too_large", "bytes_max": 5})),
            (Outcome::NoPeers, json!({"outcome": "no_peers"})),
            (Outcome::NotReady, json!({"outcome": "not_ready"})),
        ] {
            assert_eq!(written(outcome), expected);
        }
    }
}
