//! The rules of docs/security.md on the real process: nobody gets in, nothing wedges, nobody stops the node.
//!
//! A test is named after its rule: `rule_07_…` is the seventh.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

mod abusers;
mod callers;
mod clock;
mod files;
mod memory;
mod moves;
mod reads;
mod reload;
mod room;
mod sqs;
mod tokens;
