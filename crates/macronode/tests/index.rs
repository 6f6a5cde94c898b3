//! What the index promises, on the real binary: published on one node and found on another, kept over a restart and
//! not kept in amnesia mode; the routing API that IPFS clients speak; its commands, and everything it refuses.
//!
//! Each test has its own nodes on ports of its own. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

#[path = "index/cli.rs"]
mod cli;
#[path = "index/cluster.rs"]
mod cluster;
#[path = "operations/cluster_process.rs"]
mod cluster_process;
#[path = "index/deadline.rs"]
mod deadline;
#[path = "index/first_line.rs"]
mod first_line;
#[path = "index/flood.rs"]
mod flood;
#[path = "index/full_disk.rs"]
mod full_disk;
#[path = "overlay/member.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod member;
#[path = "index/network.rs"]
mod network;
#[path = "index/node.rs"]
mod node;
#[path = "index/possession.rs"]
mod possession;
#[path = "operations/process.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod process;
#[path = "index/refusals.rs"]
mod refusals;
#[path = "index/restarts.rs"]
mod restarts;
#[path = "index/routers.rs"]
mod routers;
#[path = "index/routing.rs"]
mod routing;
#[path = "index/stopped.rs"]
mod stopped;
#[path = "index/surface.rs"]
mod surface;
#[path = "index/traces.rs"]
mod traces;
#[path = "index/upstream.rs"]
mod upstream;

use testkit::{ask, eventually};
