//! Answers of the DHT as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ron_store::{Multiaddr, Record};
use serde::Serialize;
use svc_dht::words::{Hop, HopOutcome, PeerView, Standing, Trace};
use utoipa::ToSchema;

/// This node in its network, and every node it knows.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DhtPeersAnswer {
    /// Peer id of this node.
    peer_id: String,
    /// Multiaddresses at which it listens.
    listen: Vec<String>,
    /// Whether it keeps records for others.
    server: bool,
    /// Whether it knows every node of the network, so that a lookup is one hop.
    complete: bool,
    /// Connections it has.
    connections: usize,
    /// The nodes it knows, nearest first.
    peers: Vec<DhtPeerWords>,
}

/// How a node of the network stands.
#[derive(Debug, Serialize, ToSchema)]
struct DhtPeerWords {
    /// Peer id of the node.
    peer_id: String,
    /// Multiaddresses at which it is reached.
    addrs: Vec<String>,
    /// Connections with it.
    connections: usize,
    /// Milliseconds to it and back.
    rtt_ms: Option<f64>,
    /// Dials and questions in a row that came to nothing.
    failures: u32,
    /// How it became known: `bootstrap`, `remembered`, `overlay` or `met`.
    source: &'static str,
    /// When it became known, in milliseconds since 1970.
    since_ms: u64,
    /// Leading bits that its place shares with this node's.
    shared_bits: u32,
}

/// A walk through the network towards a key.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WalkAnswer {
    /// The id that was looked for.
    id: String,
    /// Its place in the network: 64 hex digits.
    key: String,
    /// What was found, each record once: what this node holds itself comes first.
    records: Vec<RecordWords>,
    /// Records that this node holds itself.
    own_records: usize,
    /// Whether the nearest nodes all answered, so that there is nothing nearer.
    converged: bool,
    /// Milliseconds of the whole walk.
    took_ms: f64,
    /// Everybody who was asked, in order.
    hops: Vec<HopWords>,
    /// Peer ids of the nearest nodes that answered, nearest first.
    nearest: Vec<String>,
}

/// A signed record.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecordWords {
    /// `provider`, `name`, `peer` or `ipns`.
    kind: &'static str,
    /// Peer id of the provider or the peer; the name of others.
    about: String,
    /// What a name stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Multiaddresses in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addrs: Vec<String>,
    /// Number of the record; the highest counts.
    sequence: u64,
    /// When it ends, in milliseconds since 1970.
    expires_ms: u64,
    /// The record itself, in base64.
    record_b64: String,
}

/// A node that was asked on the way.
#[derive(Debug, Serialize, ToSchema)]
struct HopWords {
    /// Peer id of the node.
    peer_id: String,
    /// How many nodes had to name it before it was known.
    depth: u32,
    /// Leading bits that its place shares with the key.
    shared_bits: u32,
    /// When it was asked, in milliseconds since the walk began.
    asked_ms: f64,
    /// Milliseconds to its answer or failure.
    took_ms: f64,
    /// Records it had; none if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<usize>,
    /// Nearer nodes it knew; none if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    closer: Option<usize>,
    /// Why it gave no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl DhtPeersAnswer {
    pub(super) fn of(standing: &Standing, peers: &[PeerView]) -> Self {
        DhtPeersAnswer {
            peer_id: standing.peer.to_string(),
            listen: texts(&standing.listen_addrs),
            server: standing.is_server,
            complete: standing.is_complete,
            connections: standing.connections,
            peers: peers.iter().map(DhtPeerWords::of).collect(),
        }
    }
}

impl DhtPeerWords {
    fn of(peer: &PeerView) -> Self {
        DhtPeerWords {
            peer_id: peer.peer.to_string(),
            addrs: texts(&peer.addrs),
            connections: peer.connections,
            rtt_ms: peer.rtt.map(milliseconds),
            failures: peer.failures,
            source: peer.source.word(),
            since_ms: peer.since_ms,
            shared_bits: peer.shared_bits,
        }
    }
}

impl WalkAnswer {
    pub(super) fn of(id: String, trace: &Trace) -> Self {
        WalkAnswer {
            id,
            key: trace.key.to_string(),
            records: trace.records.iter().map(RecordWords::of).collect(),
            own_records: trace.own,
            converged: trace.is_converged,
            took_ms: milliseconds(trace.took),
            hops: trace.hops.iter().map(HopWords::of).collect(),
            nearest: trace.nearest.iter().map(ToString::to_string).collect(),
        }
    }
}

impl RecordWords {
    pub(super) fn of(record: &Record) -> Self {
        let (kind, about, value, addrs) = match record {
            Record::Provider(record) => ("provider", record.peer.to_string(), None, texts(&record.addrs)),
            Record::Name(record) => {
                let about = format!("name:{}@{}", record.label, record.owner);
                ("name", about, Some(record.value.to_string()), Vec::new())
            }
            Record::Peer(record) => ("peer", record.peer.to_string(), None, texts(&record.addrs)),
            Record::Ipns(record) => {
                let value = String::from_utf8_lossy(record.value()).into_owned();
                ("ipns", record.name().to_string(), Some(value), Vec::new())
            }
        };
        let (sequence, expires_ms) = (record.sequence(), record.expires_ms());
        RecordWords { kind, about, value, addrs, sequence, expires_ms, record_b64: STANDARD.encode(record.encode()) }
    }
}

impl HopWords {
    fn of(hop: &Hop) -> Self {
        let (records, closer, failure) = match &hop.outcome {
            HopOutcome::Answered { records, closer } => (Some(*records), Some(*closer), None),
            HopOutcome::Failed(reason) => (None, None, Some(reason.clone())),
        };
        HopWords {
            peer_id: hop.peer.to_string(),
            depth: hop.step,
            shared_bits: hop.shared_bits,
            asked_ms: milliseconds(hop.started),
            took_ms: milliseconds(hop.took),
            records,
            closer,
            failure,
        }
    }
}

fn texts(addrs: &[Multiaddr]) -> Vec<String> {
    addrs.iter().map(ToString::to_string).collect()
}

fn milliseconds(time: std::time::Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
