//! One node of a cluster: a child process of this very binary.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use ron_kernel::clock;
use ron_transport::NodeKey;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::LOOK_EVERY;
use crate::cli::{ApiArgs, ClientArgs};
use crate::client::{ApiClient, Client, configured};
use crate::data_dir::{ADDRESSES_FILE, DataDir, NODE_KEY_FILE};
use crate::errors::{Code, Failure};
use crate::services;

/// Where every port is asked for: the system chooses a free one, and the node writes it down.
const ANY_PORT: &str = "127.0.0.1:0";

/// A node that was started.
pub struct DevNode {
    /// Name: that of its data directory.
    pub name: String,
    /// Its data directory.
    pub data_dir: PathBuf,
    /// The file with what it prints.
    pub log: PathBuf,
    /// Its id, from its key.
    pub node_id: String,
    /// Where it listens.
    pub addresses: Addresses,
    /// How it ended, once it has.
    pub ended: Option<ExitStatus>,
    child: Child,
}

/// Where a node listens, as it writes it down.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Addresses {
    /// The public plane.
    pub api: String,
    /// The admin plane.
    pub admin: String,
    /// The framed plane.
    pub oap: String,
    /// Process that wrote it: a folder may hold the addresses of a node that is gone.
    pid: u32,
}

/// Starts a node and waits until it has its ports.
pub async fn start(folder: &Path, number: usize, peers: &[String], deadline: Instant) -> Result<DevNode, Failure> {
    let name = format!("node-{number}");
    let data_dir = folder.join(&name);
    let unusable = |cause: String| Failure::new(Code::DataDirUnusable, format!("{}: {cause}", data_dir.display()));
    DataDir::open(&data_dir, false).map_err(|error| unusable(error.to_string()))?;
    let key = NodeKey::load_or_create(&data_dir.join(NODE_KEY_FILE)).map_err(|error| unusable(error.to_string()))?;
    let log = folder.join(format!("{name}.log"));
    let child = spawn(&data_dir, &log, peers).map_err(|error| unusable(format!("cannot be started: {error}")))?;
    let (node_id, addresses, ended) = (key.node_id().to_string(), Addresses::default(), None);
    let mut node = DevNode { name, data_dir, log, node_id, addresses, ended, child };
    loop {
        if let Some(addresses) = node.read_addresses() {
            node.addresses = addresses;
            return Ok(node);
        }
        node.check_alive()?;
        if clock::now() >= deadline {
            let message = format!("{} takes no ports; see {}", node.name, node.log.display());
            return Err(Failure::new(Code::CannotStart, message));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn spawn(data_dir: &Path, log: &Path, peers: &[String]) -> std::io::Result<Child> {
    let log = File::create(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run").arg("--with-parent").arg("--data-dir").arg(data_dir);
    command.args(["--api", ANY_PORT, "--admin", ANY_PORT, "--oap", ANY_PORT]);
    command.args(peers.iter().flat_map(|peer| ["--peer", peer]));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // In a group of its own, because Ctrl-C of a terminal goes to a whole group: the nodes would hear of it twice, and
    // leave at once instead of draining.
    command.process_group(0).spawn()
}

/// Asks the system for SIGTERM when the process that started this one is gone: one that was killed cannot end its
/// nodes. Where the system cannot do that they are left behind, as ordinary processes.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::TERM)) {
        tracing::debug!(%error, "this node will outlive the process that started it");
    }
}

/// Whether the node is ready, and joined to those it was told of.
pub async fn is_ready(node: &DevNode) -> bool {
    let data_dir = Some(node.data_dir.clone());
    let admin = Some(format!("http://{}", node.addresses.admin));
    let Ok(client) = Client::find(&ClientArgs { admin, data_dir: data_dir.clone(), ..ClientArgs::default() }) else {
        return false;
    };
    if !client.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
        return false;
    }
    let api = Some(format!("http://{}", node.addresses.api));
    let token_file = Some(node.data_dir.join(crate::data_dir::TOKEN_FILE));
    let Ok(mut api) = ApiClient::find(&ApiArgs { api, data_dir, token_file, ..ApiArgs::default() }) else {
        return false;
    };
    for service in services::chosen(&configured()) {
        if !service.has_joined(&mut api).await.unwrap_or(false) {
            return false;
        }
    }
    true
}

impl DevNode {
    /// The node as others are told of it.
    pub fn peer_address(&self) -> String {
        format!("{}@{}", self.node_id, self.addresses.oap)
    }

    /// An error once the process has ended by itself.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        if self.is_running() {
            return Ok(());
        }
        let (name, log) = (&self.name, self.log.display());
        let how = self.ended.map(|status| status.to_string()).unwrap_or_default();
        Err(Failure::new(Code::CannotStart, format!("{name} ended by itself ({how}); see {log}")))
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_none()
    }

    /// Whether it left with nothing undone.
    pub fn has_left_cleanly(&self) -> bool {
        self.ended.is_some_and(|status| status.success())
    }

    /// Sends the signal that lets it drain.
    pub fn ask_to_leave(&mut self) {
        if self.is_running()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            // Fails only if it has just gone.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.ended = self.child.wait().ok();
    }

    /// What a script needs to know of it.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "node_id": self.node_id, "api": self.addresses.api, "oap": self.addresses.oap,
            "admin": self.addresses.admin, "data_dir": self.data_dir, "log": self.log, "pid": self.child.id(),
        })
    }

    fn read_addresses(&self) -> Option<Addresses> {
        let text = std::fs::read(self.data_dir.join(ADDRESSES_FILE)).ok()?;
        let addresses: Addresses = serde_json::from_slice(&text).ok()?;
        (addresses.pid == self.child.id()).then_some(addresses)
    }
}

impl Drop for DevNode {
    /// Whatever goes wrong, no node is left behind.
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
    }
}
