//! Attacks on a real node through real sockets: whatever one client does, the next one is served.

mod crowd;
mod frames;
mod large;
mod malformed;
mod slow;
mod tls;
mod wire;

use std::time::Duration;

use testkit::{Node, PATIENCE_MAX};

use crate::options;

/// What a loaded two-core machine may take on top of a limit.
const SLACK: Duration = Duration::from_secs(10);

/// A node with the development routes and this configuration.
async fn start(config: &str) -> Node {
    options().dev().config(config).start().await.expect("the node starts")
}

/// A new client gets its echo.
async fn assert_still_serves(node: &Node) {
    let answer = wire::within(SLACK, "echo", wire::send(node.api, &wire::echo("still here"))).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, &answer.json()["message"]), (200, &"still here".into()));
}

/// Waits until the series has a value that `holds`.
async fn wait_for_metric(node: &Node, series: &str, holds: impl Fn(f64) -> bool) -> f64 {
    let waiting = async {
        loop {
            let value = node.metric(series).await;
            if holds(value) {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = ron_kernel::Deadline::after(PATIENCE_MAX).run("metric", waiting).await;
    match waited {
        Ok(value) => value,
        Err(_) => panic!("{series} stays at {}", node.metric(series).await),
    }
}
