//! The node as operators meet it: the command line, reloads, the data directory, metrics, signals, the service manager.

#[path = "operations/amnesia.rs"]
mod amnesia;
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
#[path = "operations/token.rs"]
mod token;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use ron_kernel::Deadline;
use testkit::{Client, Node, NodeOptions, Reply};

/// What a loaded two-core machine may take for anything that is not measured.
const PATIENCE: Duration = Duration::from_secs(15);

fn options() -> NodeOptions {
    Node::options_for(env!("CARGO_BIN_EXE_macronode"))
}

/// One request on a new connection.
async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Reply, Box<dyn std::error::Error>> {
    Ok(Client::connect(address).await?.request(method, path, headers, body).await?)
}

/// One echo on a new connection.
async fn echo(address: SocketAddr) -> Result<Reply, Box<dyn std::error::Error>> {
    ask(address, Method::POST, "/v1/echo", &[("content-type", "application/json")], r#"{"message":"hello"}"#).await
}

/// Asks again and again until there is something.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = Deadline::after(PATIENCE).run("eventually", looking).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Whether a tool is there; says loudly that a test is skipped without it.
fn has_tool(name: &str, test: &str) -> bool {
    let found = std::process::Command::new(name).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP SKIP SKIP {test}: {name} is not installed");
    }
    found
}
