//! How long a page of a long list of queues takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ron_kernel::clock;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{call, take_one};
use super::node::SqsNode;
use super::sign::Signer;
use crate::mailbox::http::Connection;
use crate::mailbox::node::NodeOptions;
use crate::mailbox::scratch::Scratch;
use crate::report::{Row, Target};

const QUEUES: u64 = 10_000;
const PAGE: usize = 1000;
const CONNECTIONS: usize = 16;
const PASSES: usize = 5;

/// Makes the queues and lists all of them several times.
pub async fn measure(binary: &Path, scratch: &Scratch) -> anyhow::Result<Row> {
    let options = NodeOptions {
        binary: binary.to_owned(),
        folder: scratch.folder("listing")?,
        amnesia: false,
        settings: String::new(),
    };
    let node = SqsNode::start(&options).await?;
    eprintln!("making {QUEUES} queues");
    let began = clock::now();
    create_all(&node.signer).await?;
    let making = began.elapsed();
    let mut pages = Vec::new();
    for _ in 0..PASSES {
        let pass = list_all(&node.signer).await?;
        anyhow::ensure!(pass.len() as u64 == QUEUES / PAGE as u64, "{} pages", pass.len());
        pages.extend(pass);
    }
    node.node.end(Signal::KILL)?;
    options.clear()?;
    pages.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (median_ms, slowest_ms) = (ms(pages[pages.len() / 2]), ms(pages[pages.len() - 1]));
    eprintln!("  made in {:.1} s; a page takes {median_ms:.1} ms, at most {slowest_ms:.1} ms", making.as_secs_f64());
    Ok(Row {
        name: format!("{QUEUES} queues listed, {PAGE} a page"),
        ours: format!("slowest page {slowest_ms:.1} ms, median {median_ms:.1} ms"),
        value: Some(slowest_ms),
        peer: String::new(),
        ratio: None,
        target: Target::Below(100.0, "ms"),
        meaning: format!(
            "ListQueues with MaxResults {PAGE} and NextToken until the end, {PASSES} times; the time of a page is that \
             of request and whole answer. The queues were made at {:.0} a second.",
            QUEUES as f64 / making.as_secs_f64()
        ),
    })
}

async fn create_all(signer: &Arc<Signer>) -> anyhow::Result<()> {
    let left = Arc::new(AtomicU64::new(QUEUES));
    let mut tasks = JoinSet::new();
    for number in 0..CONNECTIONS {
        let (signer, left) = (Arc::clone(signer), Arc::clone(&left));
        tasks.spawn(async move {
            let mut connection = Connection::open(signer.address).await?;
            let mut made = 0;
            while take_one(&left) {
                let body = json!({ "QueueName": format!("queue-{number}-{made}") });
                call(&mut connection, &signer, "CreateQueue", &body).await?;
                made += 1;
            }
            Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Lists all queues; returns the time that each page took.
async fn list_all(signer: &Signer) -> anyhow::Result<Vec<Duration>> {
    let mut connection = Connection::open(signer.address).await?;
    let (mut pages, mut listed) = (Vec::new(), 0);
    let mut body = json!({ "MaxResults": PAGE });
    loop {
        let request = signer.request("ListQueues", &body.to_string());
        let began = clock::now();
        let answer = connection.ask(&request).await?;
        pages.push(began.elapsed());
        let answer: Value = serde_json::from_slice(answer)?;
        listed += answer["QueueUrls"].as_array().map_or(0, Vec::len) as u64;
        match answer["NextToken"].as_str() {
            Some(token) => body["NextToken"] = token.into(),
            None => break,
        }
    }
    anyhow::ensure!(listed == QUEUES, "{listed} of {QUEUES} queues were listed");
    Ok(pages)
}
