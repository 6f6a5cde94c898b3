//! What the index promises, on the real binary: published on one node and found on another, kept over a restart and
//! not kept in amnesia mode; the routing API that IPFS clients speak; its commands, and everything it refuses.
//!
//! Each test has its own nodes on ports of its own. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

mod cli;
mod cluster;
mod deadline;
mod first_line;
mod flood;
mod full_disk;
mod network;
mod node;
mod possession;
mod refusals;
mod restarts;
mod routers;
mod routing;
mod stopped;
mod surface;
mod traces;
mod upstream;
