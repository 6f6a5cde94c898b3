//! The engine of the mailbox inside this process, on a kernel of its own: what the node can do without HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ron_auth::Subject;
use ron_kernel::{Builder, Deadline, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot};
use svc_mailbox::types::TopicName;
use svc_mailbox::{LiveOptions, LogLocation, Mailbox, MailboxOptions, Outgoing, Receive};
use tokio::task::JoinSet;

use super::cell::Payload;
use super::drive::Client;
use super::target::{Id, Promise, System, Target};

const TOPIC: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(20);

/// The engine of the mailbox without HTTP, made anew for each cell.
struct Engine {
    folder: PathBuf,
    running: Option<Running>,
}

struct Running {
    mailbox: Mailbox,
    kernel: KernelHandle,
    /// Task that runs the kernel.
    task: JoinSet<ExitReport>,
}

#[derive(Clone)]
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
        self.running = Some(Running::start(LogLocation::Directory(self.folder.clone())).await?);
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<EngineClient>> {
        let running = self.running.as_ref().context("prepared before")?;
        let client = running.client(payload)?;
        Ok(std::iter::repeat_with(|| client.clone()).take(count).collect())
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(running) = self.running.take() {
            running.stop().await?;
        }
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Running {
    async fn start(location: LogLocation) -> anyhow::Result<Running> {
        let options = MailboxOptions { location, ..MailboxOptions::default() };
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let live = Snapshot::new(LiveOptions::default());
        let mailbox = svc_mailbox::install(&mut builder, options, live);
        let kernel = builder.build()?;
        let handle = kernel.handle();
        let mut task = JoinSet::new();
        task.spawn(kernel.run());
        let mut status = handle.watch_status();
        let ready = status.wait_for(|status| status.is_ready());
        Deadline::after(PATIENCE).run("engine", ready).await??;
        Ok(Running { mailbox, kernel: handle, task })
    }

    fn client(&self, payload: &Payload) -> anyhow::Result<EngineClient> {
        let message = Outgoing { payload: payload.bytes.clone(), ..Outgoing::default() };
        Ok(EngineClient {
            mailbox: self.mailbox.clone(),
            by: Subject::operator("bench"),
            topic: TOPIC.parse()?,
            message,
        })
    }

    fn log_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.mailbox.node_stats().log.context("the log is open")?.bytes_total)
    }

    async fn stop(self) -> anyhow::Result<()> {
        let Running { mailbox, kernel, mut task } = self;
        drop(mailbox);
        kernel.drain().await?;
        Deadline::after(PATIENCE).run("engine", task.join_next()).await?;
        Ok(())
    }
}

/// Bytes that the engine's log takes for one message with this payload.
pub async fn log_bytes_each(payload: &Payload) -> anyhow::Result<usize> {
    const MESSAGES: u64 = 32;
    let running = Running::start(LogLocation::Memory).await?;
    let mut client = running.client(payload)?;
    // The first one makes the topic, too.
    client.send().await?;
    let before = running.log_bytes()?;
    for _ in 0..MESSAGES {
        client.send().await?;
    }
    let bytes = running.log_bytes()? - before;
    drop(client);
    running.stop().await?;
    Ok(usize::try_from(bytes / MESSAGES)?)
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
            let received = self.mailbox.recv(&self.by, &self.topic, receive, Deadline::after(PATIENCE)).await?;
            if let Some(delivery) = received.first() {
                break delivery.receipt;
            }
        };
        let settled = self.mailbox.ack(vec![receipt], Deadline::after(PATIENCE)).await;
        settled.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_log_takes_a_little_more_than_the_payload() {
        for payload_bytes in [256, 4096] {
            let bytes = log_bytes_each(&Payload::new(payload_bytes)).await.expect("an engine in memory");
            assert!((payload_bytes + 32..payload_bytes + 256).contains(&bytes), "{bytes} for {payload_bytes}");
        }
    }
}
