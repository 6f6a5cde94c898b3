//! What the overlay promises, on the real binary: nodes joined as line, ring, star and mesh, over TLS; kills and
//! restarts; who may do what; events by HTTP and WebSocket; its commands, and clusters on one machine.
//!
//! Each test has its own nodes on ports of its own. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

#[path = "overlay/access.rs"]
mod access;
#[path = "overlay/cli.rs"]
mod cli;
#[path = "overlay/cluster.rs"]
mod cluster;
#[path = "operations/cluster_process.rs"]
mod cluster_process;
#[path = "overlay/events.rs"]
mod events;
#[path = "overlay/frames.rs"]
mod frames;
#[path = "overlay/idle.rs"]
mod idle;
#[path = "overlay/member.rs"]
mod member;
#[path = "overlay/page.rs"]
mod page;
#[path = "overlay/peers.rs"]
mod peers;
#[path = "operations/process.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod process;
#[cfg(feature = "quic")]
#[path = "overlay/quic.rs"]
mod quic;
#[path = "overlay/restarts.rs"]
mod restarts;
#[path = "overlay/settings.rs"]
mod settings;
#[path = "overlay/shapes.rs"]
mod shapes;
#[path = "overlay/signed.rs"]
mod signed;
#[path = "overlay/stopped.rs"]
mod stopped;
#[path = "overlay/streams.rs"]
mod streams;
#[path = "overlay/subscriber.rs"]
mod subscriber;
#[path = "overlay/websocket.rs"]
mod websocket;

use testkit::{ask, eventually};
