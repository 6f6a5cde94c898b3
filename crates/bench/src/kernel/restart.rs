//! How long a killed worker takes to come back.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::Method;
use ron_kernel::{Deadline, clock};
use serde_json::Value;
use testkit::{Client, Node, Plane};

use super::Size;
use crate::process::node_binary;
use crate::report::{Row, Target};
use crate::stats::Spread;

/// Number of workers: enough that the same one is seldom hit twice, which would double its delay.
const WORKERS: &str = "64";
const LOOK_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills workers one after the other and waits for each.
pub async fn measure(size: Size) -> anyhow::Result<Vec<Row>> {
    let wanted = size.pick(4, 20);
    let node = Node::options_for(node_binary()?).chaos().env("MACRO_WORKERS", WORKERS).start().await?;
    let mut client = Client::connect(node.admin).await?;
    let mut millis = Vec::new();
    for _ in 0..wanted * 2 {
        let (took, restarts) = kill_one(&node, &mut client).await?;
        // A second restart within the minute draws from a window twice as long: still within the promise; a third not.
        if restarts <= 2 {
            millis.push(took.as_secs_f64() * 1e3);
        }
        if millis.len() == wanted {
            break;
        }
    }
    let spread = Spread::of(&millis).context("no worker came back")?;
    Ok(vec![Row {
        name: "restart of a killed worker".to_owned(),
        ours: format!("p50 {:.0} ms ({:.0} to {:.0})", spread.median, spread.min, spread.max),
        value: Some(spread.median),
        peer: String::new(),
        ratio: None,
        target: Target::Below(600.0, "ms"),
        meaning: format!(
            "From asking for the kill until the topology shows the worker running again, {} times; the restart law \
             itself waits 100 to 500 ms at the first time.",
            millis.len()
        ),
    }])
}

/// Kills one worker; how long it was away, and how often it was restarted in the last minute.
async fn kill_one(node: &Node, client: &mut Client) -> anyhow::Result<(Duration, u64)> {
    let before = topology(client).await?;
    let began = clock::now();
    let killed = node.post(Plane::Admin, "/chaos/kill?task=worker", Bytes::new(), &[]).await?.json()?;
    let instance = killed_instance(&killed).with_context(|| format!("nobody was hit: {killed}"))?;
    let total = |topology: &Value| worker(topology, instance).and_then(|worker| worker["restarts_total"].as_u64());
    let restarts_before = total(&before).context("the worker was not in the topology")?;
    let deadline = Deadline::after(PATIENCE);
    while !deadline.has_passed() {
        let now = topology(client).await?;
        if let Some(worker) = worker(&now, instance)
            && worker["state"] == "running"
            && total(&now) > Some(restarts_before)
        {
            return Ok((began.elapsed(), worker["restarts_60s"].as_u64().unwrap_or_default()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    anyhow::bail!("worker {instance} did not come back within {PATIENCE:?}")
}

async fn topology(client: &mut Client) -> anyhow::Result<Value> {
    client.request(Method::GET, "/topology", &[], Bytes::new()).await?.json()
}

fn worker(topology: &Value, instance: u64) -> Option<&Value> {
    topology["tasks"].as_array()?.iter().find(|task| task["name"] == "worker" && task["instance"] == instance)
}

/// The number in `{"hit":["worker[7]"]}`.
fn killed_instance(killed: &Value) -> Option<u64> {
    killed["hit"][0].as_str()?.strip_prefix("worker[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_victim_is_found_in_the_topology() {
        assert_eq!(killed_instance(&json!({ "hit": ["worker[17]"] })), Some(17));
        assert_eq!(killed_instance(&json!({ "hit": [] })), None);
        let topology = json!({ "tasks": [
            { "name": "other", "instance": 1 },
            { "name": "worker", "instance": 0 },
            { "name": "worker", "instance": 1, "state": "running" },
        ] });
        assert_eq!(worker(&topology, 1).map(|worker| &worker["state"]), Some(&json!("running")));
        assert_eq!(worker(&topology, 2), None);
    }
}
