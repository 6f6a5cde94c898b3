//! The rules of docs/security.md on the real process: nobody gets in, nothing wedges, nobody stops the node.
//!
//! A test is named after its rule: `rule_07_…` is the seventh.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

#[path = "hardening/abusers.rs"]
mod abusers;
#[path = "hardening/callers.rs"]
mod callers;
#[path = "hardening/clock.rs"]
mod clock;
#[path = "hardening/files.rs"]
mod files;
#[path = "hardening/memory.rs"]
mod memory;
#[path = "hardening/moves.rs"]
mod moves;
#[path = "operations/process.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod process;
#[path = "hardening/reads.rs"]
mod reads;
#[path = "hardening/reload.rs"]
mod reload;
#[path = "hardening/room.rs"]
mod room;
#[path = "hardening/sqs.rs"]
mod sqs;
#[path = "hardening/tokens.rs"]
mod tokens;

use testkit::{Node, NodeOptions, ask, eventually};

fn options() -> NodeOptions {
    Node::options_for(env!("CARGO_BIN_EXE_macronode"))
}
