//! A mailbox on a kernel of its own, for tests that look behind its handle.

use std::time::Duration;

use ron_auth::Subject;
use ron_kernel::{Builder, Deadline, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot};

use crate::engine::Engine;
use crate::types::{PartKey, TopicName, TopicSettings};
use crate::{Delivery, LiveOptions, Mailbox, MailboxOptions, Outgoing, Receive};

pub struct RunningMailbox {
    pub mailbox: Mailbox,
    pub kernel: KernelHandle,
    pub live: Snapshot<LiveOptions>,
    running: tokio::task::JoinHandle<ExitReport>,
}

impl RunningMailbox {
    #[expect(clippy::disallowed_methods, reason = "a test has no kernel to run its kernel on")]
    pub async fn start(options: MailboxOptions) -> RunningMailbox {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let live = Snapshot::new(LiveOptions::default());
        let mailbox = crate::install(&mut builder, options, live.clone());
        let kernel = builder.build().expect("a valid plan");
        let handle = kernel.handle();
        let running = tokio::spawn(kernel.run());
        let ready = async { handle.watch_status().wait_for(|status| status.is_ready()).await.map(drop) };
        soon().run("test", ready).await.expect("ready in time").expect("the kernel lives");
        RunningMailbox { mailbox, kernel: handle, live, running }
    }

    pub async fn stop(self) {
        self.kernel.drain().await.expect("the supervisor listens");
        assert_eq!(self.running.await.expect("it ends").code, 0);
    }

    pub fn engine(&self) -> &Engine {
        self.mailbox.engine()
    }

    pub async fn create(&self, topic: &str, settings: TopicSettings) {
        self.mailbox.create_topic(&name(topic), settings, soon()).await.expect("made");
    }

    /// A partition of a topic that exists.
    pub fn part(&self, topic: &str, partition: u16) -> PartKey {
        PartKey { topic: self.engine().topics.get(&name(topic)).expect("it exists").id, partition }
    }

    pub async fn send(&self, topic: &str, delay_ms: u64) {
        let message = Outgoing { payload: "x".into(), delay_ms: Some(delay_ms), ..Outgoing::default() };
        self.mailbox.send(&anybody(), &name(topic), message, soon()).await.expect("sent");
    }

    pub async fn recv(&self, topic: &str, wait_ms: u64) -> Vec<Delivery> {
        self.mailbox.recv(&anybody(), &name(topic), receive(wait_ms), soon()).await.expect("received")
    }
}

/// Up to ten messages, hidden for longer than a test lasts.
pub fn receive(wait_ms: u64) -> Receive {
    let (visibility_ms, consumer) = (Some(600_000), "test".to_owned());
    Receive { visibility_ms, max_messages: 10, max_bytes: 1 << 20, wait_ms, consumer }
}

pub fn name(text: &str) -> TopicName {
    text.parse().expect("a topic's name")
}

pub fn anybody() -> Subject {
    Subject::operator("test")
}

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(25))
}
