//! A mailbox whose tasks do not run: a test runs its turns one after the other, on its own thread, and nothing is
//! durable before the test says so.

use std::sync::Arc;

use ron_kernel::{Builder, Deadline, Kernel, KernelOptions, Metrics, Snapshot};
use ron_log::{Disk, Log};
use ron_types::Error;
use tokio::sync::oneshot;

use crate::engine::{Engine, lock};
use crate::job::{Job, ShardCall, Turn};
use crate::recovery;
use crate::types::{PartKey, Summary, TopicName, TopicSettings};
use crate::{LiveOptions, Mailbox, MailboxOptions};

/// When the clock of a stage starts.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// The mailbox, and what keeps its channels open.
pub(crate) struct Stage {
    pub mailbox: Mailbox,
    _kernel: Kernel,
}

impl Stage {
    /// Opens the log on this disk, with this many shards.
    pub fn open(disk: Arc<dyn Disk>, options: MailboxOptions, ready_shards: usize) -> Stage {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let live = Snapshot::new(LiveOptions { ready_shards, ..LiveOptions::default() });
        let mailbox = crate::install(&mut builder, options, live);
        let engine = &mailbox.engine;
        let routing = engine.routing.get().value;
        let recovered = recovery::open_on(disk, &engine.options, &engine.topics, routing, (START_MS, None));
        recovered.expect("the log opens").install(engine);
        engine.shards.iter().for_each(|handle| lock(&handle.shared.slot).pending.is_attended = true);
        Stage { mailbox, _kernel: builder.build().expect("a valid plan") }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.mailbox.engine
    }

    pub fn log(&self) -> &Log {
        &self.engine().opened().expect("opened at the start").log
    }

    /// Makes a topic, and says where its messages are.
    pub fn make_topic(&self, name: &str, settings: TopicSettings) -> PartKey {
        let name: TopicName = name.parse().expect("a topic's name");
        let (_, topic, _) = self.engine().make_topic(&name, settings, None).expect("there is room");
        PartKey { topic: topic.id, partition: 0 }
    }

    /// Does something on a turn of a shard at once, durable or not.
    pub fn turn<R: Send + 'static>(
        &self,
        index: usize,
        work: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let (done, mut result) = oneshot::channel();
        let (work, _answer) = ShardCall::new(0, move |turn: &mut Turn<'_>| drop(done.send(work(turn))));
        drop(self.engine().ask_and_settle(index, Job::Do(work))?);
        result.try_recv().map_err(|_| Error::canceled("nobody has run the turn"))
    }

    /// The same on the turn of the shard that owns a partition, which knows its settings then.
    pub fn on_part<R: Send + 'static>(
        &self,
        part: PartKey,
        work: impl FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
    ) -> Result<R, Error> {
        let index = self.engine().routing.get().value.shard_of(part);
        self.turn(index, move |turn| turn.enter(part).and_then(|_| work(turn)))?
    }

    /// Everything in a partition.
    pub fn browse(&self, part: PartKey) -> Vec<Summary> {
        let browsed = self.on_part(part, move |turn| {
            let mut summaries = Vec::new();
            turn.shard.browse(part, None, usize::MAX, &mut summaries);
            Ok(summaries)
        });
        browsed.expect("it can be looked at")
    }
}

/// A deadline that no test reaches.
pub(crate) fn soon() -> Deadline {
    Deadline::after(std::time::Duration::from_secs(30))
}
