//! The engine of the mailbox inside this process, on a kernel of its own: what the node can do without HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ron_auth::{Authority, RootKey, Subject};
use ron_kernel::{Builder, Deadline, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot, clock};
use svc_mailbox::words::TopicName;
use svc_mailbox::{LiveOptions, Mailbox, MailboxOptions, Outgoing, Place, Receive};
use tokio::task::JoinSet;

use super::cell::Payload;
use super::drive::Client;
use super::target::{Id, Promise, System, Target};

const TOPIC: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(20);

/// A new engine for each cell.
struct Engine {
    folder: PathBuf,
    running: Option<Running>,
}

struct Running {
    mailbox: Mailbox,
    kernel: KernelHandle,
    /// The kernel's own task.
    task: JoinSet<ExitReport>,
}

struct EngineClient {
    mailbox: Mailbox,
    by: Subject,
    topic: TopicName,
    message: Outgoing,
}

/// The engine as a system, on a folder of its own.
pub fn start(folder: &Path) -> System {
    let engine = Engine { folder: folder.to_owned(), running: None };
    System::new(Id::Engine, "macronode engine", "in process, durable", Promise::Synced, engine)
}

impl Target for Engine {
    type Client = EngineClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        std::fs::create_dir_all(&self.folder)?;
        let options = MailboxOptions { place: Place::Directory(self.folder.clone()), ..MailboxOptions::default() };
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let authority = Authority::new(RootKey::generate(), None, clock::unix_millis);
        let live = Snapshot::new(LiveOptions::default());
        let mailbox = svc_mailbox::install(&mut builder, options, live, authority, None);
        let kernel = builder.build()?;
        let handle = kernel.handle();
        let mut task = JoinSet::new();
        task.spawn(kernel.run());
        let mut status = handle.watch_status();
        let ready = status.wait_for(|status| status.is_ready());
        Deadline::after(PATIENCE).run("engine", ready).await??;
        self.running = Some(Running { mailbox, kernel: handle, task });
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<EngineClient>> {
        let running = self.running.as_ref().context("prepared before")?;
        let topic: TopicName = TOPIC.parse()?;
        let client = || EngineClient {
            mailbox: running.mailbox.clone(),
            by: operator(),
            topic: topic.clone(),
            message: Outgoing { payload: payload.bytes.clone(), ..Outgoing::default() },
        };
        Ok(std::iter::repeat_with(client).take(count).collect())
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(Running { mailbox, kernel, mut task }) = self.running.take() {
            drop(mailbox);
            kernel.drain().await?;
            Deadline::after(PATIENCE).run("engine", task.join_next()).await?;
        }
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn operator() -> Subject {
    let name = Arc::from("bench");
    Subject { name, sends_per_second: None, payload_bytes_max: None, expires_ms: None, is_operator: true }
}

impl Client for EngineClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let deadline = Deadline::after(PATIENCE);
        self.mailbox.send(&self.by, &self.topic, self.message.clone(), deadline).await?;
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let receipt = loop {
            let receive = Receive {
                visibility_ms: Some(120_000),
                max_messages: 1,
                max_bytes: 1 << 20,
                wait_ms: 1_000,
                consumer: "bench".to_owned(),
            };
            let received = self.mailbox.recv(&self.topic, receive, Deadline::after(PATIENCE)).await?;
            if let Some(delivery) = received.first() {
                break delivery.receipt;
            }
        };
        let settled = self.mailbox.ack(vec![receipt], Deadline::after(PATIENCE)).await;
        settled.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}
