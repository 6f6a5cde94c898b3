//! Messages taken ahead and handed out one by one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::Error;
use crate::gather::now;
use crate::mailbox::{Mailbox, pause_after, rest};
use crate::types::{Receive, Received};

/// Lease of received messages unless set.
const HOLD: Duration = Duration::from_secs(30);
/// Maximum wait of one request for messages unless set.
const WAIT: Duration = Duration::from_secs(20);

/// Hands out the messages of one topic. Clones share what was taken, so that many tasks work on one topic with few
/// requests. Whoever gets a message answers for it with [`Mailbox::ack`] or [`Mailbox::nack`], in time.
#[derive(Clone, Debug)]
pub struct Consumer {
    mailbox: Mailbox,
    topic: Arc<str>,
    receive: Receive,
    /// The receiving side; whoever has it receives for the others.
    ahead: Arc<Mutex<VecDeque<Ahead>>>,
}

/// A message that nobody works on yet.
#[derive(Debug)]
struct Ahead {
    message: Received,
    /// Until when it may lie here: half of the time it is held, so that whoever gets it has the other half.
    fresh_until: Instant,
}

impl Mailbox {
    /// Takes the messages of a topic one by one. One request takes up to `max_messages` ahead. They are held for 30
    /// seconds unless `receive` says otherwise; a request waits for 20 seconds, or as long as `receive` says.
    pub fn consumer(&self, topic: &str, receive: Receive) -> Consumer {
        let wait = if receive.wait.is_zero() { WAIT } else { receive.wait };
        let receive = Receive { wait, ..receive };
        Consumer { mailbox: self.clone(), topic: topic.into(), receive, ahead: Arc::default() }
    }
}

impl Consumer {
    /// The next message, whenever it comes. A node that is busy or away is asked again while the client has patience.
    /// A message that lay here for half of its time is held anew, and left out if it is somebody else's by now.
    /// A call that is dropped loses nothing: what it was about to take stays here or goes back to the topic.
    pub async fn next(&self) -> Result<Received, Error> {
        let mut ahead = self.ahead.lock().await;
        loop {
            while let Some(first) = ahead.front() {
                let is_ours = now() < first.fresh_until || self.hold_for(&first.message.receipt, self.hold()).await?;
                if let Some(first) = ahead.pop_front().filter(|_| is_ours) {
                    return Ok(first.message);
                }
            }
            // Counted from before the request: the node's time began later.
            let fresh_until = now() + self.hold() / 2;
            let messages = self.take().await?;
            ahead.extend(messages.into_iter().map(|message| Ahead { message, fresh_until }));
        }
    }

    /// Gives back what was taken ahead and handed to nobody, so that others get it at once. Otherwise they get it when
    /// the time is over for which it is held. Comes after a receive that is under way: end the tasks first.
    pub async fn give_back(&self) -> Result<(), Error> {
        let mut ahead = self.ahead.lock().await;
        while let Some(first) = ahead.front() {
            self.hold_for(&first.message.receipt, Duration::ZERO).await?;
            ahead.pop_front();
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        self.receive.visibility.unwrap_or(HOLD)
    }

    /// Gives a message another time to be held for; false if it is no longer ours.
    async fn hold_for(&self, receipt: &str, time: Duration) -> Result<bool, Error> {
        match self.patiently(|| self.mailbox.extend(receipt, time)).await {
            Ok(()) => Ok(true),
            Err(Error::Refused { retry_after: None, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Receives again and again until at least one message came.
    async fn take(&self) -> Result<Vec<Received>, Error> {
        loop {
            let messages =
                self.patiently(|| self.mailbox.receive(&self.topic, self.receive.holding(self.hold()))).await?;
            if !messages.is_empty() {
                return Ok(messages);
            }
        }
    }

    /// Asks again while the node is busy or away. What is asked here may be done twice: a lease that got lost with its
    /// answer ends by itself.
    async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut failing_since = None;
        loop {
            let error = match ask().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let until = *failing_since.get_or_insert_with(now) + self.mailbox.patience();
            rest(pause_after(&error, true), until).await.ok_or(error)?;
        }
    }
}
