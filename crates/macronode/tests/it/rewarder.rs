//! What the rewarder promises, on the real binary: runs without a node from the command line, epochs of a node from an
//! upload to settled payouts through kills and crowds, the node's own usage, and the page of an epoch in a browser.
//!
//! Each test has its own node on free ports. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

mod cli;
mod corrections;
mod crowds;
mod doctor;
mod http_ledger;
mod ledger;
mod page;
mod postgres;
mod restored;
mod service;
mod usage;
