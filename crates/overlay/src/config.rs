//! The overlay's section of the configuration: every key once, with its meaning, bounds and reload class.

use ron_gossip::{LaneName, Signatures, SlowConsumer};
use ron_transport::{PeerAddress, PostQuantum};
use ron_types::limits::overlay as limits;
use ron_types::settings::{
    KIB, MIB, MINUTE_MS, SECOND_MS, choice, lane_words, live, nodes, process, restarts, size, time, whole,
};
use ron_types::{Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Words of [`EgressOverflow`].
const EGRESS_OVERFLOWS: &[&str] = &["reject_new", "shed_oldest", "drop_newest", "disconnect"];

/// The overlay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Nodes to keep a session with: the id of each, and the address of its OAP port.
    #[schemars(extend("x-setting" = live(nodes(limits::PEERS_MAX)).flag("--peer")))]
    pub peers: Vec<String>,
    /// Nodes that may open a session: those of `overlay.peers` and of the API (`listed`), or any node (`any`). `auto`
    /// takes any node while the OAP port is on loopback, and the listed ones elsewhere.
    #[schemars(extend("x-setting" = live(choice(&["auto", "listed", "any"]))))]
    pub accept: Accept,
    /// Post-quantum key exchange: preferred (`hybrid`), `required`, or `off`.
    #[schemars(extend("x-setting" = process(choice(&["hybrid", "required", "off"]))))]
    pub tls_pq: PostQuantumChoice,
    /// Whether nodes and clients are also heard over QUIC, on the UDP port of the same number as the OAP port.
    #[schemars(extend("x-setting" = process(choice(&["off", "on"]))))]
    pub quic: QuicChoice,
    /// Time in which a node must have shown who it is.
    #[schemars(extend("x-setting" = live(time(100, MINUTE_MS))))]
    pub handshake_timeout: TimeSpan,
    /// A session on which nothing is heard for this time has ended.
    #[schemars(extend("x-setting" = live(time(SECOND_MS, 10 * MINUTE_MS))))]
    pub idle_timeout: TimeSpan,
    /// Frames that wait for one peer.
    #[schemars(extend("x-setting" = live(whole(16, 65_536))))]
    pub peer_inflight_frames: usize,
    /// Bytes that wait for one peer. Where there are many peers each has less: all together have 256 MiB.
    #[schemars(extend("x-setting" = live(size(256 * KIB, 256 * MIB))))]
    pub peer_egress_bytes: Size,
    /// Bytes of messages that one peer is sent in a second, and at once; beyond it they wait in the ring. 0: no bound.
    #[schemars(extend("x-setting" = restarts("overlay", size(0, 1024 * MIB))))]
    pub peer_bytes_per_second: Size,
    /// Messages that one lane pushes in a second: beyond it publishers are told to wait, and relayed messages wait in
    /// the ring.
    #[schemars(extend("x-setting" = restarts("overlay", whole(1, 10_000_000))))]
    pub lane_messages_per_second: u64,
    /// Messages that one lane pushes at once, before that rate counts.
    #[schemars(extend("x-setting" = restarts("overlay", whole(1, 10_000_000))))]
    pub lane_burst: u64,
    /// What happens when a peer's queue is full: the message waits in the ring and its publisher is told so
    /// (`reject_new`), the oldest of the lane makes room (`shed_oldest`), it is left out for that peer (`drop_newest`),
    /// or the session ends (`disconnect`).
    #[schemars(extend("x-setting" = restarts("overlay", choice(EGRESS_OVERFLOWS))))]
    pub egress_overflow: EgressOverflow,
    /// Lanes that do something else about a full queue than `overlay.egress_overflow`, such as `"prices=shed_oldest"`.
    #[schemars(extend("x-setting" = restarts("overlay", lane_words(EGRESS_OVERFLOWS, limits::LANE_POLICIES_MAX))))]
    pub lane_overflow: Vec<String>,
    /// Signatures of the nodes that publish: none (`off`), this node signs its own messages and refuses false
    /// signatures of others (`sign`), or refuses messages without one as well (`require`).
    #[schemars(extend("x-setting" = restarts("overlay", choice(&["off", "sign", "require"]))))]
    pub signatures: SignaturesChoice,
    /// Memory of each engine for messages that peers and subscribers can still ask for.
    #[schemars(extend("x-setting" = restarts("overlay", size(MIB, 1024 * MIB))))]
    pub ring_bytes: Size,
}

/// Nodes that may open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// Any node on loopback, listed nodes elsewhere.
    Auto,
    /// Nodes that were named to this one.
    Listed,
    /// Any node that proves its id.
    Any,
}

/// [`PostQuantum`] in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PostQuantumChoice {
    /// Preferred; a peer without it is taken all the same.
    Hybrid,
    /// A peer without it is refused.
    Required,
    /// Classical key exchange alone.
    Off,
}

/// Whether there is QUIC beside TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuicChoice {
    /// TCP alone.
    Off,
    /// Both.
    On,
}

/// What a full queue to a peer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EgressOverflow {
    /// The new message is refused for that peer.
    RejectNew,
    /// The oldest message of the lane makes room.
    ShedOldest,
    /// The new message is left out for that peer.
    DropNewest,
    /// The session ends.
    Disconnect,
}

/// [`Signatures`] in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignaturesChoice {
    /// Messages are believed as peers relay them.
    Off,
    /// Own messages are signed, and false signatures refused.
    Sign,
    /// Messages without a signature are refused, too.
    Require,
}

/// Bounds of frames and times on the OAP port, which sessions that this node opens keep as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Largest frame.
    pub frame_bytes_max: usize,
    /// Time for one frame, from its first byte to its last.
    pub read_timeout: std::time::Duration,
    /// Time a write may take without any progress.
    pub write_timeout: std::time::Duration,
}

/// What the engines take up when they start.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// Bytes in a second that one peer is sent at most; 0 for no bound.
    pub peer_bytes_per_second: usize,
    /// Messages that one lane pushes in a second.
    pub lane_messages_per_second: u64,
    /// Messages that one lane pushes at once.
    pub lane_burst: u64,
    /// What a full queue to a peer leads to.
    pub egress_overflow: EgressOverflow,
    /// Lanes where it leads to something else.
    pub lane_overflow: Vec<(LaneName, EgressOverflow)>,
    /// Whether messages are signed by the nodes that publish them.
    pub signatures: SignaturesChoice,
    /// Memory of each engine for messages that can still be asked for.
    pub ring_bytes: usize,
}

/// What a reload may change.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveOptions {
    /// What the engines take up when they start.
    pub engine: EngineOptions,
    /// Bounds of frames and times.
    pub frames: FrameLimits,
    /// Nodes to keep a session with.
    pub peers: Vec<PeerAddress>,
    /// Nodes that may open a session.
    pub accept: Accept,
    /// Time in which a node must have shown who it is.
    pub handshake_timeout: std::time::Duration,
    /// Silence after which a session has ended.
    pub idle_timeout: std::time::Duration,
    /// Frames that wait for one peer.
    pub egress_frames_max: usize,
    /// Bytes that wait for one peer.
    pub egress_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            peers: Vec::new(),
            accept: Accept::Auto,
            tls_pq: PostQuantumChoice::Hybrid,
            quic: QuicChoice::Off,
            handshake_timeout: TimeSpan::from_duration(limits::HANDSHAKE_TIMEOUT),
            idle_timeout: TimeSpan::from_duration(limits::IDLE_TIMEOUT),
            peer_inflight_frames: limits::QUEUE_CAPACITY,
            peer_egress_bytes: Size(limits::EGRESS_BYTES_MAX),
            peer_bytes_per_second: Size(limits::PEER_BYTES_PER_SECOND),
            lane_messages_per_second: limits::LANE_MESSAGES_PER_SECOND,
            lane_burst: limits::LANE_BURST,
            egress_overflow: EgressOverflow::RejectNew,
            lane_overflow: Vec::new(),
            signatures: SignaturesChoice::Off,
            ring_bytes: Size(limits::RING_BYTES),
        }
    }
}

impl Options {
    /// What a reload may change. A peer or a lane that cannot be read is left out: the check of the key refuses it.
    pub fn live(&self, frames: FrameLimits) -> LiveOptions {
        LiveOptions {
            engine: self.engine(),
            frames,
            peers: self.peers.iter().filter_map(|peer| peer.parse().ok()).collect(),
            accept: self.accept,
            handshake_timeout: self.handshake_timeout.duration(),
            idle_timeout: self.idle_timeout.duration(),
            egress_frames_max: self.peer_inflight_frames,
            egress_bytes_max: self.peer_egress_bytes.bytes(),
        }
    }
}

impl Options {
    /// What the engines take up when they start.
    pub fn engine(&self) -> EngineOptions {
        EngineOptions {
            peer_bytes_per_second: self.peer_bytes_per_second.bytes(),
            lane_messages_per_second: self.lane_messages_per_second,
            lane_burst: self.lane_burst,
            egress_overflow: self.egress_overflow,
            lane_overflow: self.lane_overflow.iter().filter_map(|row| lane_policy(row)).collect(),
            signatures: self.signatures,
            ring_bytes: self.ring_bytes.bytes(),
        }
    }
}

/// `LANE=WORD`.
fn lane_policy(row: &str) -> Option<(LaneName, EgressOverflow)> {
    let (lane, word) = row.split_once('=')?;
    let at = EGRESS_OVERFLOWS.iter().position(|known| *known == word)?;
    Some((lane.parse().ok()?, EgressOverflow::ALL[at]))
}

impl EgressOverflow {
    /// In the order of [`EGRESS_OVERFLOWS`].
    const ALL: [EgressOverflow; 4] =
        [EgressOverflow::RejectNew, EgressOverflow::ShedOldest, EgressOverflow::DropNewest, EgressOverflow::Disconnect];
}

impl From<EgressOverflow> for SlowConsumer {
    fn from(overflow: EgressOverflow) -> Self {
        match overflow {
            EgressOverflow::RejectNew => SlowConsumer::Busy,
            EgressOverflow::ShedOldest => SlowConsumer::DropOldest,
            EgressOverflow::DropNewest => SlowConsumer::DropNewest,
            EgressOverflow::Disconnect => SlowConsumer::Disconnect,
        }
    }
}

impl From<SignaturesChoice> for Signatures {
    fn from(choice: SignaturesChoice) -> Self {
        match choice {
            SignaturesChoice::Off => Signatures::Off,
            SignaturesChoice::Sign => Signatures::Sign,
            SignaturesChoice::Require => Signatures::Require,
        }
    }
}

impl From<PostQuantumChoice> for PostQuantum {
    fn from(choice: PostQuantumChoice) -> Self {
        match choice {
            PostQuantumChoice::Hybrid => PostQuantum::Hybrid,
            PostQuantumChoice::Required => PostQuantum::Required,
            PostQuantumChoice::Off => PostQuantum::Off,
        }
    }
}
