//! A node with an index: a process, asked over HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use ron_transport::{NodeKey, PeerAddress};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use testkit::Client;

use crate::mailbox::child::{Running, Start};
use crate::process::{free_address, is_ready};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// A bench opens more connections from one address than the default lets in.
const CONNECTIONS: &str = "[connections]\nmax = 4096\nper_ip_max = 2048\naccepts_per_ip_per_second = 100000\n";
const SERVICES: &str = "http,oap,overlay,dht,index";

/// A node that was seen ready. Dropping it ends the process.
pub struct IndexNode {
    /// Id of the node and address of its OAP port.
    pub address: PeerAddress,
    /// Address of its HTTP surface.
    pub api: SocketAddr,
    token: String,
    process: Running,
}

impl IndexNode {
    /// Starts a node with its data in a folder, with these settings, which is told of these nodes.
    pub async fn start(binary: &Path, folder: PathBuf, settings: &str, peers: &[PeerAddress]) -> anyhow::Result<Self> {
        let (config, data) = (folder.join("macronode.toml"), folder.join("data"));
        fs::write(&config, format!("{CONNECTIONS}{settings}"))?;
        let (api, admin, oap) = (free_address()?, free_address()?, free_address()?);
        let planes = [("--api", api), ("--admin", admin), ("--oap", oap)];
        let mut arguments = ["run", "--services", SERVICES].map(str::to_owned).to_vec();
        arguments.extend(planes.into_iter().flat_map(|(plane, address)| [plane.to_owned(), address.to_string()]));
        arguments.extend(["--config".to_owned(), config.display().to_string()]);
        arguments.extend(["--data-dir".to_owned(), data.display().to_string()]);
        arguments.extend(peers.iter().flat_map(|peer| ["--peer".to_owned(), peer.to_string()]));
        let start = Start {
            name: "macronode",
            program: binary,
            arguments,
            variables: vec![("NO_COLOR".to_owned(), "1".to_owned())],
            user: None,
            folder: &folder,
            ending: Signal::KILL,
        };
        let mut process = start.spawn()?;
        process.until("ready", READY_WITHIN, || is_ready(admin)).await?;
        let node_id = NodeKey::load_or_create(&data.join("node.key"))?.node_id();
        let token = fs::read_to_string(data.join("operator.token"))?.trim().to_owned();
        Ok(IndexNode { address: PeerAddress::new(node_id, &oap.to_string())?, api, token, process })
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Number of the process.
    pub fn pid(&self) -> Option<Pid> {
        i32::try_from(self.process.pid()).ok().and_then(Pid::from_raw)
    }

    /// One request of the operator; its answer must be a success.
    pub async fn ask(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut client = Client::connect(self.api).await?;
        let reply = client.request(method, path, &headers, body).await?;
        anyhow::ensure!((200..300).contains(&reply.status), "{path}: {} {}", reply.status, reply.text());
        reply.json()
    }

    /// Publishes that somebody has the content.
    pub async fn provide(&self, id: &str) -> anyhow::Result<()> {
        let body = json!({
            "peer_id": "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN",
            "addrs": ["/ip4/192.0.2.17/tcp/4001", "/ip4/192.0.2.17/udp/4001/quic-v1"],
            "protocols": ["transport-bitswap"],
            "ttl_s": 3600,
        });
        self.ask(Method::POST, &format!("/providers/{id}"), &body).await.map(drop)
    }

    /// Nodes of the DHT that it knows.
    pub async fn peers(&self) -> anyhow::Result<usize> {
        let answer = self.ask(Method::GET, "/dht/peers", &Value::Null).await?;
        answer["peers"].as_array().map(Vec::len).context("no peers")
    }

    /// Records that it stores.
    pub async fn records(&self) -> anyhow::Result<u64> {
        let answer = self.ask(Method::GET, "/index/stats", &Value::Null).await?;
        answer["records"].as_u64().context("no records")
    }
}
