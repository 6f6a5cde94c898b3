//! What only sessions over QUIC have: streams beside each other, packets that are lost, an endpoint of this crate. What
//! both carriers have is tried in `crate::tests`.

mod closing;
mod deadlines;
pub(crate) mod harness;
mod network;
mod pressure;
mod talking;
