//! What the node holds in memory, at rest and after load.

use std::time::Duration;

use testkit::Node;

use super::Size;
use crate::load::{self, Shape};
use crate::process::node_binary;
use crate::report::{Row, Target};
use crate::servers::ECHO;

const CONNECTIONS: usize = 64;
const TARGET: Target = Target::Below(40.0, "MiB");

/// Reads the resident memory of one node twice.
pub async fn measure(size: Size) -> anyhow::Result<Vec<Row>> {
    let (rest, busy) = size.pick(
        (Duration::from_millis(300), Duration::from_millis(500)),
        (Duration::from_secs(3), Duration::from_secs(10)),
    );
    let node = Node::options_for(node_binary()?).dev().start().await?;
    tokio::time::sleep(rest).await;
    let idle = node.rss_bytes();
    let shape = Shape::post(ECHO, r#"{"message":"sixteen letters."}"#);
    let load = load::run(node.api, CONNECTIONS, &shape, busy).await?;
    tokio::time::sleep(rest).await;
    let after = node.rss_bytes();
    let rest = rest.as_secs_f64();
    Ok(vec![
        row("memory at rest", idle, format!("VmRSS {rest:.1} s after the node was ready.")),
        row(
            "memory after load",
            after,
            format!(
                "VmRSS {rest:.1} s after {:.1} s of load ({} echoes from {CONNECTIONS} connections): what stays.",
                busy.as_secs_f64(),
                load.requests
            ),
        ),
    ])
}

fn row(name: &str, bytes: u64, meaning: String) -> Row {
    let mebibytes = bytes as f64 / 1_048_576.0;
    Row {
        name: name.to_owned(),
        ours: format!("{mebibytes:.1} MiB"),
        // Nothing read is no small number.
        value: (bytes > 0).then_some(mebibytes),
        peer: String::new(),
        ratio: None,
        target: TARGET,
        meaning,
    }
}
