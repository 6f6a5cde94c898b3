//! Sessions that stand and say nothing: what each costs a node.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use oap_client::{Client, PeerAddress};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::node::{CROWD, LaneNode, LaneNodeOptions};
use crate::mailbox::scratch::Scratch;

/// Sessions that begin at once.
const BEGIN_AT_ONCE: usize = 32;
/// Descriptors that a process needs beside those of its sessions.
const OTHER_FILES: u64 = 500;
/// Sessions before those that are counted.
const SESSIONS_BEFORE: usize = 500;
/// Time before memory is read: what starting and handshakes took for a moment is given back by then.
const REST: Duration = Duration::from_secs(3);

/// What idle sessions cost.
#[derive(Clone, Copy, Debug)]
pub struct IdleFigures {
    /// Sessions that stood.
    pub sessions: usize,
    /// Bytes of the node's memory for each of them.
    pub bytes_each: f64,
}

/// Arguments of the process that holds sessions.
#[derive(clap::Args, Debug)]
pub struct HoldArgs {
    /// Node as NODEID@HOST:PORT
    node: PeerAddress,
    /// File with the token
    token_file: PathBuf,
    /// Number of sessions
    count: usize,
}

/// Holds as many sessions as are asked for, or as this machine has descriptors for.
pub async fn measure(binary: &Path, scratch: &Scratch, wanted: usize) -> anyhow::Result<IdleFigures> {
    // The node and the process that holds the sessions inherit the limit. A node gives each of its two listeners half
    // of what its services leave and keeps a fifth of that for those it refuses: three eighths is what one has.
    let needed = 8 * ((wanted + SESSIONS_BEFORE) as u64 + OTHER_FILES) / 3;
    let allowed = raise_file_limit(needed)? / 8 * 3;
    let sessions = wanted.min(usize::try_from(allowed.saturating_sub(OTHER_FILES))?.saturating_sub(SESSIONS_BEFORE));
    anyhow::ensure!(sessions > 0, "this machine allows too few open files");
    let folder = scratch.folder("idle")?;
    let node = LaneNodeOptions { binary, folder, config: CROWD.to_owned(), peer: None }.start().await?;
    // The first ones make the allocator give back what starting took; without them growth would hide in that.
    let _first = hold_in_process(&node, SESSIONS_BEFORE.min(sessions)).await?;
    tokio::time::sleep(REST).await;
    let before = node.memory_bytes()?;
    eprintln!("{sessions} idle sessions");
    let holder = hold_in_process(&node, sessions).await?;
    tokio::time::sleep(REST).await;
    let grown = node.memory_bytes()?.saturating_sub(before);
    // Each has a descriptor, so that sessions the node has ended do not count as cheap ones.
    anyhow::ensure!(node.open_files()? >= sessions, "not all sessions stood until the end");
    drop(holder);
    Ok(IdleFigures { sessions, bytes_each: grown as f64 / sessions as f64 })
}

async fn hold_in_process(node: &LaneNode, sessions: usize) -> anyhow::Result<Holder> {
    let (address, token_file) = (node.address.to_string(), node.token_file.clone());
    let started = tokio::task::spawn_blocking(move || Holder::start(&address, &token_file, sessions));
    started.await.context("the thread panicked")?
}

/// Raises the limit of open files to what is needed, or to what the system allows this user; the limit.
fn raise_file_limit(needed: u64) -> anyhow::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let enough = Rlimit { current: Some(needed), maximum: maximum.map(|maximum| maximum.max(needed)) };
    if setrlimit(Resource::Nofile, enough).is_ok() {
        return Ok(needed);
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("the limit of open files")?;
    Ok(maximum.or(current).unwrap_or(u64::MAX))
}

/// A process with sessions. Dropping it ends the process.
struct Holder {
    child: Child,
    /// It leaves when this closes, so that it never outlives a run that was killed.
    _leash: Option<ChildStdin>,
}

impl Holder {
    /// Starts it and waits until all sessions stand.
    fn start(node: &str, token_file: &Path, count: usize) -> anyhow::Result<Holder> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["hold-sessions", node]).arg(token_file).arg(count.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (leash, stdout) = (child.stdin.take(), child.stdout.take());
        let holder = Holder { child, _leash: leash };
        let mut line = String::new();
        BufReader::new(stdout.context("stdout is a pipe")?).read_line(&mut line)?;
        anyhow::ensure!(line.trim() == count.to_string(), "{line:?} sessions instead of {count}");
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process that holds sessions: begins them, says how many stand, and leaves when its stdin closes.
pub fn hold(arguments: &HoldArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let token = std::fs::read_to_string(&arguments.token_file)?.trim().to_owned();
    let held: Vec<Client> = runtime.block_on(async {
        let connect = |_| {
            let options = oap_client::Options { token: Some(token.clone()), ..oap_client::Options::default() };
            async move { Client::connect(&arguments.node, options).await }
        };
        let connecting = futures_util::stream::iter(0..arguments.count).map(connect);
        connecting.buffer_unordered(BEGIN_AT_ONCE).try_collect().await
    })?;
    println!("{}", held.len());
    // The parent holds the other end and never writes.
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
    Ok(())
}
