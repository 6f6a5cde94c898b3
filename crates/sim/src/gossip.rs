//! The real gossip core in a network of seeded discrete events: latency, broken sessions, lost frames, slow links,
//! partitions, nodes that die and return, and peers that lie.
//!
//! Sessions are ordered and keep their bytes, as TCP does; what is lost is lost with a session that breaks. Frames
//! can be lost one by one as well, which no session does: a harder world than the real one.

mod attack;
mod network;
mod report;
mod suite;
mod topology;
mod witness;

pub use attack::Behaviour;
pub use network::{Network, Settings};
pub use report::Report;
pub(crate) use report::percentiles;
pub use suite::{Scenario, run_suite};
pub use topology::Topology;
pub use witness::{Publication, Witness};

/// Nodes are numbered; a number is found again in the last bytes of the id.
pub fn node_id(node: usize) -> [u8; 32] {
    let mut id = [0xa5; 32];
    id[24..].copy_from_slice(&(node as u64).to_be_bytes());
    id
}

/// The number of a node, if the id is one of a simulated node.
pub fn node_of(id: &[u8; 32]) -> Option<usize> {
    let mut number = [0; 8];
    number.copy_from_slice(&id[24..]);
    let node = u64::from_be_bytes(number) as usize;
    (node_id(node) == *id).then_some(node)
}
