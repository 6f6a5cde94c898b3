//! Gossip without I/O: lanes, trees, repair, credits and fairness. Events in, actions out; clock and chance are
//! passed in.
//!
//! Every node relays every lane. In a lane, messages are pushed along a tree (eager links), announced to the other
//! neighbours (lazy links), and asked for where they are missing. [`Core`] is the lanes of one engine; a service runs
//! several, and a lane always goes to the engine [`LaneName::flow`] picks. Nothing is shared between lanes but bounds.

pub mod budget;
mod config;
mod core;
mod lane;
mod link;
mod names;
mod origin;
mod peers;
mod recall;
mod ring;
mod rng;
mod seal;
mod shares;
mod shell;
mod turn;
pub mod wire;

pub use config::{CoreConfig, Signatures};
pub use core::{Core, Counts, Held, HeldMessage, Link, Standing, Trace};
pub use names::{InvalidId, InvalidLane, LaneName, Micros, MsgId, Origin, Peer, msg_id};
pub use seal::{SEAL_BATCH_MAX, SIGNATURE_BYTES, Seal, SignedText};
pub use shell::{
    Delivered, DisconnectReason, Misbehaviour, Outcomes, PublishError, Published, SendOutcome, Shell, SlowConsumer,
};

/// Largest name of a lane, in bytes.
pub const LANE_NAME_BYTES_MAX: usize = 80;
/// Largest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Messages beyond this size travel in chunks of it.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Content from this size on is handed out as a slice of the ring's copy, smaller content as a copy of its own: what
/// makes bytes shareable is an allocation, which would stay in the ring for as long as the message does.
pub const SHARED_BYTES_MIN: usize = 512;
/// Most chunks of a message.
pub const CHUNKS_MAX: usize = MESSAGE_BYTES_MAX / CHUNK_BYTES;
/// Peers that a message is pushed to in a lane; the others get digests.
pub const FAN_OUT_MAX: usize = 8;
/// Largest number of a message: exact in JSON everywhere.
pub const SEQ_MAX: u64 = (1 << 53) - 1;
/// Flow of the messages that must not stand behind data: credit and prune.
pub const CONTROL_FLOW: u64 = 0;
