//! The calls a program makes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::batch::{Done, Item, Line};
use crate::error::{Error, Refusal};
use crate::gather::{Gather, after, now};
use crate::link::Link;
use crate::node::{Node, Options};
use crate::types::{Message, Receive, Received, Sent};

/// Between two tries while the node is away.
const AWAY_PAUSE: Duration = Duration::from_millis(100);
/// Connections kept for receives to come.
const SPARE_LINKS_MAX: usize = 16;

/// The mailbox of a node. Clones share their connections; the last one to go closes them.
#[derive(Clone)]
pub struct Mailbox {
    shared: Arc<Shared>,
    /// Ends the carriers when nobody can give them anything more.
    _carriers: Arc<JoinSet<()>>,
}

struct Shared {
    node: Node,
    gather: Gather,
    room: Semaphore,
    /// Open connections that nobody receives on at the moment.
    spare: Mutex<Vec<Link>>,
}

#[derive(Serialize)]
struct ReceiveRequest<'a> {
    topic: &'a str,
    max_messages: usize,
    max_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_ms: Option<u64>,
    wait_ms: u64,
}

#[derive(Deserialize)]
struct ReceiveAnswer {
    messages: Vec<Received>,
}

#[derive(Serialize)]
struct SettleRequest<'a> {
    receipts: [&'a str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_ms: Option<u64>,
}

#[derive(Deserialize)]
struct SettleAnswer {
    results: Vec<Settled>,
}

#[derive(Deserialize)]
struct Settled {
    error: Option<Refusal>,
}

impl Mailbox {
    /// Opens the first connection. Needs a tokio runtime, whose tasks carry the requests from then on.
    pub async fn connect(options: Options) -> Result<Mailbox, Error> {
        let node = Node::new(&options)?;
        let mut first = Some(node.link().await?);
        let shared = Arc::new(Shared {
            node,
            gather: Gather::default(),
            room: Semaphore::new(options.pending_max.max(1)),
            spare: Mutex::default(),
        });
        let mut carriers = JoinSet::new();
        for _ in 0..options.connections.max(1) {
            carriers.spawn(carry(Arc::clone(&shared), first.take().unwrap_or_default()));
        }
        Ok(Mailbox { shared, _carriers: Arc::new(carriers) })
    }

    /// Sends one message, together with what others send to the topic at that time. A node that is busy or away is
    /// asked again while there is time. A call that is dropped before its turn came is not sent.
    pub async fn send(&self, topic: &str, message: impl Into<Message>) -> Result<Sent, Error> {
        let (message, line) = (message.into(), Line::Send(topic.to_owned()));
        let until = after(self.shared.node.patience);
        let mut doubt = None;
        loop {
            let error = match self.ask(&line, message.written(), until).await {
                Ok(Done::Sent(sent)) => return Ok(sent),
                Ok(Done::Acked) => return Err(Error::senseless("an acknowledgement of a send")),
                Err(error) => error,
            };
            // The key makes both of them one message.
            let pause = pause_after(&error, message.idem_key.is_some());
            if matches!(error, Error::Unknown(_)) {
                doubt = Some(error.clone());
            }
            // What becomes of a later try does not tell what became of an earlier one.
            rest(pause, until).await.ok_or_else(|| doubt.take().unwrap_or(error))?;
        }
    }

    /// Says that a message is done with, together with what others acknowledge at the same time.
    pub async fn ack(&self, receipt: &str) -> Result<(), Error> {
        let text = serde_json::to_vec(receipt).expect("a text can be written");
        let until = after(self.shared.node.patience);
        loop {
            match self.ask(&Line::Ack, text.clone(), until).await {
                Ok(_) => return Ok(()),
                Err(error) => rest(pause_after(&error, false), until).await.ok_or(error)?,
            }
        }
    }

    /// Receives messages under a lease.
    pub async fn receive(&self, topic: &str, receive: Receive) -> Result<Vec<Received>, Error> {
        let request = ReceiveRequest {
            topic,
            max_messages: receive.max_messages,
            max_bytes: receive.max_bytes,
            visibility_ms: receive.visibility.map(|time| time.as_millis() as u64),
            wait_ms: receive.wait.as_millis() as u64,
        };
        let until = after(self.shared.node.patience.saturating_add(receive.wait));
        let answer: ReceiveAnswer = self.post("/v1/recv", &request, until).await?;
        Ok(answer.messages)
    }

    /// Gives a message back, to be delivered again after the delay, or after the topic's backoff.
    pub async fn nack(&self, receipt: &str, reason: &str, delay: Option<Duration>) -> Result<(), Error> {
        let delay_ms = delay.map(|time| time.as_millis() as u64);
        let request = SettleRequest { receipts: [receipt], reason: Some(reason), delay_ms, visibility_ms: None };
        self.settle("/v1/nack", &request).await
    }

    /// Holds a message this much longer, counted from now.
    pub async fn extend(&self, receipt: &str, visibility: Duration) -> Result<(), Error> {
        let visibility_ms = Some(visibility.as_millis() as u64);
        let request = SettleRequest { receipts: [receipt], reason: None, delay_ms: None, visibility_ms };
        self.settle("/v1/extend", &request).await
    }

    /// Has one item carried with others of its line.
    async fn ask(&self, line: &Line, text: Vec<u8>, until: Instant) -> Result<Done, Error> {
        let not_sent = || Error::NotSent(self.shared.node.patience);
        // Never closed.
        let Some(Ok(_room)) = by(until, self.shared.room.acquire()).await else { return Err(not_sent()) };
        let (reply, mut answer) = oneshot::channel();
        let gather = &self.shared.gather;
        let mut waiting =
            Waiting { gather, line, number: gather.push(line, Item { text, until, reply }), is_over: false };
        let answered = by(until, &mut answer).await;
        waiting.is_over = true;
        match answered {
            // A reply that ends without a word was left out because its time was over.
            Some(answered) => answered.unwrap_or_else(|_| Err(not_sent())),
            None if gather.withdraw(line, waiting.number) => Err(not_sent()),
            // It is on its way, unless its answer came in this very moment.
            None => answer.try_recv().unwrap_or_else(|_| {
                Err(Error::Unknown(format!("no answer within {} ms", self.shared.node.patience.as_millis())))
            }),
        }
    }

    async fn settle(&self, path: &str, request: &SettleRequest<'_>) -> Result<(), Error> {
        let SettleAnswer { results } = self.post(path, request, after(self.shared.node.patience)).await?;
        match results.into_iter().next() {
            Some(Settled { error: Some(refusal) }) => Err(refusal.into()),
            Some(Settled { error: None }) => Ok(()),
            None => Err(Error::senseless("no result")),
        }
    }

    /// A request of its own, on a connection of its own while it lasts.
    async fn post<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        request: &impl Serialize,
        until: Instant,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(request).expect("texts and numbers can be written");
        let mut link = self.spare().pop().unwrap_or_default();
        let answer = self.shared.node.post(&mut link, path, body, until).await;
        let mut spare = self.spare();
        if spare.len() < SPARE_LINKS_MAX {
            spare.push(link);
        }
        drop(spare);
        serde_json::from_slice(&answer?).map_err(Error::senseless)
    }

    /// Maximum duration of a call.
    pub(crate) fn patience(&self) -> Duration {
        self.shared.node.patience
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<Link>> {
        self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mailbox").field("address", &self.shared.node.endpoint.address()).finish_non_exhaustive()
    }
}

/// A call that waits for its answer. One that is dropped before it has left is taken back: while no connection is free,
/// what it carries would be kept for nobody, and its place is somebody else's by then.
struct Waiting<'a> {
    gather: &'a Gather,
    line: &'a Line,
    number: u64,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.gather.withdraw(self.line, self.number);
        }
    }
}

/// One connection's life: it carries whatever waits when it is free.
async fn carry(shared: Arc<Shared>, mut link: Link) {
    loop {
        let batch = shared.gather.next().await;
        batch.deliver(&shared.node, &mut link).await;
    }
}

/// What comes of a wait, if it comes in time.
async fn by<T>(until: Instant, wait: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(until, wait).await.ok()
}

/// Pause before the same is asked again; endless if a retry is useless or harmful.
pub(crate) fn pause_after(error: &Error, may_be_done_twice: bool) -> Duration {
    match error {
        Error::Unreachable { .. } => AWAY_PAUSE,
        Error::Unknown(_) if may_be_done_twice => AWAY_PAUSE,
        error => error.retry_after().unwrap_or(Duration::MAX),
    }
}

/// Waits, unless the time would be over by then.
pub(crate) async fn rest(pause: Duration, until: Instant) -> Option<()> {
    let wake = now().checked_add(pause).filter(|wake| *wake < until)?;
    tokio::time::sleep_until(wake).await;
    Some(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn calls_that_are_dropped_while_the_node_says_nothing_are_kept_nowhere() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        // Every call is let in, and none is answered.
        let mailbox = Mailbox::connect(Options { connections: 1, ..Options::new(url, "token") }).await.expect("a node");
        for _ in 0..100 {
            let mut send = Box::pin(mailbox.send("a", "x"));
            let mut ack = Box::pin(mailbox.ack("r"));
            let begun = std::future::poll_fn(|context| {
                std::task::Poll::Ready(
                    send.as_mut().poll(context).is_pending() && ack.as_mut().poll(context).is_pending(),
                )
            });
            assert!(begun.await, "nothing comes in no time");
            tokio::task::yield_now().await;
        }
        assert_eq!(mailbox.shared.gather.waiting(), 0);
        assert_eq!(mailbox.shared.room.available_permits(), 10_000);
    }
}
