//! What the rewarder promises, on the real binary: runs without a node from the command line, epochs of a node from an
//! upload to settled payouts through kills and crowds, the node's own usage, and the page of an epoch in a browser.
//!
//! Each test has its own node on free ports. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

#[path = "rewarder/cli.rs"]
mod cli;
#[path = "rewarder/corrections.rs"]
mod corrections;
#[path = "rewarder/crowds.rs"]
mod crowds;
#[path = "rewarder/doctor.rs"]
mod doctor;
#[path = "rewarder/http_ledger.rs"]
mod http_ledger;
#[path = "rewarder/ledger.rs"]
mod ledger;
#[path = "rewarder/page.rs"]
mod page;
#[path = "rewarder/postgres.rs"]
mod postgres;
#[path = "operations/process.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod process;
#[path = "rewarder/service.rs"]
mod service;
#[path = "rewarder/usage.rs"]
mod usage;

use testkit::{MailboxClient, Node, NodeOptions, ask, eventually};

fn options() -> NodeOptions {
    Node::options_for(env!("CARGO_BIN_EXE_macronode"))
}

/// The operator's client of a node whose data directory belongs to the test.
async fn client(node: &process::Process) -> MailboxClient {
    MailboxClient::connect(node.api, &node.token).await.expect("the node listens")
}
