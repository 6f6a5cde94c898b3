//! This node driven by its own Rust client: tasks share few connections, and what they send at once shares requests.

use anyhow::Context as _;
use macronode_client::{Durability, Mailbox, Message, Options};

use super::cell::{Payload, Workload};
use super::drive::Client;
use super::node::{FreshNode, TOPIC};
use super::target::Target;

/// A new node for each cell.
pub struct NativeNode(pub FreshNode);

/// One of the tasks that share a client.
#[derive(Clone)]
pub struct NativeClient {
    mailbox: Mailbox,
    message: Message,
}

impl Target for NativeNode {
    type Client = NativeClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.0.prepare().await
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<NativeClient>> {
        let door = &self.0.node().context("prepared before")?.door;
        let options = Options::new(format!("http://{}", door.address), door.token.clone());
        let mailbox = Mailbox::connect(options).await?;
        let client = NativeClient { mailbox, message: Message::new(payload.bytes.clone()) };
        Ok(vec![client; count])
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.0.finish().await
    }

    fn can(&self, workload: Workload) -> bool {
        workload == Workload::Send
    }
}

impl Client for NativeClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let sent = self.mailbox.send(TOPIC, self.message.clone()).await?;
        anyhow::ensure!(sent.durability == Durability::Fsynced, "only {}", sent.durability);
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("receives do not share requests, so there is nothing to compare")
    }
}
