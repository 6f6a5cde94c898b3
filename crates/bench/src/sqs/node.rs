//! This node over SQS: a new one for each cell, with an access key and a queue.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::Value;

use super::client::{Queue, SqsClient};
use super::sign::Signer;
use crate::mailbox::cell::{Payload, Workload};
use crate::mailbox::http::Connection;
use crate::mailbox::node::{Node, NodeOptions};
use crate::mailbox::target::Target;

const QUEUE: &str = "bench";

/// A node that is ready and takes signed requests.
pub struct SqsNode {
    /// The node's process.
    pub node: Node,
    /// Signer with an access key of the node.
    pub signer: Arc<Signer>,
}

/// The node over SQS, started anew for each cell.
pub struct FreshSqsNode {
    options: NodeOptions,
    running: Option<(SqsNode, Queue)>,
}

impl SqsNode {
    /// Starts it and makes a key that may do everything.
    pub async fn start(options: &NodeOptions) -> anyhow::Result<SqsNode> {
        let node = options.start().await?;
        let mut connection = Connection::open(node.node.address).await?;
        let answer = connection.ask(&node.node.post("/v1/sqs/keys", r#"{"note":"bench"}"#)).await?;
        let key: Value = serde_json::from_slice(answer)?;
        let text = |name: &str| key[name].as_str().with_context(|| format!("the key has no {name}"));
        let signer = Signer::new(node.node.address, text("access_key_id")?, text("secret_access_key")?);
        Ok(SqsNode { node, signer: Arc::new(signer) })
    }

    /// Makes the queue that the bench uses.
    pub async fn queue(&self) -> anyhow::Result<Queue> {
        Queue::create(Arc::clone(&self.signer), QUEUE).await
    }
}

impl FreshSqsNode {
    /// A node that is yet to be started.
    pub fn new(options: NodeOptions) -> FreshSqsNode {
        FreshSqsNode { options, running: None }
    }

    fn queue(&self) -> anyhow::Result<&Queue> {
        Ok(&self.running.as_ref().context("prepared before")?.1)
    }
}

impl Target for FreshSqsNode {
    type Client = SqsClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        let node = SqsNode::start(&self.options).await?;
        let queue = node.queue().await?;
        self.running = Some((node, queue));
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<SqsClient>> {
        self.queue()?.clients(count, payload).await
    }

    async fn fill(&mut self, payload: &Payload, count: u64) -> anyhow::Result<()> {
        self.queue()?.fill(payload, count).await
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.running = None;
        self.options.clear()
    }

    fn can(&self, _workload: Workload) -> bool {
        true
    }
}
