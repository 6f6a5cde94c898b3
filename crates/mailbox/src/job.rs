//! What is asked of a shard: work that runs on its turn, and the reply that leaves once the log is durable.

use std::sync::Arc;

use ron_kernel::queue::Payload;
use ron_log::{Appender, Class, Log, LogError, LoneCommit, Lsn, Position};
use ron_types::limits::mailbox::{KEY_BYTES_MAX, REASON_BYTES_MAX};
use ron_types::{Error, Kind};
use tokio::sync::oneshot;

use crate::engine::{Engine, log_error};
use crate::fault;
use crate::receiving::ShardReceive;
use crate::shard::{Journal, Shard};
use crate::topics::{SettingsSeen, Topic};
use crate::types::{Millis, PartKey, TopicId};

/// A job on its way to a shard.
pub(crate) enum Job {
    /// Work that is done at once.
    Do(Box<dyn Work>),
    /// A receive, which may wait for a message.
    Recv(ShardReceive),
    /// Answers waiting receivers with no messages, then does the work: partitions are about to move.
    DismissReceivers(Box<dyn Work>),
}

/// Something is due, or something was moved here.
pub(crate) struct Wake;

impl Payload for Wake {}

impl Payload for Job {
    fn bytes(&self) -> usize {
        match self {
            Job::Do(work) | Job::DismissReceivers(work) => work.bytes(),
            Job::Recv(_) => 0,
        }
    }
}

/// Work on a shard's turn, and its reply.
pub(crate) trait Work: Send {
    /// Does it; the result is kept until the reply may leave.
    fn run(&mut self, turn: &mut Turn<'_>);
    /// Sends the reply.
    fn reply(self: Box<Self>);
    /// Payload bytes it carries.
    fn bytes(&self) -> usize;
}

/// A function to run on the turn, and the channel on which a caller waits for its result.
pub(crate) struct ShardCall<F, R> {
    work: Option<F>,
    result: Option<R>,
    reply: oneshot::Sender<R>,
    bytes: usize,
}

impl<F, R> ShardCall<F, R> {
    pub fn new(bytes: usize, work: F) -> (Box<Self>, oneshot::Receiver<R>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(ShardCall { work: Some(work), result: None, reply, bytes }), answer)
    }
}

impl<F, R> Work for ShardCall<F, R>
where
    F: FnOnce(&mut Turn<'_>) -> R + Send,
    R: Send,
{
    fn run(&mut self, turn: &mut Turn<'_>) {
        // A caller that has gone no longer wants it done.
        if let (Some(work), false) = (self.work.take(), self.reply.is_closed()) {
            self.result = Some(work(turn));
        }
    }

    fn reply(self: Box<Self>) {
        if let Some(result) = self.result {
            let _ = self.reply.send(result);
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One turn of a shard: its state, the journal and the time.
pub(crate) struct Turn<'a> {
    pub shard: &'a mut Shard,
    pub journal: &'a mut dyn Journal,
    pub now: Millis,
    pub engine: &'a Engine,
    pub index: usize,
    pub settings_seen: &'a mut SettingsSeen,
}

impl Turn<'_> {
    /// Makes sure that the partition belongs here and that the shard knows its settings.
    pub fn enter(&mut self, part: PartKey) -> Result<Arc<Topic>, Error> {
        if self.engine.routing.get().value.shard_of(part) != self.index {
            return Err(moved());
        }
        self.learn(part.topic)
    }

    /// As [`Self::enter`] for whatever is here of a topic: makes sure that partitions are where the caller thinks.
    pub fn enter_topic(&mut self, topic: TopicId, shards: usize) -> Result<Arc<Topic>, Error> {
        if self.engine.routing.get().value.shards != shards {
            return Err(moved());
        }
        self.learn(topic)
    }

    fn learn(&mut self, topic: TopicId) -> Result<Arc<Topic>, Error> {
        let topic = self.engine.topics.by_id(topic);
        let topic = topic.ok_or_else(|| Error::new(Kind::NotFound, "the topic is gone"))?;
        self.tell(&topic);
        Ok(topic)
    }

    /// Lets the shard know what became of a topic: other settings, or its end.
    pub fn follow_topic(&mut self, id: TopicId) {
        if let Some(topic) = self.engine.topics.by_id(id) {
            return self.tell(&topic);
        }
        for gone in id.with_dead_letters() {
            self.settings_seen.remove(&gone);
        }
        self.shard.forget_topic(id, self.journal);
    }

    /// Tells the shard a topic's settings if they have changed since it was last told.
    pub fn tell(&mut self, topic: &Topic) {
        self.engine.topics.tell_if_new(self.shard, self.settings_seen, topic);
    }
}

fn moved() -> Error {
    Error::busy("the mailbox, whose partitions have just been moved,")
}

/// Bytes of a record without a body, in the log: two names and what a consumer said.
const SHORT_RECORD_BYTES_MAX: u32 = (REASON_BYTES_MAX + KEY_BYTES_MAX + 256) as u32;

/// The log as the core sees it, for one turn.
pub(crate) struct LogJournal<'a> {
    appender: Appender<'a>,
    wrote: bool,
    /// Steps of deliveries for which there was no room.
    pub unwritten: u64,
    /// Given back to the log after the turn, because the turn holds the log's lock.
    released: &'a mut Vec<Position>,
}

impl<'a> LogJournal<'a> {
    pub fn new(log: &'a Log, released: &'a mut Vec<Position>) -> Self {
        // A panic of the turn leaves the log whole: the shard is read from it again.
        LogJournal { appender: log.appender().of_rebuilt(), wrote: false, unwritten: 0, released }
    }

    /// Number of the last record of anybody.
    pub fn last(&self) -> Lsn {
        self.appender.lsn()
    }

    /// The last record's number, if this turn wrote any.
    pub fn written(&self) -> Option<Lsn> {
        self.wrote.then(|| self.appender.lsn())
    }

    /// Lets the log go; its writer commits, or the caller if it offers to and its records are alone.
    pub fn finish(self, settles: bool) -> Option<LoneCommit> {
        if settles { self.appender.finish() } else { None }
    }
}

impl Journal for LogJournal<'_> {
    fn append(&mut self, class: Class, head: &[u8], body: &[u8]) -> Result<Position, Error> {
        fault::point();
        match self.appender.append(class, head, body) {
            Ok(position) => {
                self.wrote = true;
                fault::point();
                Ok(position)
            }
            // Deliveries must go on when the quota is used up, or nothing could ever be acknowledged again. What is not
            // written is only how often and to whom a message was handed out: after a crash it is handed out once more.
            Err(LogError::Full { .. }) if class == Class::Step => {
                self.unwritten += 1;
                Ok(Position { segment: 0, offset: 0, len: 0 })
            }
            Err(error) => Err(log_error(error)),
        }
    }

    fn release(&mut self, position: Position) {
        fault::point();
        self.released.push(position);
    }

    fn takes(&self, class: Class) -> bool {
        self.appender.takes(class, SHORT_RECORD_BYTES_MAX)
    }
}
