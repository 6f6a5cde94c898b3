//! The node as operators meet it: the command line, reloads, the data directory, metrics, signals, the service manager.

#[path = "operations/amnesia.rs"]
mod amnesia;
#[path = "operations/amnesia_memory.rs"]
mod amnesia_memory;
#[path = "operations/commands.rs"]
mod commands;
#[path = "operations/control.rs"]
mod control;
#[path = "operations/mailbox_cli.rs"]
mod mailbox_cli;
#[path = "operations/metrics.rs"]
mod metrics;
#[path = "operations/process.rs"]
mod process;
#[path = "operations/reload.rs"]
mod reload;
#[path = "operations/restart.rs"]
mod restart;
#[path = "operations/sqs_cli.rs"]
mod sqs_cli;
#[path = "operations/token.rs"]
mod token;

use std::net::SocketAddr;

use http::Method;
use testkit::{Node, NodeOptions, PATIENCE_MAX as PATIENCE, Reply, ask, eventually};

fn options() -> NodeOptions {
    Node::options_for(env!("CARGO_BIN_EXE_macronode"))
}

/// One echo on a new connection.
async fn echo(address: SocketAddr) -> Result<Reply, Box<dyn std::error::Error>> {
    ask(address, Method::POST, "/v1/echo", &[("content-type", "application/json")], r#"{"message":"hello"}"#).await
}

/// Whether a tool is there; says loudly that a test is skipped without it.
fn has_tool(name: &str, test: &str) -> bool {
    let found = std::process::Command::new(name).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP SKIP SKIP {test}: {name} is not installed");
    }
    found
}
