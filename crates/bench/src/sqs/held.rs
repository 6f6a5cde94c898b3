//! Whether a queue holds as many messages in flight as is promised: all are received, counted, and then deleted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context as _;
use ron_kernel::clock;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{BATCH, Queue, call, take_one};
use super::node::SqsNode;
use crate::mailbox::cell::Payload;
use crate::mailbox::http::Connection;
use crate::mailbox::node::NodeOptions;
use crate::mailbox::scratch::Scratch;
use crate::report::{Row, Target};

const HELD: u64 = 100_000;
/// Messages that stay in the queue, so that every receive finds ten.
const SPARE: u64 = 1_000;
const CONNECTIONS: usize = 16;
/// Visibility timeout in seconds: half a day, the longest that SQS allows.
const VISIBILITY_S: u64 = 43_200;

/// Leases them, counts them, deletes them.
pub async fn measure(binary: &Path, scratch: &Scratch, body_bytes: usize) -> anyhow::Result<Row> {
    let options = NodeOptions {
        binary: binary.to_owned(),
        folder: scratch.folder("held")?,
        amnesia: false,
        settings: String::new(),
    };
    let node = SqsNode::start(&options).await?;
    let queue = node.queue().await?;
    eprintln!("holding {HELD} messages in flight");
    queue.fill(&Payload::new(body_bytes), HELD + SPARE).await?;
    let began = clock::now();
    let handles = receive_all(&queue).await?;
    let receiving = began.elapsed();
    let (hidden, visible) = counts(&queue).await?;
    let rss = node.node.rss_bytes()?;
    let began = clock::now();
    let deleted = delete_all(&queue, handles).await?;
    let deleting = began.elapsed();
    let (hidden_after, visible_after) = counts(&queue).await?;
    eprintln!(
        "  {hidden} in flight, {visible} waiting; {deleted} deleted, {hidden_after} and {visible_after} are left"
    );
    node.node.end(Signal::KILL)?;
    options.clear()?;
    // One that was lost would be missing from all three.
    let held = hidden.min(deleted).min(hidden.saturating_sub(hidden_after));
    Ok(row(held, rss, receiving, deleting))
}

fn row(held: u64, rss: u64, receiving: Duration, deleting: Duration) -> Row {
    let per_second = |time: Duration| HELD as f64 / time.as_secs_f64();
    Row {
        name: format!("{HELD} messages in flight"),
        ours: format!("{held} held"),
        value: Some(held as f64),
        peer: String::new(),
        ratio: None,
        target: Target::AtLeast(HELD as f64, "held"),
        meaning: format!(
            "Received ten at a time over {CONNECTIONS} connections ({:.0} a second), counted by \
             ApproximateNumberOfMessagesNotVisible, then each deleted by its receipt, ten at a time ({:.0} a second); \
             the node holds {:.0} MiB with all of them in flight.",
            per_second(receiving),
            per_second(deleting),
            rss as f64 / 1_048_576.0
        ),
    }
}

/// The receipts of all that are received, ten in each list.
async fn receive_all(queue: &Queue) -> anyhow::Result<Vec<Vec<String>>> {
    let left = Arc::new(AtomicU64::new(HELD / BATCH));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (queue, left) = (queue.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            let mut connection = Connection::open(queue.signer.address).await?;
            let body = json!({
                "QueueUrl": queue.url, "MaxNumberOfMessages": BATCH, "VisibilityTimeout": VISIBILITY_S,
            });
            let mut handles: Vec<Vec<String>> = Vec::new();
            while take_one(&left) {
                let mut ten = Vec::new();
                while (ten.len() as u64) < BATCH {
                    let mut body = body.clone();
                    body["MaxNumberOfMessages"] = (BATCH - ten.len() as u64).into();
                    let answer = call(&mut connection, &queue.signer, "ReceiveMessage", &body).await?;
                    let messages = answer["Messages"].as_array();
                    let messages = messages.with_context(|| format!("nothing received: {answer}"))?;
                    ten.extend(
                        messages.iter().filter_map(|message| Some(message["ReceiptHandle"].as_str()?.to_owned())),
                    );
                }
                handles.push(ten);
            }
            anyhow::Ok(handles)
        });
    }
    let handles: anyhow::Result<Vec<_>> = tasks.join_all().await.into_iter().collect();
    Ok(handles?.into_iter().flatten().collect())
}

/// Deletes all messages; returns how many were deleted.
async fn delete_all(queue: &Queue, handles: Vec<Vec<String>>) -> anyhow::Result<u64> {
    let mut tasks = JoinSet::new();
    for share in handles.chunks(handles.len().div_ceil(CONNECTIONS)) {
        let (queue, share) = (queue.clone(), share.to_vec());
        tasks.spawn(async move {
            let mut connection = Connection::open(queue.signer.address).await?;
            let mut deleted = 0;
            for ten in share {
                let entry = |(id, handle)| json!({ "Id": format!("{id}"), "ReceiptHandle": handle });
                let entries: Vec<Value> = ten.iter().enumerate().map(entry).collect();
                let body = json!({ "QueueUrl": queue.url, "Entries": entries });
                let answer = call(&mut connection, &queue.signer, "DeleteMessageBatch", &body).await?;
                deleted += answer["Successful"].as_array().map_or(0, Vec::len) as u64;
            }
            anyhow::Ok(deleted)
        });
    }
    let deleted: anyhow::Result<Vec<u64>> = tasks.join_all().await.into_iter().collect();
    Ok(deleted?.into_iter().sum())
}

/// Messages in flight, and those that wait.
async fn counts(queue: &Queue) -> anyhow::Result<(u64, u64)> {
    const NAMES: [&str; 2] = ["ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessages"];
    let answer = queue.ask("GetQueueAttributes", json!({ "AttributeNames": NAMES })).await?;
    let count = |name: &str| {
        let text = answer["Attributes"][name].as_str();
        text.and_then(|text| text.parse().ok()).with_context(|| format!("no {name}: {answer}"))
    };
    Ok((count(NAMES[0])?, count(NAMES[1])?))
}
