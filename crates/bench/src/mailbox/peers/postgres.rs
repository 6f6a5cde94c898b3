//! PostgreSQL: a table whose rows are leased with FOR UPDATE SKIP LOCKED and deleted when they are settled.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use testkit::{Postgres, PostgresStart};
use tokio::task::JoinSet;
use tokio_postgres::{NoTls, Statement};

use super::in_turn;
use super::install::{of_debian, version};
use crate::mailbox::cell::Payload;
use crate::mailbox::drive::Client;
use crate::mailbox::target::{Id, Promise, System, Target};

/// Maximum connections: the default of the server less those it reserves; each is a process there.
const CONNECTIONS_MAX: usize = 90;

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

struct PostgresTarget {
    server: Arc<Postgres>,
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
pub fn start(folder: PathBuf, connections_max: usize) -> anyhow::Result<Vec<System>> {
    let program = of_debian("postgresql", Postgres::program)?;
    let connections_max = connections_max.min(CONNECTIONS_MAX);
    let name = format!("PostgreSQL {}", version(&program, "--version"));
    let settings = PostgresStart { settings: vec!["shared_buffers=512MB".to_owned()], ..PostgresStart::default() };
    let server = Arc::new(Postgres::start_in(&folder, &settings)?);
    let system = |id, setting: &'static str, promise| {
        let (server, drivers) = (Arc::clone(&server), JoinSet::new());
        let postgres = PostgresTarget { server, synchronous_commit: setting, connections_max, drivers };
        System::new(id, name.as_str(), format!("SKIP LOCKED, synchronous_commit {setting}"), promise, postgres)
    };
    Ok(vec![system(Id::PostgresOn, "on", Promise::Synced), system(Id::PostgresOff, "off", Promise::Written)])
}

async fn connect(server: &Postgres, drivers: &mut JoinSet<()>) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(&server.over_tcp(), NoTls).await?;
    drivers.spawn(async move {
        // Those who wait for an answer get the same error.
        let _ = connection.await;
    });
    Ok(client)
}

impl Target for PostgresTarget {
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
