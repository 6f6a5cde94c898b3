//! What the overlay promises, on the real binary: nodes joined as line, ring, star and mesh, over TLS; kills and
//! restarts; who may do what; events by HTTP and WebSocket; its commands, and clusters on one machine.
//!
//! Each test has its own nodes on ports of its own. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

mod access;
mod cli;
mod cluster;
mod events;
mod frames;
mod idle;
mod page;
mod peers;
mod quic;
mod restarts;
mod settings;
mod shapes;
mod signed;
mod stopped;
mod streams;
mod subscriber;
mod websocket;
