//! A network of our binary: a process for each node, stopped by signals, asked over HTTP.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use ron_kernel::{Deadline, clock};
use ron_store::ContentId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Client;
use tokio::task::JoinSet;

use super::lookups::{JOIN_WITHIN, Lookup, Plan, content, warm_up};
use super::node::IndexNode;
use super::thread::{Hindrance, SLOW_BY};

/// A slow process runs for this long between two stops.
const SLOW_WORKS: Duration = Duration::from_millis(5);
/// It keeps no records, so that whatever it finds it was told by others.
const ASKER: &str = "[dht]\nmode = \"client\"\n";

/// The network, with records in it.
pub struct ProcessNetwork {
    nodes: Vec<IndexNode>,
    binary: PathBuf,
    folder: PathBuf,
    askers: AtomicUsize,
}

/// Processes that are hindered until this is dropped.
struct Stopped<'a> {
    nodes: Vec<&'a IndexNode>,
    is_over: Arc<Mutex<bool>>,
    /// Stops and lets go again, if they are slow.
    _stopping: JoinSet<()>,
}

impl ProcessNetwork {
    /// Starts so many processes, joins them through the first, and has records placed.
    pub async fn start(binary: &Path, count: usize, published: u64, folder: &Path) -> anyhow::Result<ProcessNetwork> {
        let folder = folder.join("processes");
        let mut network =
            ProcessNetwork { nodes: Vec::new(), binary: binary.to_owned(), folder, askers: AtomicUsize::new(0) };
        for number in 0..count {
            let node = network.start_one(&format!("node-{number}"), "").await?;
            network.nodes.push(node);
        }
        for node in &network.nodes {
            until("every node knows all others", async || Ok(node.peers().await? >= count - 1)).await?;
        }
        for number in 0..published {
            let node = &network.nodes[number as usize % count];
            node.provide(&content(number).to_string()).await?;
        }
        for node in &network.nodes {
            until("every node has a copy of each record", async || Ok(node.records().await? >= published)).await?;
        }
        Ok(network)
    }

    async fn start_one(&self, name: &str, settings: &str) -> anyhow::Result<IndexNode> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let peers: Vec<_> = self.nodes.first().map(|node| node.address.clone()).into_iter().collect();
        IndexNode::start(&self.binary, folder, settings, &peers).await
    }

    /// A process that joins, and then looks everything up; others are hindered after it has joined.
    pub async fn look_up(&self, plan: &Plan, which: &[usize], how: Option<Hindrance>) -> anyhow::Result<Vec<Lookup>> {
        let number = self.askers.fetch_add(1, Ordering::Relaxed);
        let asker = self.start_one(&format!("asker-{number}"), ASKER).await?;
        until("the asker knows all others", async || Ok(asker.peers().await? >= self.nodes.len())).await?;
        for wanted in warm_up() {
            look_up(asker.api, wanted, false).await?;
        }
        let _stopped = how.map(|how| self.hinder(which, how));
        let mut asking = JoinSet::new();
        let mut pace = tokio::time::interval(plan.every);
        for (wanted, is_published) in plan.wanted() {
            pace.tick().await;
            asking.spawn(look_up(asker.api, wanted, is_published));
        }
        let mut lookups = Vec::new();
        while let Some(ended) = asking.join_next().await {
            lookups.push(ended??);
        }
        Ok(lookups)
    }

    fn hinder(&self, which: &[usize], how: Hindrance) -> Stopped<'_> {
        let nodes: Vec<&IndexNode> = which.iter().map(|number| &self.nodes[*number]).collect();
        let is_over = Arc::new(Mutex::new(false));
        let mut stopping = JoinSet::new();
        for node in &nodes {
            node.signal(Signal::STOP);
            if let (Hindrance::Slow, Some(process)) = (how, node.pid()) {
                stopping.spawn(slow_down(process, Arc::clone(&is_over)));
            }
        }
        Stopped { nodes, is_over, _stopping: stopping }
    }
}

/// Lets a process work for a moment now and then, until it is over.
async fn slow_down(process: Pid, is_over: Arc<Mutex<bool>>) {
    loop {
        tokio::time::sleep(SLOW_BY).await;
        let _ = kill_process(process, Signal::CONT);
        tokio::time::sleep(SLOW_WORKS).await;
        // Under the lock, so that a process which was let go is not stopped once more.
        let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_over {
            return;
        }
        let _ = kill_process(process, Signal::STOP);
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.nodes.iter().for_each(|node| node.signal(Signal::CONT));
    }
}

async fn look_up(api: std::net::SocketAddr, wanted: ContentId, is_published: bool) -> anyhow::Result<Lookup> {
    let mut client = Client::connect(api).await?;
    let began = clock::now();
    let reply = client.request(Method::GET, &format!("/resolve/{wanted}?fresh=true"), &[], "").await?;
    let took = began.elapsed();
    anyhow::ensure!(reply.status == 200, "{} {}", reply.status, reply.text());
    let answer: Value = reply.json()?;
    let course = answer["course"].as_array().map_or(&[][..], Vec::as_slice);
    let asked = || course.iter().filter(|ask| ask["end"] != "skipped");
    Ok(Lookup {
        is_published,
        first: (answer["outcome"] == "found").then_some(took),
        end: Some(took),
        asks: asked().count(),
        hedges: asked().filter(|ask| ask["hedge"] == true).count(),
    })
}

async fn until(what: &str, is_so: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let by = Deadline::after(JOIN_WITHIN);
    while !is_so().await? {
        anyhow::ensure!(!by.has_passed(), "not within {JOIN_WITHIN:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
