//! The black-box tests: what the node promises, on the real binary, as one executable with a module for each suite.
//!
//! .config/nextest.toml says by module which of them have the machine to themselves.

mod client;
mod cluster_process;
mod contract;
mod docs;
mod example_service;
mod gates;
mod hardening;
mod hostile;
mod index;
mod mailbox;
mod member;
mod nextest;
mod operations;
mod overlay;
mod process;
mod readme;
mod rewarder;

use testkit::{Alone, MailboxClient, Node, NodeOptions};

/// A node of this build.
fn options() -> NodeOptions {
    Node::options_for(process::BINARY)
}

/// The turn of a test that measures: two of them would measure each other.
async fn alone() -> Alone {
    testkit::alone(env!("CARGO_TARGET_TMPDIR")).await
}

/// The operator's client of a node whose data directory belongs to the test.
async fn client(node: &process::Process) -> MailboxClient {
    MailboxClient::connect(node.api, &node.token).await.expect("the node listens")
}
