//! Redis streams: XADD, XREADGROUP, and XACK with XDEL in one trip.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use redis::{AsyncConnectionConfig, cmd, pipe};
use rustix::process::Signal;

use super::in_turn;
use super::install::{of_debian, on_path, version};
use crate::mailbox::cell::Payload;
use crate::mailbox::child::{Running, Start};
use crate::mailbox::drive::Client;
use crate::mailbox::target::{Id, Promise, System, Target};
use crate::process::free_address;

const STREAM: &str = "bench";
const GROUP: &str = "workers";

/// Where one connection carries many requests, these few do better than one for each client.
const SHARED_CONNECTIONS: usize = 4;

#[derive(Clone)]
struct Redis {
    _process: Arc<Running>,
    address: SocketAddr,
    connections_max: usize,
}

struct RedisClient {
    connection: MultiplexedConnection,
    payload: Bytes,
}

/// Both settings, each a server of its own.
pub async fn start(folder: PathBuf, connections_max: usize) -> anyhow::Result<Vec<System>> {
    let program = of_debian("redis-server", || on_path("redis-server"))?;
    let name = format!("Redis streams {}", version(&program, "--version"));
    let always = server(&program, &folder.join("always"), "always", connections_max).await?;
    let everysec = server(&program, &folder.join("everysec"), "everysec", connections_max).await?;
    let shared = Redis { connections_max: SHARED_CONNECTIONS, ..always.clone() };
    Ok(vec![
        System::new(Id::RedisAlways, name.as_str(), "appendfsync always", Promise::Synced, always),
        System::new(
            Id::RedisShared,
            name.as_str(),
            "appendfsync always, 4 shared connections",
            Promise::Synced,
            shared,
        ),
        System::new(Id::RedisEverySecond, name.as_str(), "appendfsync everysec", Promise::Written, everysec),
    ])
}

async fn server(program: &Path, folder: &Path, fsync: &str, connections_max: usize) -> anyhow::Result<Redis> {
    fs::create_dir_all(folder)?;
    let address = free_address()?;
    let settings = [
        ("--bind", address.ip().to_string()),
        ("--port", address.port().to_string()),
        ("--dir", folder.display().to_string()),
        ("--save", String::new()),
        ("--appendonly", "yes".to_owned()),
        ("--appendfsync", fsync.to_owned()),
        // A rewrite in the background would fall into somebody's cell.
        ("--auto-aof-rewrite-percentage", "0".to_owned()),
    ];
    let arguments = settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let (variables, ending) = (Vec::new(), Signal::KILL);
    let mut process =
        Start { name: "redis-server", program, arguments, variables, user: None, folder, ending }.spawn()?;
    process.until_listening(address).await?;
    Ok(Redis { _process: Arc::new(process), address, connections_max })
}

impl Redis {
    async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://{}/", self.address))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

impl Target for Redis {
    type Client = RedisClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(STREAM).arg(GROUP).arg("0").arg("MKSTREAM");
        Ok(create.query_async(&mut self.connect().await?).await?)
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<RedisClient>> {
        let mut connections = Vec::new();
        for _ in 0..count.min(self.connections_max) {
            connections.push(self.connect().await?);
        }
        let client = |connection| RedisClient { connection, payload: payload.bytes.clone() };
        Ok(in_turn(&connections, count).into_iter().map(client).collect())
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        Ok(cmd("FLUSHALL").query_async(&mut self.connect().await?).await?)
    }
}

impl Client for RedisClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let mut add = cmd("XADD");
        add.arg(STREAM).arg("*").arg("p").arg(&self.payload[..]);
        let _id: String = add.query_async(&mut self.connection).await?;
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg("worker").arg("COUNT").arg(1).arg("STREAMS").arg(STREAM).arg(">");
        let id = loop {
            let reply: Option<StreamReadReply> = read.query_async(&mut self.connection).await?;
            if let Some(message) = reply.iter().flat_map(|reply| &reply.keys).flat_map(|key| &key.ids).next() {
                break message.id.clone();
            }
            // Each task has sent one before it takes one, so this is at most a moment.
            tokio::task::yield_now().await;
        };
        let mut settle = pipe();
        settle.cmd("XACK").arg(STREAM).arg(GROUP).arg(&id).cmd("XDEL").arg(STREAM).arg(&id);
        let (acknowledged, _deleted): (u64, u64) = settle.query_async(&mut self.connection).await?;
        anyhow::ensure!(acknowledged == 1, "{id} was not pending");
        Ok(())
    }
}
