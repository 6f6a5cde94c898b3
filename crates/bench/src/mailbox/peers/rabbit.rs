//! RabbitMQ: publishes that wait for their confirmation, consumers that are handed messages and acknowledge each.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use rustix::process::Signal;
use tokio::sync::Mutex;

use super::in_turn;
use super::install::{of_debian, version_in};
use crate::mailbox::cell::Payload;
use crate::mailbox::child::{Running, Start};
use crate::mailbox::drive::Client;
use crate::mailbox::target::{Id, Promise, System, Target};
use crate::process::free_address;

/// The script behind Debian's wrapper, which insists on a user and on folders of its own.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const LIBRARY: &str = "/usr/lib/rabbitmq/lib";
const PERSISTENT: u8 = 2;

struct Broker {
    address: SocketAddr,
    /// The broker before the name server it registers with: fields are dropped in this order.
    _broker: Running,
    _names: Running,
}

struct Rabbit {
    broker: Arc<Broker>,
    queue: &'static str,
    kind: &'static str,
    connections_max: usize,
    /// Connections of the current cell; each closes when it is dropped.
    connections: Vec<Connection>,
}

#[derive(Clone)]
struct RabbitClient {
    channel: Channel,
    consumer: Arc<Mutex<Consumer>>,
    queue: &'static str,
    payload: Bytes,
}

/// Starts one broker for both kinds of queue.
pub async fn start(folder: PathBuf, connections_max: usize) -> anyhow::Result<Vec<System>> {
    of_debian("rabbitmq-server", || Path::new(SCRIPT).is_file().then(|| SCRIPT.into()))?;
    let libraries = fs::read_dir(LIBRARY).into_iter().flatten().flatten();
    let versions = libraries.filter_map(|entry| version_in(&entry.file_name().to_string_lossy()));
    let name = format!("RabbitMQ {}", versions.last().unwrap_or_default());
    let broker = Arc::new(broker(&folder).await?);
    let queue =
        |queue, kind| Rabbit { broker: Arc::clone(&broker), queue, kind, connections_max, connections: Vec::new() };
    Ok(vec![
        System::new(
            Id::RabbitQuorum,
            name.as_str(),
            "quorum queue, confirms",
            Promise::Synced,
            queue("quorum", "quorum"),
        ),
        System::new(
            Id::RabbitClassic,
            name.as_str(),
            "classic durable queue, confirms",
            Promise::Written,
            queue("classic", "classic"),
        ),
    ])
}

async fn broker(folder: &Path) -> anyhow::Result<Broker> {
    let (names_address, distribution, address) = (free_address()?, free_address()?, free_address()?);
    let text = |path: PathBuf| path.display().to_string();
    let plugins = folder.join("enabled_plugins");
    fs::write(&plugins, "[].\n")?;
    fs::write(folder.join("rabbitmq.conf"), "disk_free_limit.absolute = 1GB\nloopback_users.guest = true\n")?;
    let variables = [
        ("HOME", text(folder.into())),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
        ("ERL_EPMD_PORT", names_address.port().to_string()),
        ("RABBITMQ_NODENAME", "bench@localhost".to_owned()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
        ("RABBITMQ_NODE_PORT", address.port().to_string()),
        ("RABBITMQ_DIST_PORT", distribution.port().to_string()),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1} -noinput".to_owned()),
        ("RABBITMQ_MNESIA_BASE", text(folder.join("mnesia"))),
        ("RABBITMQ_LOG_BASE", text(folder.join("log"))),
        ("RABBITMQ_PID_FILE", text(folder.join("rabbit.pid"))),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", text(plugins)),
        ("RABBITMQ_CONFIG_FILE", text(folder.join("rabbitmq.conf"))),
        ("RABBITMQ_CONF_ENV_FILE", text(folder.join("no-such-file"))),
        // Makes the script become the broker instead of waiting for it, so that its number is the broker's.
        ("RABBITMQ_ALLOW_INPUT", "true".to_owned()),
    ];
    let variables: Vec<(String, String)> =
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let start = |name, program: &Path, arguments| {
        let (variables, ending) = (variables.clone(), Signal::KILL);
        Start { name, program, arguments, variables, user: None, folder, ending }.spawn()
    };
    // Left to itself the broker would start a name server that nobody ends.
    let arguments = ["-address", "127.0.0.1", "-port"].map(str::to_owned).into_iter();
    let arguments = arguments.chain([names_address.port().to_string()]).collect();
    let epmd = super::install::on_path("epmd").context("erlang has its epmd")?;
    let mut names = start("epmd", &epmd, arguments)?;
    names.until_listening(names_address).await?;
    let mut broker = start("rabbitmq-server", Path::new(SCRIPT), Vec::new())?;
    broker.until_listening(address).await?;
    // It listens a moment before it takes anybody in.
    let patience = ron_kernel::Deadline::after(Duration::from_secs(30));
    while let Err(error) = connect(address).await {
        anyhow::ensure!(!patience.has_passed(), "no connection: {error:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Broker { address, _broker: broker, _names: names })
}

async fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let uri = format!("amqp://guest:guest@{address}/%2f");
    Ok(Connection::connect(&uri, ConnectionProperties::default()).await?)
}

impl Rabbit {
    async fn client(&self, channel: Channel, prefetch: usize, payload: &Payload) -> anyhow::Result<RabbitClient> {
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        channel.basic_qos(u16::try_from(prefetch)?, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(self.queue.into(), "".into(), options, FieldTable::default()).await?;
        let consumer = Arc::new(Mutex::new(consumer));
        Ok(RabbitClient { channel, consumer, queue: self.queue, payload: payload.bytes.clone() })
    }
}

impl Target for Rabbit {
    type Client = RabbitClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        let connection = connect(self.broker.address).await?;
        let channel = connection.create_channel().await?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(self.kind.into()));
        channel.queue_declare(self.queue.into(), QueueDeclareOptions::durable(), arguments).await?;
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<RabbitClient>> {
        let connections = count.min(self.connections_max);
        let mut clients = Vec::new();
        for _ in 0..connections {
            let connection = connect(self.broker.address).await?;
            let channel = connection.create_channel().await?;
            clients.push(self.client(channel, count.div_ceil(connections), payload).await?);
            self.connections.push(connection);
        }
        Ok(in_turn(&clients, count))
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        for connection in self.connections.drain(..) {
            // The queue goes anyway.
            let _ = connection.close(200, "done".into()).await;
        }
        let connection = connect(self.broker.address).await?;
        let channel = connection.create_channel().await?;
        let _ = channel.queue_delete(self.queue.into(), QueueDeleteOptions::default()).await;
        Ok(())
    }
}

impl Client for RabbitClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let options = BasicPublishOptions::default();
        let sent = self.channel.basic_publish("".into(), self.queue.into(), options, &self.payload, properties).await?;
        let confirmed = sent.await?;
        anyhow::ensure!(confirmed.is_ack(), "not confirmed: {confirmed:?}");
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let delivered = self.consumer.lock().await.next().await.context("the consumer ended")??;
        delivered.ack(BasicAckOptions::default()).await?;
        Ok(())
    }
}
