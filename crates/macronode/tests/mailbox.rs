//! What the mailbox promises, on the real process: nothing acknowledged is lost to kill -9 or a bad disk, and the gates
//! mailbox-once, mailbox-visibility, mailbox-kill, mailbox-order, backpressure and chaos.
//!
//! Each test has its own node on free ports. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

#[path = "mailbox/audit.rs"]
mod audit;
#[path = "mailbox/checker.rs"]
mod checker;
#[path = "mailbox/disk.rs"]
mod disk;
#[path = "mailbox/events.rs"]
mod events;
#[path = "mailbox/faults.rs"]
mod faults;
#[path = "mailbox/gates.rs"]
mod gates;
#[path = "mailbox/kill.rs"]
mod kill;
#[path = "operations/process.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod process;
#[path = "mailbox/refusals.rs"]
mod refusals;
#[path = "mailbox/restart.rs"]
mod restart;
#[path = "mailbox/scrub.rs"]
mod scrub;

use testkit::{Alone, MailboxClient, Node, NodeOptions, PATIENCE_MAX as PATIENCE, ask, eventually};

fn options() -> NodeOptions {
    Node::options_for(env!("CARGO_BIN_EXE_macronode"))
}

/// The turn of a test that measures: two of them would measure each other.
async fn alone() -> Alone {
    testkit::alone(env!("CARGO_TARGET_TMPDIR")).await
}

/// The operator's client of a node whose data directory belongs to the test.
async fn client(node: &process::Process) -> MailboxClient {
    MailboxClient::connect(node.api, &node.token).await.expect("the node listens")
}

/// Numbers that differ from run to run.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        use std::hash::{BuildHasher as _, RandomState};
        Dice(RandomState::new().hash_one("dice") | 1)
    }

    /// From `low` on, below `high`.
    fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + self.0 % (high - low)
    }
}
