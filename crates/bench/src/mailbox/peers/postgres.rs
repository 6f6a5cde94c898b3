//! PostgreSQL: a table whose rows are leased with FOR UPDATE SKIP LOCKED and deleted when they are settled.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio_postgres::{NoTls, Statement};

use super::in_turn;
use super::install::{of_debian, version};
use crate::mailbox::cell::Payload;
use crate::mailbox::child::{Running, Start};
use crate::mailbox::drive::Client;
use crate::mailbox::target::{Id, Promise, System, Target};
use crate::process::free_address;

/// Maximum connections: the default of the server less those it reserves; each is a process there.
const CONNECTIONS_MAX: usize = 90;
/// User the server runs as: it refuses to run as root.
const USER: &str = "postgres";
const LIBRARY: &str = "/usr/lib/postgresql";

/// The index serves the search for what is visible; a lease moves the row to its end.
const TABLE: &str = "
    DROP TABLE IF EXISTS queue;
    CREATE TABLE queue (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        visible_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        attempts integer NOT NULL DEFAULT 0,
        payload bytea NOT NULL
    );
    CREATE INDEX queue_visible_at ON queue (visible_at);
    CHECKPOINT;";
const SEND: &str = "INSERT INTO queue (payload) VALUES ($1)";
const LEASE: &str = "
    UPDATE queue SET visible_at = clock_timestamp() + interval '120 seconds', attempts = attempts + 1
    WHERE id = (
        SELECT id FROM queue WHERE visible_at <= clock_timestamp()
        ORDER BY visible_at LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    RETURNING id, payload";
const SETTLE: &str = "DELETE FROM queue WHERE id = $1";

struct Server {
    address: SocketAddr,
    _process: Running,
}

struct Postgres {
    server: Arc<Server>,
    synchronous_commit: &'static str,
    connections_max: usize,
    /// Move the bytes of the present cell's connections.
    drivers: JoinSet<()>,
}

#[derive(Clone)]
struct PostgresClient {
    client: Arc<tokio_postgres::Client>,
    send: Statement,
    lease: Statement,
    settle: Statement,
    payload: Bytes,
}

/// Starts one server for both settings.
pub async fn start(folder: PathBuf, connections_max: usize) -> anyhow::Result<Vec<System>> {
    let program = of_debian("postgresql", newest)?;
    let connections_max = connections_max.min(CONNECTIONS_MAX);
    let name = format!("PostgreSQL {}", version(&program, "--version"));
    let server = Arc::new(server(&program, &folder).await?);
    let system = |id, setting: &'static str, promise| {
        let (server, drivers) = (Arc::clone(&server), JoinSet::new());
        let postgres = Postgres { server, synchronous_commit: setting, connections_max, drivers };
        System::new(id, name.as_str(), format!("SKIP LOCKED, synchronous_commit {setting}"), promise, postgres)
    };
    Ok(vec![system(Id::PostgresOn, "on", Promise::Synced), system(Id::PostgresOff, "off", Promise::Written)])
}

fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir(LIBRARY).ok()?.flatten().map(|entry| entry.path().join("bin/postgres"));
    versions.filter(|path| path.is_file()).max()
}

async fn server(program: &Path, folder: &Path) -> anyhow::Result<Server> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let status = Command::new("chown").arg(USER).arg(folder).status()?;
        anyhow::ensure!(status.success(), "the folder cannot be given to {USER}");
    }
    let user = is_root.then_some(USER);
    let data = folder.join("data").display().to_string();
    let mut initialise = Command::new("setpriv");
    if is_root {
        initialise.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    initialise.arg("--").arg(program.with_file_name("initdb")).args(["-A", "trust", "-U", USER, "-D", &data]);
    let initialised = initialise.current_dir(folder).stdin(Stdio::null()).output().context("initdb")?;
    anyhow::ensure!(initialised.status.success(), "initdb: {}", String::from_utf8_lossy(&initialised.stderr));
    let address = free_address()?;
    let sockets = format!("unix_socket_directories={}", folder.display());
    let (host, port) = (format!("listen_addresses={}", address.ip()), format!("port={}", address.port()));
    let arguments = ["-D", &data, "-c", &host, "-c", &port, "-c", &sockets, "-c", "shared_buffers=512MB"];
    let arguments = arguments.map(str::to_owned).to_vec();
    let (variables, ending) = (Vec::new(), Signal::INT);
    let mut process = Start { name: "postgres", program, arguments, variables, user, folder, ending }.spawn()?;
    process.until_listening(address).await?;
    let server = Server { address, _process: process };
    let patience = ron_kernel::Deadline::after(Duration::from_secs(30));
    let mut drivers = JoinSet::new();
    while let Err(error) = connect(&server, &mut drivers).await {
        anyhow::ensure!(!patience.has_passed(), "no connection: {error:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(server)
}

async fn connect(server: &Server, drivers: &mut JoinSet<()>) -> anyhow::Result<tokio_postgres::Client> {
    let (ip, port) = (server.address.ip(), server.address.port());
    let settings = format!("host={ip} port={port} user={USER} dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
    drivers.spawn(async move {
        // Those who wait for an answer get the same error.
        let _ = connection.await;
    });
    Ok(client)
}

impl Target for Postgres {
    type Client = PostgresClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.drivers = JoinSet::new();
        let mut drivers = JoinSet::new();
        Ok(connect(&self.server, &mut drivers).await?.batch_execute(TABLE).await?)
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<PostgresClient>> {
        let mut clients = Vec::new();
        for _ in 0..count.min(self.connections_max) {
            let client = connect(&self.server, &mut self.drivers).await?;
            client.batch_execute(&format!("SET synchronous_commit = {}", self.synchronous_commit)).await?;
            clients.push(PostgresClient {
                send: client.prepare(SEND).await?,
                lease: client.prepare(LEASE).await?,
                settle: client.prepare(SETTLE).await?,
                client: Arc::new(client),
                payload: payload.bytes.clone(),
            });
        }
        Ok(in_turn(&clients, count))
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.prepare().await
    }
}

impl Client for PostgresClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let inserted = self.client.execute(&self.send, &[&&self.payload[..]]).await?;
        anyhow::ensure!(inserted == 1, "{inserted} rows");
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let id: i64 = loop {
            if let Some(row) = self.client.query_opt(&self.lease, &[]).await? {
                let _payload: &[u8] = row.get(1);
                break row.get(0);
            }
            // Each task has sent one before it takes one, so another task holds it for a moment.
            tokio::task::yield_now().await;
        };
        let deleted = self.client.execute(&self.settle, &[&id]).await?;
        anyhow::ensure!(deleted == 1, "row {id} was settled twice");
        Ok(())
    }
}
