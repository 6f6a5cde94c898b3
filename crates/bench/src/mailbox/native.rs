//! This node driven by its own Rust client: tasks share few connections, and what they send at once shares requests.

use std::time::Duration;

use anyhow::Context as _;
use macronode_client::{Consumer, Durability, Mailbox, Message, Options, Receive};

use super::cell::Payload;
use super::drive::Client;
use super::node::{FreshNode, TOPIC};
use super::target::Target;

/// Messages that all tasks together take with one request; the RabbitMQ and NATS clients fetch ahead, too.
const TAKEN_AHEAD_MAX: usize = 64;
const HOLD: Duration = Duration::from_mins(2);

/// The node over its native HTTP surface, started anew for each cell.
pub struct NativeNode(pub FreshNode);

/// One of the tasks that share a client.
#[derive(Clone)]
pub struct NativeClient {
    mailbox: Mailbox,
    consumer: Consumer,
    message: Message,
}

impl Target for NativeNode {
    type Client = NativeClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.0.prepare().await
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<NativeClient>> {
        let node = &self.0.node().context("prepared before")?.node;
        let options = Options::new(format!("http://{}", node.address), node.token.clone());
        let mailbox = Mailbox::connect(options).await?;
        let consumer = mailbox.consumer(TOPIC, Receive::up_to(TAKEN_AHEAD_MAX).holding(HOLD));
        let client = NativeClient { mailbox, consumer, message: Message::new(payload.bytes.clone()) };
        Ok(vec![client; count])
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.0.finish().await
    }
}

impl Client for NativeClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let sent = self.mailbox.send(TOPIC, self.message.clone()).await?;
        anyhow::ensure!(sent.durability == Durability::Fsynced, "only {}", sent.durability);
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let message = self.consumer.next().await?;
        self.mailbox.ack(&message.receipt).await?;
        Ok(())
    }
}
