//! Whom a frame is for: answers to their requests, outcomes to their publishers, events to their subscriptions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use oap::status::Status;
use oap::{Flags, Frame};
use ron_transport::{Closed, GoAway, Heard};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::error::Error;
use crate::inbox::Inbox;
use crate::lanes::Outcomes;
use crate::leftovers::{Leftover, Leftovers};
use crate::mailbox::ChainStep;

/// Bytes of an answer that comes in several frames; a node that sends more is not believed.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A whole answer; or why there is none.
pub(crate) struct Whole {
    pub(crate) code: Status,
    pub(crate) payload: Bytes,
}

pub(crate) type Answered = Result<Whole, Error>;

/// What has to be done with the answer to a request, whether or not somebody still waits for it.
pub(crate) enum Purpose {
    /// Nothing.
    Plain,
    /// Messages in it that nobody waits for are given back.
    Receive,
    /// The chain of sent batches goes on, if the node has taken this one.
    Chained(ChainStep),
}

/// A request; frames of its answer are gathered here until the last one.
pub(crate) struct Request {
    parts: BytesMut,
    receiver: Receiver,
    purpose: Purpose,
}

/// Whom an answer is for.
enum Receiver {
    Caller(oneshot::Sender<Answered>),
    /// It was given up; until it is answered it counts among those in flight.
    Nobody(OwnedSemaphorePermit),
    /// It was handed over.
    Done,
}

/// Who waits for the frames of one number.
pub(crate) enum Route {
    Request(Request),
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
    pub(crate) leftovers: Leftovers,
}

impl Default for Routes {
    fn default() -> Self {
        let (by_corr, farewell, leftovers) = (Mutex::default(), Mutex::default(), Leftovers::default());
        Routes { by_corr, farewell, ended: watch::Sender::new(None), leftovers }
    }
}

impl Route {
    pub(crate) fn request(sender: oneshot::Sender<Answered>, purpose: Purpose) -> Self {
        Route::Request(Request { parts: BytesMut::new(), receiver: Receiver::Caller(sender), purpose })
    }
}

impl Request {
    /// Takes a frame of the answer; with the last one it is handed over. What is left to be done with it is returned.
    fn take(&mut self, frame: &Frame, is_last: bool) -> Option<Leftover> {
        if is_last && let Purpose::Chained(step) = &mut self.purpose {
            step.settle(frame.code < 300);
        }
        let is_wanted = match &self.receiver {
            Receiver::Caller(_) => true,
            Receiver::Nobody(_) => matches!(self.purpose, Purpose::Receive),
            Receiver::Done => false,
        };
        let whole = if is_wanted { gather(&mut self.parts, frame, is_last)? } else { return None };
        match (std::mem::replace(&mut self.receiver, Receiver::Done), whole) {
            (Receiver::Caller(sender), whole) => {
                let _ = sender.send(whole);
                None
            }
            (Receiver::Nobody(permit), Ok(whole)) => unreceived(whole, permit),
            _ => None,
        }
    }
}

/// What is left to be done with the answer to a receive that nobody waits for.
fn unreceived(Whole { code, payload }: Whole, permit: OwnedSemaphorePermit) -> Option<Leftover> {
    (code < 300).then(|| Leftover::Unreceived(payload, permit))
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

    /// Nobody waits for the answer any more; true if it is still to come. One to a receive that came just now is given
    /// back, as one that comes later.
    pub(crate) fn give_up(
        &self,
        corr: u64,
        permit: OwnedSemaphorePermit,
        is_receive: bool,
        answer: &mut oneshot::Receiver<Answered>,
    ) -> bool {
        if let Some(Route::Request(request)) = self.lock().get_mut(&corr) {
            let is_to_come = matches!(request.receiver, Receiver::Caller(_));
            if is_to_come {
                request.receiver = Receiver::Nobody(permit);
            }
            return is_to_come;
        }
        if let Ok(Ok(whole)) = answer.try_recv()
            && is_receive
            && let Some(leftover) = unreceived(whole, permit)
        {
            self.leftovers.push(leftover);
        }
        false
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
        let mut leftover = None;
        match by_corr.get_mut(&frame.corr) {
            Some(Route::Request(request)) => leftover = request.take(&frame, is_last),
            Some(Route::Publisher(outcomes)) => outcomes.answer(frame.code, &frame.payload, is_last),
            Some(Route::Subscription(inbox)) if is_last => inbox.end(Error::of_answer(frame.code, &frame.payload)),
            Some(Route::Subscription(_)) => {}
            None => return,
        }
        if is_last {
            by_corr.remove(&frame.corr);
        }
        drop(by_corr);
        leftover.into_iter().for_each(|leftover| self.leftovers.push(leftover));
    }

    /// The session is over: everybody who waits learns how.
    pub(crate) fn end(&self, closed: &Closed) {
        self.ended.send_replace(Some(closed.clone()));
        let routes = std::mem::take(&mut *self.lock());
        for route in routes.into_values() {
            match route {
                Route::Request(Request { receiver: Receiver::Caller(sender), .. }) => {
                    let _ = sender.send(Err(Error::Closed(closed.clone())));
                }
                Route::Request(_) => {}
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
