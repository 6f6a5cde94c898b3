//! The ceilings: the same bytes appended and synced by a bare loop, alone or for tasks that wait, and axum that only
//! parses and answers.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_kernel::clock;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::cell::{Cell, Payload, Times, Workload};
use super::drive::{Client, Sample, new_histogram};
use super::engine;
use super::http::{HttpClient, NodeAccess, Requests};
use super::target::{Measurable, Target};
use crate::process::Server;

/// Written once with zeros, then again and again, so that a sync has no blocks to allocate.
const FILE_BYTES: u64 = 64 << 20;

/// Makes a file of `FILE_BYTES` zeros.
fn filled(path: &Path) -> anyhow::Result<Arc<File>> {
    let file = File::options().create(true).write(true).truncate(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    Ok(Arc::new(file))
}

/// Writes the group behind the last one, or at the start again, and syncs.
fn commit(file: &File, at: &mut u64, group: &[u8]) -> std::io::Result<()> {
    if *at + group.len() as u64 > FILE_BYTES {
        *at = 0;
    }
    file.write_all_at(group, *at)?;
    file.sync_data()?;
    *at += group.len() as u64;
    Ok(())
}

/// Groups of records written and synced one after the other; a group is what is in flight, and each record has as many
/// bytes as the engine's log takes for the message.
pub struct RawLog {
    file: Arc<File>,
}

impl RawLog {
    /// A raw log in a new file that is zero-filled first.
    pub fn new(path: &Path) -> anyhow::Result<RawLog> {
        Ok(RawLog { file: filled(path)? })
    }
}

impl Measurable for RawLog {
    fn measure(&mut self, cell: Cell, times: Times) -> BoxFuture<'_, anyhow::Result<Option<Sample>>> {
        let file = Arc::clone(&self.file);
        async move {
            if cell.workload != Workload::Send {
                return Ok(None);
            }
            let record_bytes = engine::log_bytes_each(&Payload::new(cell.payload_bytes)).await?;
            let looped =
                tokio::task::spawn_blocking(move || append_and_sync(&file, record_bytes, cell.in_flight, times));
            Ok(Some(looped.await.context("the loop panicked")??))
        }
        .boxed()
    }
}

fn append_and_sync(file: &File, record_bytes: usize, in_flight: usize, times: Times) -> anyhow::Result<Sample> {
    let group = Payload::new(record_bytes).bytes.repeat(in_flight);
    let mut micros = new_histogram()?;
    let counted_from = clock::now() + times.warm_up;
    let end = counted_from + times.counted;
    let (mut at, mut began) = (0, clock::now());
    while began < end {
        commit(file, &mut at, &group)?;
        let ended = clock::now();
        if ended >= counted_from && ended < end {
            micros.record_n(((ended - began).as_micros() as u64).max(1), in_flight as u64)?;
        }
        began = ended;
    }
    Ok(Sample::of(micros, times.counted))
}

/// A group commit and nothing else: tasks append as many bytes as the engine's log takes for a message and wait; one
/// thread writes and syncs what has gathered whenever the disk is free.
pub struct GroupCommit {
    file: Arc<File>,
    running: Option<(Arc<Gathering>, JoinHandle<std::io::Result<()>>)>,
}

/// State that the tasks share with the committing thread.
#[derive(Default)]
struct Gathering {
    gathered: Mutex<Gathered>,
    work: Condvar,
}

#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    waiting: Vec<oneshot::Sender<()>>,
    sleeps: bool,
    is_over: bool,
}

/// One client: a task that appends and waits for the sync.
pub struct Appending {
    gathering: Arc<Gathering>,
    record: Bytes,
}

impl GroupCommit {
    /// A group commit in a new file that is zero-filled first.
    pub fn new(path: &Path) -> anyhow::Result<GroupCommit> {
        Ok(GroupCommit { file: filled(path)?, running: None })
    }
}

impl Target for GroupCommit {
    type Client = Appending;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        let gathering = Arc::new(Gathering::default());
        let (file, shared) = (Arc::clone(&self.file), Arc::clone(&gathering));
        self.running = Some((gathering, thread::spawn(move || shared.commit_again_and_again(&file))));
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<Appending>> {
        let (gathering, _) = self.running.as_ref().context("prepared before")?;
        let record = Payload::new(engine::log_bytes_each(payload).await?).bytes;
        let client = || Appending { gathering: Arc::clone(gathering), record: record.clone() };
        Ok(std::iter::repeat_with(client).take(count).collect())
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        if let Some((gathering, thread)) = self.running.take() {
            gathering.lock().is_over = true;
            gathering.work.notify_one();
            let ended = tokio::task::spawn_blocking(|| thread.join()).await?;
            ended.map_err(|_panic| anyhow::anyhow!("the thread panicked"))??;
        }
        Ok(())
    }

    fn can(&self, workload: Workload) -> bool {
        workload == Workload::Send
    }
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_again_and_again(&self, file: &File) -> std::io::Result<()> {
        let (mut at, mut group) = (0, Vec::new());
        loop {
            let waiting = {
                let mut gathered = self.lock();
                while gathered.bytes.is_empty() && !gathered.is_over {
                    gathered.sleeps = true;
                    gathered = self.work.wait(gathered).unwrap_or_else(PoisonError::into_inner);
                }
                gathered.sleeps = false;
                if gathered.bytes.is_empty() {
                    return Ok(());
                }
                std::mem::swap(&mut gathered.bytes, &mut group);
                std::mem::take(&mut gathered.waiting)
            };
            commit(file, &mut at, &group)?;
            group.clear();
            for task in waiting {
                // A task whose time was up has gone.
                let _ = task.send(());
            }
        }
    }
}

impl Client for Appending {
    async fn send(&mut self) -> anyhow::Result<()> {
        let (done, is_durable) = oneshot::channel();
        let sleeps = {
            let mut gathered = self.gathering.lock();
            gathered.bytes.extend_from_slice(&self.record);
            gathered.waiting.push(done);
            std::mem::take(&mut gathered.sleeps)
        };
        if sleeps {
            self.gathering.work.notify_one();
        }
        is_durable.await.context("the thread has ended")
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("nothing can be taken out")
    }
}

/// Body of a send request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendBody {
    topic: String,
    payload_b64: String,
}

#[derive(Serialize)]
struct Sent {
    msg_id: &'static str,
    duplicate: bool,
    durability: &'static str,
}

async fn send(Json(body): Json<SendBody>) -> Json<Sent> {
    // Looked at, so that nothing of the parsing can be left out.
    let duplicate = body.topic.is_empty() || body.payload_b64.is_empty();
    Json(Sent { msg_id: "01ARZ3NDEKTSV4RRFFQ69G5FAV", duplicate, durability: "none" })
}

/// Routes of the bare server.
pub fn router() -> Router {
    Router::new().route("/v1/send", post(send))
}

/// The bare server in its own process.
pub struct BareHttp {
    server: Server,
}

impl BareHttp {
    /// Starts the bare server as a process of its own, from this binary.
    pub fn start() -> anyhow::Result<BareHttp> {
        Ok(BareHttp { server: Server::start("serve-send")? })
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }
}

impl Target for BareHttp {
    type Client = HttpClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<HttpClient>> {
        let node = NodeAccess { address: self.address(), token: String::new() };
        HttpClient::open(count, Requests::new(node, "bench", payload)).await
    }

    fn can(&self, workload: Workload) -> bool {
        workload == Workload::Send
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_group_counts_as_all_its_records() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = RawLog::new(&folder.path().join("log")).expect("a file");
        let times = Times { warm_up: Duration::ZERO, counted: Duration::from_millis(200) };
        let sample = append_and_sync(&log.file, 300, 64, times).expect("a disk");
        assert!(sample.micros.len() >= 64 && sample.micros.len().is_multiple_of(64), "{}", sample.micros.len());
        assert_eq!(log.file.metadata().expect("a file").len(), FILE_BYTES, "it never grows");
    }

    #[tokio::test]
    async fn a_group_commit_answers_everybody_who_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bare = GroupCommit::new(&folder.path().join("log")).expect("a file");
        let cell = Cell { workload: Workload::Send, in_flight: 64, payload_bytes: 256 };
        let times = Times { warm_up: Duration::ZERO, counted: Duration::from_millis(200) };
        let sample = bare.measure(cell, times).await.expect("a disk").expect("it can send");
        assert!(sample.micros.len() >= 64, "{}", sample.micros.len());
        assert_eq!(bare.file.metadata().expect("a file").len(), FILE_BYTES, "it never grows");
        let cycle = Cell { workload: Workload::Cycle, ..cell };
        assert!(bare.measure(cycle, times).await.expect("no failure").is_none(), "nothing can be taken out");
    }
}
