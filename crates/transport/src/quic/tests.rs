//! Tests of whole sessions over QUIC: two sides over a network in memory or over UDP, and sides that break the rules.

mod closing;
mod deadlines;
mod harness;
mod hello;
mod identity;
mod network;
mod pressure;
mod talking;
