//! Real networks on loopback, in one process: nodes of this crate, and peers that break the rules.

#[path = "network/hostile.rs"]
mod hostile;
#[path = "network/misbehaviour.rs"]
mod misbehaviour;
#[path = "network/node.rs"]
mod node;
#[path = "network/together.rs"]
mod together;
