//! What futures leave behind that were dropped: frames that found no room, and messages that arrived for nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use oap::Frame;
use ron_transport::Outbox;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::client::Connection;
use crate::mailbox::Mailbox;
use crate::routes::Routes;

/// Something that still has to be done, though nobody waits for it.
pub(crate) enum Leftover {
    /// The last word on a request or a stream, with the permit of what it ends.
    Frame(Frame, Option<OwnedSemaphorePermit>),
    /// The answer to a receive that was given up, and its permit.
    Unreceived(Bytes, OwnedSemaphorePermit),
}

/// Leftovers in their order. Each belongs to a request or a stream, of which there are as many as were agreed on.
#[derive(Default)]
pub(crate) struct Leftovers {
    waiting: Mutex<VecDeque<Leftover>>,
    /// Wakes the task that clears them.
    work: Notify,
}

impl Leftovers {
    pub(crate) fn push(&self, leftover: Leftover) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(leftover);
        self.work.notify_one();
    }

    async fn next(&self) -> Leftover {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(next) = next {
                return next;
            }
            self.work.notified().await;
        }
    }
}

/// Does what is left to be done, for as long as the session has users.
pub(crate) async fn clear(connection: Weak<Connection>, routes: Arc<Routes>, outbox: Outbox) {
    loop {
        match routes.leftovers.next().await {
            // The permit is given back once the node will hear of the end.
            Leftover::Frame(frame, _permit) => drop(outbox.send(frame.corr, frame).await),
            Leftover::Unreceived(answer, permit) => {
                let Some(connection) = connection.upgrade() else { return };
                Mailbox::new(connection).give_back(&answer, permit).await;
            }
        }
    }
}
