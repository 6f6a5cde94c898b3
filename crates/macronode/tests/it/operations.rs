//! The node as operators meet it: the command line, reloads, the data directory, metrics, signals, the service manager.

mod amnesia;
mod amnesia_memory;
mod commands;
mod control;
mod isolation;
mod mailbox_cli;
mod metrics;
mod reload;
mod restart;
mod sqs_cli;
mod token;

use std::net::SocketAddr;

use http::Method;
use testkit::{Reply, ask};

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
