//! The knobs of a core, and what they bound together.

use std::collections::HashMap;

use crate::budget::Rate;
use crate::lane::LANE_BYTES;
use crate::link::{LINK_BYTES, SERVE_BYTES, SERVES_MAX};
use crate::names::{LaneName, Micros};
use crate::origin::ORIGIN_BYTES;
use crate::peers::PEER_BYTES;
use crate::recall::RECALL_ENTRY_BYTES;
use crate::seal::VERIFIED_BYTES;
use crate::shell::SlowConsumer;
use crate::wire::ENTRIES_MAX;

const MIB: usize = 1 << 20;
const MILLISECOND: Micros = 1000;

/// What a node asks of the messages it takes, and adds to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signatures {
    /// Signs nothing and looks at no signature; those of others are passed on.
    #[default]
    Off,
    /// Signs its own messages, and refuses those of others whose signature is false.
    Sign,
    /// The same, and refuses messages without one.
    Require,
}

/// Bounds and times of one core. Every engine of a node has the same.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Peers connected at once.
    pub peers_max: usize,
    /// Lanes held at once; for a new one the quietest of whoever has most is forgotten.
    pub lanes_max: usize,
    /// Origins of one lane held at once; likewise.
    pub origins_per_lane_max: usize,
    /// Origins of all lanes together; likewise.
    pub origins_max: usize,
    /// Bytes of the ring of one lane, what holds the messages included.
    pub ring_bytes_per_lane: usize,
    /// Messages of the ring of one lane.
    pub ring_messages_per_lane: usize,
    /// Bytes of all rings together.
    pub ring_bytes_max: usize,
    /// Messages of one origin that may wait for an earlier one.
    pub waiting_per_origin_max: usize,
    /// Bytes of all messages that wait for an earlier one.
    pub waiting_bytes_max: usize,
    /// Bytes of all messages in chunks that are not whole yet, reckoned by their announced size.
    pub partial_bytes_max: usize,
    /// Bytes of data in one lane that may be on the way to a peer before it says that it consumed some.
    pub credit_bytes: u64,
    /// Links a message may come over and still be relayed.
    pub hops_max: u8,
    /// Time that new messages gather for one digest to lazy links.
    pub digest_after: Micros,
    /// Time a push may come later than the digest of the same message, before the message is asked for.
    pub graft_after: Micros,
    /// Time a peer has to answer.
    pub answer_timeout: Micros,
    /// Time a hole may stay without progress before it is told as a gap.
    pub gap_after: Micros,
    /// Time between two summaries to a random peer, for what no session break has shown.
    pub summary_every: Micros,
    /// A lane that this node did not publish in for this time is its own no longer, unless somebody here hears it.
    pub quiet_after: Micros,
    /// Time that a forgotten origin's last number is remembered at least, so that its messages are not taken twice.
    pub remember_for: Micros,
    /// Forgotten origins remembered in each of the two generations.
    pub remembered_max: usize,
    /// Messages of one lane that are pushed: beyond it a publisher is told to wait, and relayed ones wait in the ring.
    pub lane_frames: Rate,
    /// New lanes and origins that one peer may bring.
    pub openings: Rate,
    /// Strikes from which on a peer is only asked and pushed to last.
    pub strikes_lazy: u32,
    /// Strikes at which a peer is disconnected.
    pub strikes_disconnect: u32,
    /// What lanes do about slow peers.
    pub slow_consumer: SlowConsumer,
    /// Whether messages are signed by their origin.
    pub signatures: Signatures,
    /// Lanes that do something else about slow peers.
    pub slow_consumer_of: HashMap<LaneName, SlowConsumer>,
}

impl Default for CoreConfig {
    fn default() -> Self {
        CoreConfig {
            peers_max: 64,
            lanes_max: 256,
            origins_per_lane_max: 1024,
            origins_max: 8192,
            ring_bytes_per_lane: 16 * MIB,
            ring_messages_per_lane: 65_536,
            ring_bytes_max: 64 * MIB,
            waiting_per_origin_max: 1024,
            waiting_bytes_max: 16 * MIB,
            partial_bytes_max: 32 * MIB,
            credit_bytes: 6 * MIB as u64,
            hops_max: 64,
            digest_after: 5 * MILLISECOND,
            graft_after: 40 * MILLISECOND,
            answer_timeout: 500 * MILLISECOND,
            gap_after: 3000 * MILLISECOND,
            summary_every: 10_000 * MILLISECOND,
            quiet_after: 60_000 * MILLISECOND,
            remember_for: 600_000 * MILLISECOND,
            remembered_max: 8192,
            lane_frames: Rate { per_second: 4_000_000, burst: 1_000_000 },
            openings: Rate { per_second: 64, burst: 2048 },
            strikes_lazy: 8,
            strikes_disconnect: 64,
            slow_consumer: SlowConsumer::Busy,
            signatures: Signatures::Off,
            slow_consumer_of: HashMap::new(),
        }
    }
}

impl CoreConfig {
    /// Bytes of memory that a core never exceeds, as a formula of the bounds: messages in rings, waiting, and in parts;
    /// lanes with a link for each peer; origins; what is remembered of forgotten ones; questions; signatures that
    /// were found good.
    pub fn memory_bytes_max(&self) -> usize {
        let messages = self.ring_bytes_max + self.waiting_bytes_max + self.partial_bytes_max;
        let lanes = self.lanes_max * (LANE_BYTES + self.peers_max * LINK_BYTES);
        // This node is an origin in each lane, whatever the bound; and one message may bring as many as a list has
        // entries before the turn is over and the bound is kept.
        let origins = (self.origins_max + self.lanes_max + ENTRIES_MAX) * ORIGIN_BYTES;
        let remembered = 2 * self.remembered_max * RECALL_ENTRY_BYTES;
        let others = self.peers_max * PEER_BYTES + SERVES_MAX * SERVE_BYTES + VERIFIED_BYTES;
        messages + lanes + origins + remembered + others
    }
}
