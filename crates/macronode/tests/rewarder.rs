//! What the rewarder promises, on the real binary: runs without a node from the command line.

#[path = "rewarder/cli.rs"]
mod cli;
#[path = "operations/process.rs"]
#[allow(dead_code, reason = "shared with another suite, which needs all of it")]
mod process;

use testkit::{ask, eventually};
