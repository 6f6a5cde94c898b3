//! Sends of many tasks that travel together: what waits for the same topic goes as one batch.
//!
//! The rule is that of the node's log and of `macronode-client` (ADR 8). A send that finds the session idle leaves at
//! once, as a request of its own. While requests are on their way further sends gather, and leave together when one of
//! those is answered. There is no timer, so nobody waits for company that does not come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hashbrown::HashMap;
use ron_types::limits::mailbox::CALL_ITEMS_MAX;
use tokio::sync::{Notify, oneshot};

use crate::client::Connection;
use crate::error::Error;
use crate::mailbox::{Mailbox, OutgoingMessage, Sent};

/// Requests of gathered sends that are on their way at once: while the node syncs one, the next ones come in. Measured
/// with 64 tasks, against HTTP with a request for each message: 1.87 times as many with one, 1.77 with two, 2.17 with
/// three, 2.15 with four, 1.95 with six.
const REQUESTS_MAX: usize = 4;
/// Bytes of bodies in one request, so that a large one does not hold up the answers to many small ones.
const REQUEST_BYTES_MAX: usize = 128 * 1024;
/// Bytes that the head of a message takes beside its texts, at most.
const HEAD_BYTES_MAX: usize = 256;

/// Sends that wait for others to be answered.
#[derive(Default)]
pub(crate) struct Gather {
    waiting: Mutex<Waiting>,
    /// Wakes the task that carries.
    work: Notify,
}

#[derive(Default)]
struct Waiting {
    topics: HashMap<String, VecDeque<Call>>,
    /// Topics with something to send, the next one first.
    order: VecDeque<String>,
    /// Number of the next send.
    next: u64,
    /// Requests on their way.
    requests: usize,
}

/// One send.
struct Call {
    /// It rises within each topic.
    number: u64,
    message: OutgoingMessage,
    reply: oneshot::Sender<Result<Sent, Error>>,
}

/// Sends to one topic that travel together.
struct Batch {
    topic: String,
    calls: Vec<Call>,
}

/// A send that left at once, counted until it is answered or given up.
struct Alone<'a>(&'a Gather);

/// A send that waits. One that is given up before it has left is taken back: while the node does not answer, its
/// message would be kept for nobody.
struct Waits<'a> {
    gather: &'a Gather,
    topic: &'a str,
    number: u64,
    is_over: bool,
}

impl Mailbox {
    /// Sends a message to a topic and waits until the node has taken it. Tasks that send at the same time share
    /// requests; each has its own outcome.
    pub async fn send(&self, topic: &str, message: OutgoingMessage) -> Result<Sent, Error> {
        let gather = &self.connection.gather;
        if let Some(_alone) = gather.leave_alone() {
            return self.send_one(topic, message).await;
        }
        let (number, mut answer) = gather.push(topic, message);
        let mut waits = Waits { gather, topic, number, is_over: false };
        let answered = (&mut answer).await;
        waits.is_over = true;
        // The task that answers ends only with the session.
        answered.unwrap_or_else(|_| Err(self.connection.ended()))
    }

    async fn send_one(&self, topic: &str, message: OutgoingMessage) -> Result<Sent, Error> {
        let mut outcomes = self.send_batch(topic, std::slice::from_ref(&message)).await?;
        match (outcomes.pop(), outcomes.is_empty()) {
            (Some(outcome), true) => outcome.map_err(Error::Refused),
            _ => Err(Error::Protocol("not one outcome for one message")),
        }
    }
}

impl Gather {
    /// Lets a send leave at once if it has nobody to wait for.
    fn leave_alone(&self) -> Option<Alone<'_>> {
        let mut waiting = self.lock();
        let is_idle = waiting.requests == 0 && waiting.order.is_empty();
        is_idle.then(|| {
            waiting.requests += 1;
            Alone(self)
        })
    }

    /// Adds a send to those that wait; its number is for taking it back.
    fn push(&self, topic: &str, message: OutgoingMessage) -> (u64, oneshot::Receiver<Result<Sent, Error>>) {
        let (reply, answer) = oneshot::channel();
        let (number, calls) = {
            let mut waiting = self.lock();
            let number = waiting.next;
            waiting.next += 1;
            waiting.push(topic, Call { number, message, reply });
            (number, waiting.requests < REQUESTS_MAX)
        };
        if calls {
            self.work.notify_one();
        }
        (number, answer)
    }

    /// Sends that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().topics.values().map(VecDeque::len).sum()
    }

    /// The next batch to carry, counted as on its way.
    fn take(&self, bytes_max: usize) -> Option<Batch> {
        let mut waiting = self.lock();
        if waiting.requests >= REQUESTS_MAX {
            return None;
        }
        let batch = waiting.take(bytes_max)?;
        waiting.requests += 1;
        Some(batch)
    }

    /// A request was answered, or given up.
    fn note_answered(&self) {
        let calls = {
            let mut waiting = self.lock();
            waiting.requests -= 1;
            !waiting.order.is_empty()
        };
        if calls {
            self.work.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.note_answered();
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.gather.lock().withdraw(self.topic, self.number);
        }
    }
}

impl Waiting {
    /// Takes a send out, unless it has left.
    fn withdraw(&mut self, topic: &str, number: u64) {
        if let Some(calls) = self.topics.get_mut(topic)
            && let Ok(place) = calls.binary_search_by_key(&number, |call| call.number)
        {
            calls.remove(place);
        }
    }

    fn push(&mut self, topic: &str, call: Call) {
        match self.topics.get_mut(topic) {
            Some(calls) => calls.push_back(call),
            None => {
                self.order.push_back(topic.to_owned());
                self.topics.insert(topic.to_owned(), VecDeque::from([call]));
            }
        }
    }

    /// Calls of the first topic, as many as a request holds, without those that were given up. A topic with more goes
    /// to the end of the line.
    fn take(&mut self, bytes_max: usize) -> Option<Batch> {
        while let Some(topic) = self.order.pop_front() {
            let mut waiting = self.topics.remove(&topic).unwrap_or_default();
            let (mut calls, mut bytes) = (Vec::new(), 0);
            while calls.len() < CALL_ITEMS_MAX
                && let Some(next) = waiting.front()
            {
                let with_next = bytes + next.message.bytes_in_request();
                // One that is too large for any request is told so when it is tried alone.
                if !calls.is_empty() && with_next > bytes_max {
                    break;
                }
                let Some(call) = waiting.pop_front() else { break };
                if !call.reply.is_closed() {
                    calls.push(call);
                    bytes = with_next;
                }
            }
            if !waiting.is_empty() {
                self.order.push_back(topic.clone());
                self.topics.insert(topic.clone(), waiting);
            }
            if !calls.is_empty() {
                return Some(Batch { topic, calls });
            }
        }
        None
    }
}

impl OutgoingMessage {
    /// Bytes that it takes in a request, at most.
    fn bytes_in_request(&self) -> usize {
        // A character of a text takes six bytes in JSON at most.
        let of = |text: &str| 6 * text.len();
        let attrs: usize = self.attrs.iter().map(|(name, value)| of(name) + of(value) + 6).sum();
        let texts = self.idem_key.as_deref().map_or(0, of) + self.group.as_deref().map_or(0, of);
        HEAD_BYTES_MAX + texts + attrs + self.body.len()
    }
}

/// Carries what has gathered, for as long as the session has users.
pub(crate) async fn carry(connection: Weak<Connection>, gather: Arc<Gather>) {
    let mut on_their_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = gather.work.notified() => {}
            Some(()) = on_their_way.next() => {}
        }
        // Those who were just answered come first: what they send next travels along.
        tokio::task::yield_now().await;
        let Some(connection) = connection.upgrade() else { return };
        let bytes_max = REQUEST_BYTES_MAX.min(connection.payload_bytes_max());
        while let Some(batch) = gather.take(bytes_max) {
            on_their_way.push(batch.deliver(Mailbox::new(Arc::clone(&connection))));
        }
    }
}

impl Batch {
    /// Has it sent, and gives each call its outcome.
    async fn deliver(self, mailbox: Mailbox) {
        let Batch { topic, calls } = self;
        let (messages, replies): (Vec<_>, Vec<_>) = calls.into_iter().map(|call| (call.message, call.reply)).unzip();
        let outcomes = match mailbox.send_batch(&topic, &messages).await {
            Ok(outcomes) if outcomes.len() == replies.len() => {
                outcomes.into_iter().map(|outcome| outcome.map_err(Error::Refused)).collect()
            }
            Ok(_) => vec![Err(Error::Protocol("not one outcome for each message")); replies.len()],
            // What the node finds wrong with one message must not be told to the others.
            Err(error) if replies.len() > 1 && error.is_of_the_content() => {
                let mut outcomes = Vec::with_capacity(messages.len());
                for message in messages {
                    outcomes.push(mailbox.send_one(&topic, message).await);
                }
                outcomes
            }
            Err(error) => vec![Err(error); replies.len()],
        };
        mailbox.connection.gather.note_answered();
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // Whoever has gone does not want to know.
            let _ = reply.send(outcome);
        }
    }
}
