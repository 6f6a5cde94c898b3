//! What a long backlog costs in memory, and how soon a node with one is ready again.

use std::path::Path;
use std::time::Duration;

use ron_kernel::clock;
use rustix::process::Signal;

use super::cell::{Payload, Plan};
use super::node::{Node, NodeOptions};
use super::scratch::Scratch;
use crate::report::{Row, Target};

const PAYLOAD_BYTES: usize = 1024;
/// Disk for each message, with what the log adds and a spare segment or two.
const DISK_BYTES_EACH: u64 = 1280;
const GIB: f64 = (1_u64 << 30) as f64;

/// Fills a node, reads its memory, ends it twice (asked to, and killed) and times its way back.
pub async fn measure(plan: &Plan, binary: &Path, scratch: &Scratch) -> anyhow::Result<Vec<Row>> {
    let messages: u64 = plan.size.pick(1_000_000, 10_000_000);
    let (needed, free) = (messages * DISK_BYTES_EACH, scratch.free_bytes()?);
    anyhow::ensure!(
        free > needed,
        "{messages} messages need {:.0} GiB of disk and {:.0} GiB are free",
        needed as f64 / GIB,
        free as f64 / GIB
    );
    let folder = scratch.folder("memory")?;
    let options = NodeOptions { binary: binary.to_owned(), folder, amnesia: false, settings: String::new() };
    let node = options.start().await?;
    eprintln!("filling a queue with {messages} messages of {PAYLOAD_BYTES} B");
    let began = clock::now();
    node.fill(&Payload::new(PAYLOAD_BYTES), messages).await?;
    let filling = began.elapsed();
    let rss = node.rss_bytes()?;
    eprintln!("  filled in {:.0} s, {:.0} MiB", filling.as_secs_f64(), rss as f64 / 1_048_576.0);
    let mut rows = vec![memory_row(messages, rss, filling)];
    let (node, row) = back_after(&options, node, messages, Signal::TERM, "asked to end").await?;
    rows.push(row);
    let (node, row) = back_after(&options, node, messages, Signal::KILL, "killed").await?;
    rows.push(row);
    node.end(Signal::KILL)?;
    options.clear()?;
    Ok(rows)
}

async fn back_after(
    options: &NodeOptions,
    node: Node,
    messages: u64,
    signal: Signal,
    ended: &str,
) -> anyhow::Result<(Node, Row)> {
    let ending = node.end(signal)?;
    let node = options.start().await?;
    let (seconds, rss) = (node.took.as_secs_f64(), node.rss_bytes()? as f64 / 1_048_576.0);
    eprintln!("  {ended}: ready again in {seconds:.1} s");
    let row = Row {
        name: format!("restart with {messages} waiting, {ended}"),
        ours: format!("{seconds:.1} s"),
        value: Some(seconds),
        peer: String::new(),
        ratio: None,
        target: Target::Below(20.0, "s"),
        meaning: format!(
            "From spawning the process on the data directory of one that was {ended} (which took {:.1} s) until \
             /readyz answers 200; it holds {rss:.0} MiB then.",
            ending.as_secs_f64()
        ),
    };
    Ok((node, row))
}

fn memory_row(messages: u64, rss: u64, filling: Duration) -> Row {
    let mebibytes = rss as f64 / 1_048_576.0;
    Row {
        name: format!("memory with {messages} waiting"),
        ours: format!("{mebibytes:.0} MiB"),
        value: Some(mebibytes),
        peer: String::new(),
        ratio: None,
        target: Target::Below(1024.0, "MiB"),
        meaning: format!(
            "VmRSS after messages of {PAYLOAD_BYTES} B were sent over HTTP in batches of 100, {:.0} a second.",
            messages as f64 / filling.as_secs_f64()
        ),
    }
}
