//! The ceilings: the same bytes appended and synced by a bare loop, and axum that only parses and answers.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use axum::routing::post;
use axum::{Json, Router};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_kernel::clock;
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Payload, Times, Workload};
use super::drive::{Sample, new_histogram};
use super::engine;
use super::http::{Door, HttpClient, Requests};
use super::target::{Measurable, Target};
use crate::process::Server;

/// Written once with zeros, then again and again, so that a sync has no blocks to allocate.
const FILE_BYTES: u64 = 64 << 20;

/// Groups of records written and synced one after the other; a group is what is in flight, and each record has as many
/// bytes as the engine's log takes for the message.
pub struct RawLog {
    file: Arc<File>,
}

impl RawLog {
    /// Fills the file.
    pub fn new(path: PathBuf) -> anyhow::Result<RawLog> {
        let file = File::options().create(true).write(true).truncate(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
        Ok(RawLog { file: Arc::new(file) })
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
        if at + group.len() as u64 > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&group, at)?;
        file.sync_data()?;
        at += group.len() as u64;
        let ended = clock::now();
        if ended >= counted_from && ended < end {
            micros.record_n(((ended - began).as_micros() as u64).max(1), in_flight as u64)?;
        }
        began = ended;
    }
    Ok(Sample::of(micros, times.counted))
}

/// What a send carries.
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

/// The routes of the bare server.
pub fn router() -> Router {
    Router::new().route("/v1/send", post(send))
}

/// The bare server in its own process.
pub struct BareHttp {
    server: Server,
}

impl BareHttp {
    /// Starts this binary once more.
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
        let door = Door { address: self.address(), token: String::new() };
        HttpClient::open(count, Requests::new(door, "bench", payload)).await
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
        let log = RawLog::new(folder.path().join("log")).expect("a file");
        let times = Times { warm_up: Duration::ZERO, counted: Duration::from_millis(200) };
        let sample = append_and_sync(&log.file, 300, 64, times).expect("a disk");
        assert!(sample.micros.len() >= 64 && sample.micros.len().is_multiple_of(64), "{}", sample.micros.len());
        assert_eq!(log.file.metadata().expect("a file").len(), FILE_BYTES, "it never grows");
    }
}
