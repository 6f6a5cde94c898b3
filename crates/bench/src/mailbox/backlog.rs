//! Whether a long queue is slower than an empty one: two nodes, one of them filled before.

use rustix::process::Signal;

use super::cell::{Cell, MAIN_CYCLE, MAIN_SEND, Payload, Plan};
use super::drive::drive;
use super::node::{Node, NodeOptions};
use super::scratch::{Scratch, settle_disk};
use crate::report::{Row, Target};
use crate::stats::{self, Spread};

/// Measures sending, and sending with receiving, on both nodes in turn.
pub async fn measure(plan: &Plan, binary: &std::path::Path, scratch: &Scratch) -> anyhow::Result<Vec<Row>> {
    let messages = plan.size.pick(100_000, 1_000_000);
    let payload = Payload::new(MAIN_SEND.payload_bytes);
    let options = |name| -> anyhow::Result<NodeOptions> {
        Ok(NodeOptions {
            binary: binary.to_owned(),
            folder: scratch.folder(name)?,
            amnesia: false,
            settings: String::new(),
        })
    };
    let (empty, full) = (options("backlog-empty")?, options("backlog-full")?);
    let full_node = full.start().await?;
    eprintln!("filling a queue with {messages} messages");
    full_node.fill(&payload, messages).await?;
    let mut rows = Vec::new();
    for cell in [MAIN_SEND, MAIN_CYCLE] {
        let (mut of_full, mut of_empty) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            let empty_node = empty.start().await?;
            // They take turns in going first.
            let first_is_full = round % 2 == 0;
            for is_full in [first_is_full, !first_is_full] {
                let (node, rates) = if is_full { (&full_node, &mut of_full) } else { (&empty_node, &mut of_empty) };
                let rate = load(node, cell, plan, &payload).await?;
                eprintln!("  {cell}: {rate:.0}/s with {} backlog", if is_full { "a" } else { "no" });
                rates.push(rate);
            }
            empty_node.end(Signal::KILL)?;
            empty.clear()?;
        }
        rows.push(row(cell, messages, &of_full, &of_empty));
    }
    full_node.end(Signal::KILL)?;
    full.clear()?;
    Ok(rows)
}

async fn load(node: &Node, cell: Cell, plan: &Plan, payload: &Payload) -> anyhow::Result<f64> {
    settle_disk();
    let clients = node.clients(cell.in_flight, payload).await?;
    Ok(drive(clients, cell.workload, plan.times).await?.per_second)
}

fn row(cell: Cell, messages: u64, of_full: &[f64], of_empty: &[f64]) -> Row {
    let median = |rates: &[f64]| Spread::of(rates).map_or(0.0, |rate| rate.median);
    Row {
        name: format!("{} with {messages} waiting, {} in flight", cell.workload, cell.in_flight),
        ours: format!("{:.0}/s", median(of_full)),
        value: None,
        peer: format!("{:.0}/s (empty queue)", median(of_empty)),
        ratio: stats::ratios(of_full, of_empty),
        target: Target::RatioAtLeast(0.9),
        meaning: format!(
            "The same load, durable, {} B, on a node whose queue holds {messages} messages and on one that began empty; \
             what is received is the oldest of those that wait.",
            cell.payload_bytes
        ),
    }
}
