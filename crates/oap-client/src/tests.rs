//! The client against a small node in the same process, which keeps the protocol and nothing else.

mod against_node;
mod dropped;
mod node;
