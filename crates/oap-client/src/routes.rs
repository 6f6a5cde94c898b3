//! Whom a frame is for: answers to their requests, outcomes to their publishers, events to their subscriptions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use oap::status::Status;
use oap::{Flags, Frame};
use ron_transport::{Closed, GoAway, Heard};
use tokio::sync::{oneshot, watch};

use crate::error::Error;
use crate::inbox::Inbox;
use crate::lanes::Outcomes;

/// Bytes of an answer that comes in several frames; a node that sends more is not believed.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A whole answer; or why there is none.
pub(crate) struct Whole {
    pub(crate) code: Status,
    pub(crate) payload: Bytes,
}

pub(crate) type Answered = Result<Whole, Error>;

/// Who waits for the frames of one number.
pub(crate) enum Route {
    /// A request; frames of its answer are gathered here until the last one.
    Request { parts: BytesMut, sender: Option<oneshot::Sender<Answered>> },
    /// A publisher.
    Publisher(Arc<Outcomes>),
    /// A subscription.
    Subscription(Arc<Inbox>),
}

/// The numbers in use, and how the session stands.
pub(crate) struct Routes {
    by_corr: Mutex<HashMap<u64, Route>>,
    farewell: Mutex<Option<GoAway>>,
    ended: watch::Sender<Option<Closed>>,
}

impl Default for Routes {
    fn default() -> Self {
        Routes { by_corr: Mutex::default(), farewell: Mutex::default(), ended: watch::Sender::new(None) }
    }
}

impl Route {
    pub(crate) fn request(sender: oneshot::Sender<Answered>) -> Self {
        Route::Request { parts: BytesMut::new(), sender: Some(sender) }
    }
}

impl Routes {
    /// Frames of this number go to the route from now on.
    pub(crate) fn add(&self, corr: u64, route: Route) -> Result<(), Error> {
        let mut by_corr = self.lock();
        // Looked at under the lock: whoever ends the session empties the table once, after saying how it ended.
        if let Some(closed) = self.how_it_ended() {
            return Err(Error::Closed(closed));
        }
        by_corr.insert(corr, route);
        Ok(())
    }

    pub(crate) fn remove(&self, corr: u64) {
        self.lock().remove(&corr);
    }

    /// Hands on what one read brought. Waits while the inbox of a subscription is full.
    pub(crate) async fn dispatch(&self, heard: &mut Vec<Heard>) {
        // Events of one subscription that follow each other go into its inbox together, with one lock and one wake-up.
        let (mut run, mut run_corr): (VecDeque<Frame>, u64) = (VecDeque::new(), 0);
        for heard in heard.drain(..) {
            match heard {
                Heard::Frame(frame) if frame.has(Flags::EVENT) => {
                    if frame.corr != run_corr {
                        self.deliver(run_corr, &mut run).await;
                        run_corr = frame.corr;
                    }
                    run.push_back(frame);
                }
                Heard::Frame(frame) if frame.has(Flags::RESP) => {
                    // An answer may end the subscription whose events came before it.
                    self.deliver(run_corr, &mut run).await;
                    self.answer(frame);
                }
                Heard::GoAway(farewell) => {
                    self.farewell.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(farewell);
                }
                // A node asks nothing of a client, and gives credit for nothing that a client sends.
                Heard::Frame(_) | Heard::Credit { .. } => {}
            }
        }
        self.deliver(run_corr, &mut run).await;
    }

    async fn deliver(&self, corr: u64, run: &mut VecDeque<Frame>) {
        if run.is_empty() {
            return;
        }
        let inbox = match self.lock().get(&corr) {
            Some(Route::Subscription(inbox)) => Some(Arc::clone(inbox)),
            _ => None,
        };
        match inbox {
            Some(inbox) => inbox.put(run).await,
            // A subscription that was given up: what was on its way is dropped.
            None => run.clear(),
        }
    }

    fn answer(&self, frame: Frame) {
        let mut by_corr = self.lock();
        let is_last = frame.has(Flags::END);
        match by_corr.get_mut(&frame.corr) {
            Some(Route::Request { parts, sender }) => {
                let whole = gather(parts, &frame, is_last);
                if let Some(whole) = whole
                    && let Some(sender) = sender.take()
                {
                    let _ = sender.send(whole);
                }
            }
            Some(Route::Publisher(outcomes)) => outcomes.answer(frame.code, &frame.payload, is_last),
            Some(Route::Subscription(inbox)) if is_last => inbox.end(Error::of_answer(frame.code, &frame.payload)),
            Some(Route::Subscription(_)) => {}
            None => return,
        }
        if is_last {
            by_corr.remove(&frame.corr);
        }
    }

    /// The session is over: everybody who waits learns how.
    pub(crate) fn end(&self, closed: &Closed) {
        self.ended.send_replace(Some(closed.clone()));
        let routes = std::mem::take(&mut *self.lock());
        for route in routes.into_values() {
            match route {
                Route::Request { sender, .. } => {
                    let _ = sender.map(|sender| sender.send(Err(Error::Closed(closed.clone()))));
                }
                Route::Publisher(outcomes) => outcomes.end(&Error::Closed(closed.clone())),
                Route::Subscription(inbox) => inbox.end(Error::Closed(closed.clone())),
            }
        }
    }

    pub(crate) fn how_it_ended(&self) -> Option<Closed> {
        self.ended.borrow().clone()
    }

    pub(crate) fn farewell(&self) -> Option<GoAway> {
        self.farewell.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn ended(&self) -> Closed {
        let mut ended = self.ended.subscribe();
        let seen = ended.wait_for(Option::is_some).await.map(|closed| closed.clone());
        seen.ok().flatten().unwrap_or(Closed::Done)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Route>> {
        self.by_corr.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a frame to an answer; the whole of it with the last one.
fn gather(parts: &mut BytesMut, frame: &Frame, is_last: bool) -> Option<Answered> {
    if parts.len() + frame.payload.len() > ANSWER_BYTES_MAX {
        return Some(Err(Error::Protocol("an answer of more than 16 MiB")));
    }
    if is_last && parts.is_empty() {
        return Some(Ok(Whole { code: frame.code, payload: frame.payload.clone() }));
    }
    parts.extend_from_slice(&frame.payload);
    is_last.then(|| Ok(Whole { code: frame.code, payload: parts.split().freeze() }))
}
