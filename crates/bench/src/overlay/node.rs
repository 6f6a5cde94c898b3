//! A node for lanes: a process with its OAP port on loopback.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ron_transport::{NodeKey, PeerAddress};
use rustix::process::Signal;

use crate::mailbox::child::{Running, Start};
use crate::process::{free_address, is_ready};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// Each cell connects anew, and everybody comes from one address.
pub const CROWD: &str = "[connections]\nmax = 20000\nper_ip_max = 20000\naccepts_per_ip_per_second = 1000000\n";
/// A window of the bench has to fit what may wait for one subscriber.
pub const WINDOW: &str = "[overlay]\npeer_inflight_frames = 16384\n";

/// A node to start.
pub struct LaneNodeOptions<'a> {
    /// Path of the node's binary.
    pub binary: &'a Path,
    /// Scratch folder of the node.
    pub folder: PathBuf,
    /// Text of its configuration file.
    pub config: String,
    /// Node that it is told of.
    pub peer: Option<&'a PeerAddress>,
}

/// A node that was seen ready. Dropping it ends the process.
pub struct LaneNode {
    /// Id of the node and address of its OAP port.
    pub address: PeerAddress,
    /// A token that may do everything.
    pub token: String,
    /// File with that token.
    pub token_file: PathBuf,
    process: Running,
}

impl LaneNodeOptions<'_> {
    /// Starts it and waits until it is ready.
    pub async fn start(self) -> anyhow::Result<LaneNode> {
        fs::create_dir_all(&self.folder)?;
        let data = self.folder.join("data");
        let (admin, oap) = (free_address()?, free_address()?);
        let mut process = self.spawn(admin, oap, &data)?;
        process.until("ready", READY_WITHIN, || is_ready(admin)).await?;
        let node_id = NodeKey::load_or_create(&data.join("node.key"))?.node_id();
        let token_file = data.join("operator.token");
        let token = fs::read_to_string(&token_file)?.trim().to_owned();
        Ok(LaneNode { address: PeerAddress::new(node_id, &oap.to_string())?, token, token_file, process })
    }

    fn spawn(&self, admin: SocketAddr, oap: SocketAddr, data: &Path) -> anyhow::Result<Running> {
        let config = self.folder.join("macronode.toml");
        fs::write(&config, &self.config)?;
        let mut arguments = vec!["run".to_owned()];
        let mut give = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        for (plane, address) in [("--api", free_address()?), ("--admin", admin), ("--oap", oap)] {
            give(plane, address.to_string());
        }
        give("--config", config.display().to_string());
        give("--data-dir", data.display().to_string());
        if let Some(peer) = self.peer {
            give("--peer", peer.to_string());
        }
        let start = Start {
            name: "macronode",
            program: self.binary,
            arguments,
            variables: vec![("NO_COLOR".to_owned(), "1".to_owned())],
            user: None,
            folder: &self.folder,
            ending: Signal::KILL,
        };
        start.spawn()
    }
}

impl LaneNode {
    /// Starts a node for lanes, with its data in a folder.
    pub async fn start(binary: &Path, folder: PathBuf) -> anyhow::Result<LaneNode> {
        LaneNodeOptions { binary, folder, config: format!("{CROWD}{WINDOW}"), peer: None }.start().await
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Resident memory of its process without pages of its binary, in bytes.
    pub fn memory_bytes(&self) -> anyhow::Result<u64> {
        let bytes = testkit::anonymous_bytes(self.process.pid());
        anyhow::ensure!(bytes > 0, "the memory of the node cannot be read");
        Ok(bytes)
    }

    /// Descriptors that its process has open.
    pub fn open_files(&self) -> anyhow::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.process.pid()))?.count())
    }
}
