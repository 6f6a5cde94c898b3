//! This node as a system under test: a process with a data directory, driven over HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ron_kernel::clock;
use rustix::process::Signal;

use super::cell::{Payload, Workload};
use super::child::{Running, Start};
use super::http::{HttpClient, NodeAccess, Requests, fill};
use super::target::Target;
use crate::machine;
use crate::process::{free_address, is_ready};

/// A node with ten million messages may need a while.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// Topic that the bench uses.
pub const TOPIC: &str = "bench";
/// HTTP/1.1 carries one request on a connection, so 512 in flight from one address need more than the default of 256;
/// each cell connects anew.
const CONFIG: &str = "[connections]\nmax = 4096\nper_ip_max = 2048\naccepts_per_ip_per_second = 100000\n";

/// Description of a node to start.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Path of the node's binary.
    pub binary: PathBuf,
    /// Scratch folder of the node; the data directory is in it.
    pub folder: PathBuf,
    /// Whether the node runs in amnesia mode and writes nothing.
    pub amnesia: bool,
    /// Text that is added to its configuration file.
    pub settings: String,
}

/// A node that was seen ready.
pub struct Node {
    /// Address and token of the node.
    pub node: NodeAccess,
    /// Time from spawn to ready.
    pub took: Duration,
    process: Running,
}

impl NodeOptions {
    /// Starts it on what is in its data directory.
    pub async fn start(&self) -> anyhow::Result<Node> {
        fs::create_dir_all(&self.folder)?;
        let config = self.folder.join("macronode.toml");
        fs::write(&config, format!("{CONFIG}{}", self.settings))?;
        let (api, admin) = (free_address()?, free_address()?);
        let began = clock::now();
        let mut process = self.process(&config, api, admin).spawn()?;
        process.until("ready", READY_WITHIN, || is_ready(admin)).await?;
        let took = began.elapsed();
        let token = if self.amnesia {
            token_in(&process.said()).context("the node did not say its token")?.to_owned()
        } else {
            fs::read_to_string(self.data().join("operator.token"))?.trim().to_owned()
        };
        Ok(Node { node: NodeAccess { address: api, token }, took, process })
    }

    fn process(&self, config: &Path, api: SocketAddr, admin: SocketAddr) -> Start<'_> {
        let mut arguments: Vec<String> = vec!["run".to_owned()];
        for (plane, address) in [("--api", api.to_string()), ("--admin", admin.to_string())] {
            arguments.extend([plane.to_owned(), address]);
        }
        arguments.extend(["--oap", "127.0.0.1:0", "--config"].map(str::to_owned));
        arguments.push(config.display().to_string());
        arguments.extend(["--data-dir".to_owned(), self.data().display().to_string()]);
        if self.amnesia {
            arguments.push("--amnesia".to_owned());
        }
        Start {
            name: "macronode",
            program: &self.binary,
            arguments,
            variables: vec![("NO_COLOR".to_owned(), "1".to_owned())],
            user: None,
            folder: &self.folder,
            ending: Signal::KILL,
        }
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Removes the data of a node that has ended.
    pub fn clear(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Node {
    /// Resident memory of the node, in bytes.
    pub fn rss_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let kib = machine::field(&status, "VmRSS").context("no VmRSS")?;
        Ok(kib.trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }

    /// Sends the signal and waits for the end; returns the time that took.
    pub fn end(self, signal: Signal) -> anyhow::Result<Duration> {
        self.process.end(signal, READY_WITHIN)
    }

    /// Puts that many messages into the topic of the bench.
    pub async fn fill(&self, payload: &Payload, count: u64) -> anyhow::Result<()> {
        fill(&self.node, TOPIC, payload, count).await
    }

    /// Clients for the topic of the bench.
    pub async fn clients(&self, count: usize, payload: &Payload) -> anyhow::Result<Vec<HttpClient>> {
        HttpClient::open(count, Requests::new(self.node.clone(), TOPIC, payload)).await
    }
}

/// Finds the token in the output; in amnesia mode there is no file with it.
fn token_in(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("operator token")?.rsplit(' ').next())
}

/// A new node for each cell: it starts in milliseconds, and nothing is left of the cell before.
pub struct FreshNode {
    options: NodeOptions,
    node: Option<Node>,
}

impl FreshNode {
    /// A node that is yet to be started.
    pub fn new(options: NodeOptions) -> FreshNode {
        FreshNode { options, node: None }
    }

    /// The node of the current cell.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }
}

impl Target for FreshNode {
    type Client = HttpClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        self.node = Some(self.options.start().await?);
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<HttpClient>> {
        self.node.as_ref().context("prepared before")?.clients(count, payload).await
    }

    async fn fill(&mut self, payload: &Payload, count: u64) -> anyhow::Result<()> {
        self.node.as_ref().context("prepared before")?.fill(payload, count).await
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.node = None;
        self.options.clear()
    }

    fn can(&self, workload: Workload) -> bool {
        workload != Workload::Batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_forgetful_node_is_found() {
        let said = "macronode 0.1.0\noperator token (amnesia: shown once, kept nowhere): abc123\nready\n";
        assert_eq!(token_in(said), Some("abc123"));
        assert_eq!(token_in("ready\n"), None);
    }
}
