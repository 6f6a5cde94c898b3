//! Lanes: streams of messages to a node, and events from it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes, BytesMut};
use oap::status::Status;
use oap::{AppId, Flags, Frame};
use ron_gossip::{LaneName, MsgId, Origin};
use ron_transport::NodeId;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::client::Connection;
use crate::error::{Error, Refusal};
use crate::inbox::Inbox;
use crate::routes::Route;

/// Bytes of one message with its head at most; an event in parts that grows beyond is not believed.
const EVENT_BYTES_MAX: usize = (4 << 20) + 1024;

/// Where a subscription begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    /// For each origin the number to begin with, as far as the node still has it.
    pub from: Vec<(NodeId, u64)>,
    /// Whether messages that were published at this node come too.
    pub own: bool,
}

/// Something that happened on a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Message(Message),
    /// Messages of an origin are lost to this node.
    Gap {
        /// Node they were published at.
        origin: NodeId,
        /// Its epoch.
        epoch: u64,
        /// Number of the first one.
        from: u64,
        /// Number of the last one.
        to: u64,
    },
    /// This client was too slow for so many events.
    Lagged {
        /// Number of events.
        dropped: u64,
    },
    /// An origin began anew: its numbers start over.
    Epoch {
        /// The origin.
        origin: NodeId,
        /// Its new epoch.
        epoch: u64,
    },
}

/// A message of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Node it was published at.
    pub origin: NodeId,
    /// Epoch of that node.
    pub epoch: u64,
    /// Its number there, from 1 in each epoch and lane.
    pub seq: u64,
    /// Nodes it passed on the way.
    pub hops: u8,
    /// What was published.
    pub payload: Bytes,
}

impl Message {
    /// Id of the message, as the node shows it elsewhere: a hash over origin, epoch, lane, number and payload. It is
    /// computed by each call; nobody who does not want it pays for it.
    pub fn msg_id(&self, lane: &LaneName) -> MsgId {
        ron_gossip::msg_id(&Origin(*self.origin.as_bytes()), self.epoch, lane, self.seq, &self.payload)
    }
}

/// What became of a publication.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Published {
    /// Id of the message, in hex.
    pub msg_id: String,
    /// Node it was published at.
    pub origin: NodeId,
    /// Epoch of that node.
    #[serde(default)]
    pub epoch: u64,
    /// Its number there.
    pub seq: u64,
    /// Outcome for each peer of the node.
    #[serde(default)]
    pub peers: Vec<PeerOutcome>,
}

/// What became of a publication at one peer of the node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PeerOutcome {
    /// The peer.
    pub node_id: NodeId,
    /// `sent`, `busy`, `too_large`, `no_peers` or `not_ready`.
    pub outcome: String,
    /// Milliseconds after which a busy peer may have room.
    pub retry_after_ms: Option<u64>,
}

/// A stream of messages to one lane. Dropping it ends the stream after what was published; [`Publisher::finish`] waits
/// for that.
pub struct Publisher {
    connection: Arc<Connection>,
    corr: u64,
    outcomes: Arc<Outcomes>,
    permit: Option<OwnedSemaphorePermit>,
    /// The node will hear of the stream: an END of one that never began would cost the session.
    is_open: bool,
}

/// Those who wait for the outcome of a publication, in the order of their publications.
#[derive(Default)]
pub(crate) struct Outcomes(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    queue: VecDeque<oneshot::Sender<Result<Published, Error>>>,
    ended: Option<Result<(), Error>>,
    finisher: Option<oneshot::Sender<Result<(), Error>>>,
}

/// Events of one lane. Dropping it ends the subscription.
pub struct Subscription {
    connection: Arc<Connection>,
    corr: u64,
    inbox: Arc<Inbox>,
    /// Frames taken from the inbox and not yet handed out; empty between calls.
    taken: VecDeque<Frame>,
    /// The parts so far of an event that is larger than a frame.
    parts: Option<BytesMut>,
    node_id: NodeId,
    permit: Option<OwnedSemaphorePermit>,
    /// As for a publisher.
    is_open: bool,
}

#[derive(Serialize)]
struct Opening<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    publish: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribe: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    from: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<bool>,
}

impl Opening<'_> {
    fn to_json(&self) -> Bytes {
        serde_json::to_vec(self).expect("texts can be written").into()
    }
}

impl Since {
    /// From now on, everything.
    pub fn now() -> Self {
        Since { from: Vec::new(), own: true }
    }

    /// The same, beginning with a number of an origin where the node still has it.
    #[must_use]
    pub fn and_from(mut self, origin: NodeId, seq: u64) -> Self {
        self.from.push((origin, seq));
        self
    }

    /// The same without what is published at the node itself.
    #[must_use]
    pub fn without_own(self) -> Self {
        Since { own: false, ..self }
    }
}

impl Publisher {
    pub(crate) async fn open(connection: Arc<Connection>, lane: &str) -> Result<Self, Error> {
        let permit = connection.turn().await;
        let (corr, outcomes) = (connection.corr(), Arc::new(Outcomes::default()));
        connection.routes.add(corr, Route::Publisher(Arc::clone(&outcomes)))?;
        let opening = Opening { publish: Some(lane), subscribe: None, from: Vec::new(), own: None }.to_json();
        let mut publisher = Publisher { connection, corr, outcomes, permit: Some(permit), is_open: false };
        publisher.send(Frame::open(AppId::LANES, corr, opening)).await?;
        publisher.is_open = true;
        Ok(publisher)
    }

    /// Publishes a message, and waits only for room in the session's queue. What becomes of it is not told.
    pub async fn publish(&self, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.outcomes.check()?;
        let payload = payload.into();
        let len = payload.len();
        self.connection.send(self.corr, Frame::part(AppId::LANES, self.corr, payload), len).await
    }

    /// Publishes messages in their order, as room comes up, with few locks and wake-ups: the fast way for many.
    pub async fn publish_all(&self, payloads: impl IntoIterator<Item = Bytes>) -> Result<(), Error> {
        self.outcomes.check()?;
        let part = |payload| Frame::part(AppId::LANES, self.corr, payload);
        let mut frames: VecDeque<Frame> = payloads.into_iter().map(part).collect();
        let longest = frames.iter().map(|frame| frame.payload.len()).max().unwrap_or(0);
        let sent = self.connection.outbox.send_all(self.corr, &mut frames).await;
        sent.map_err(|error| self.connection.push_error(error, longest))
    }

    /// Publishes a message and waits for what the node says of it.
    pub async fn publish_acked(&self, payload: impl Into<Bytes>) -> Result<Published, Error> {
        let payload = payload.into();
        let frame = Frame::part(AppId::LANES, self.corr, payload).with_flags(Flags::ACK_REQ);
        let outcome = self.push_acked(frame).await?;
        outcome.await.unwrap_or_else(|_| Err(Error::Protocol("the stream ended without an outcome")))
    }

    /// Queues the frame and the one who waits for its outcome under one lock: outcomes come in the order of the frames.
    async fn push_acked(&self, frame: Frame) -> Result<oneshot::Receiver<Result<Published, Error>>, Error> {
        let len = frame.payload.len();
        loop {
            {
                let mut waiting = self.outcomes.lock();
                waiting.check()?;
                match self.connection.outbox.push(self.corr, frame.clone()) {
                    Ok(()) => {
                        let (sender, receiver) = oneshot::channel();
                        waiting.queue.push_back(sender);
                        return Ok(receiver);
                    }
                    Err(ron_transport::PushError::Full { .. }) => {}
                    Err(error) => return Err(self.connection.push_error(error, len)),
                }
            }
            self.connection.outbox.room_for(frame.encoded_len()).await;
        }
    }

    /// Ends the stream and waits until the node has taken everything before it. Dropped, it ends the stream as well.
    pub async fn finish(mut self) -> Result<(), Error> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.outcomes.lock();
            if let Some(ended) = &waiting.ended {
                return ended.clone();
            }
            waiting.finisher = Some(sender);
        }
        self.send(Frame::close(AppId::LANES, self.corr, Bytes::new())).await?;
        // Until it is queued, dropping the publisher says it.
        self.is_open = false;
        receiver.await.unwrap_or_else(|_| Err(Error::Protocol("the stream ended without an answer")))
    }

    async fn send(&self, frame: Frame) -> Result<(), Error> {
        let len = frame.payload.len();
        self.connection.send(self.corr, frame, len).await
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // A stream that the node ended is ended here too, or the node would keep its number.
        match self.is_open {
            true => self.connection.leave(Frame::close(AppId::LANES, self.corr, Bytes::new()), self.permit.take()),
            false => self.connection.routes.remove(self.corr),
        }
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher(#{})", self.corr)
    }
}

impl Outcomes {
    /// A response on the stream: an outcome, or with the last one the end.
    pub(crate) fn answer(&self, code: Status, payload: &Bytes, is_last: bool) {
        let outcome = match code {
            ..300 => Ok(payload),
            _ => Err(Error::Refused(Refusal::new(code, payload))),
        };
        if is_last {
            return self.finish(outcome.map(drop));
        }
        let unread = |_| Error::Protocol("an outcome of a publication");
        let outcome = outcome.and_then(|json| serde_json::from_slice(json).map_err(unread));
        if let Some(first) = self.lock().queue.pop_front() {
            let _ = first.send(outcome);
        }
    }

    pub(crate) fn end(&self, error: &Error) {
        self.finish(Err(error.clone()));
    }

    fn finish(&self, outcome: Result<(), Error>) {
        let mut waiting = self.lock();
        let waiting = &mut *waiting;
        let ended = waiting.ended.get_or_insert(outcome);
        if let Some(finisher) = waiting.finisher.take() {
            let _ = finisher.send(ended.clone());
        }
        for waiter in waiting.queue.drain(..) {
            let without = Err(Error::Protocol("the stream ended without an outcome"));
            let _ = waiter.send(ended.clone().err().map_or(without, Err));
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.lock().check()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn check(&self) -> Result<(), Error> {
        match &self.ended {
            None => Ok(()),
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(())) => Err(Error::Protocol("the node ended the stream")),
        }
    }
}

impl Subscription {
    pub(crate) async fn open(connection: Arc<Connection>, lane: &str, since: Since) -> Result<Self, Error> {
        let permit = connection.turn().await;
        let (corr, inbox) = (connection.corr(), Arc::new(Inbox::default()));
        connection.routes.add(corr, Route::Subscription(Arc::clone(&inbox)))?;
        let from = since.from.iter().map(|(origin, seq)| format!("{origin}:{seq}")).collect();
        let opening = Opening { publish: None, subscribe: Some(lane), from, own: Some(since.own) }.to_json();
        let len = opening.len();
        let mut subscription = Subscription {
            connection,
            corr,
            inbox,
            taken: VecDeque::new(),
            parts: None,
            node_id: NodeId::from_bytes([0; 32]),
            permit: Some(permit),
            is_open: false,
        };
        let frame = Frame::open(AppId::LANES, corr, opening);
        subscription.connection.send(corr, frame, len).await?;
        subscription.is_open = true;
        subscription.node_id = subscription.ready().await?;
        Ok(subscription)
    }

    /// The node that serves the subscription.
    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// Waits for events and appends all that are there, at least one. Cancel safe.
    pub async fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        let had = events.len();
        while events.len() == had {
            self.fill().await?;
            while let Some(frame) = self.taken.pop_front() {
                if let Some(payload) = self.whole(&frame)? {
                    events.extend(event_of(payload)?);
                }
            }
        }
        Ok(())
    }

    /// The first event says that the subscription is in force. What follows it stays.
    async fn ready(&mut self) -> Result<NodeId, Error> {
        self.fill().await?;
        let first = self.taken.pop_front().map(|frame| frame.payload).unwrap_or_default();
        match first.split_first() {
            Some((&kind::READY, id)) if id.len() == 32 => {
                Ok(NodeId::from_bytes(id.try_into().expect("it is as long as that")))
            }
            _ => Err(Error::Protocol("a subscription that does not begin with `ready`")),
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        if self.taken.is_empty() {
            std::future::poll_fn(|context| self.inbox.poll_take(context, &mut self.taken)).await?;
        }
        Ok(())
    }

    /// The payload of an event; nothing while parts of it are missing.
    fn whole(&mut self, frame: &Frame) -> Result<Option<Bytes>, Error> {
        let (starts, ends) = (frame.has(Flags::START), frame.has(Flags::END));
        let parts = match (&mut self.parts, starts) {
            (None, false) => return Ok(Some(frame.payload.clone())),
            (Some(_), true) => return Err(Error::Protocol("an event inside another")),
            (parts, _) => parts.get_or_insert_default(),
        };
        if parts.len() + frame.payload.len() > EVENT_BYTES_MAX {
            return Err(Error::Protocol("an event of more than 4 MiB"));
        }
        parts.extend_from_slice(&frame.payload);
        Ok(if ends { self.parts.take().map(BytesMut::freeze) } else { None })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.inbox.abandon();
        self.connection.routes.remove(self.corr);
        if self.is_open {
            self.connection.leave(Frame::close(AppId::LANES, self.corr, Bytes::new()), self.permit.take());
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription(#{} at {})", self.corr, self.node_id)
    }
}

/// Kinds of events, the first byte of their payload.
mod kind {
    pub(super) const READY: u8 = 0;
    pub(super) const MESSAGE: u8 = 1;
    pub(super) const GAP: u8 = 2;
    pub(super) const LAGGED: u8 = 3;
    pub(super) const EPOCH: u8 = 4;
}

/// Reads an event; one of a kind that is not known yet is passed over.
fn event_of(mut payload: Bytes) -> Result<Option<Event>, Error> {
    const SHORT: Error = Error::Protocol("an event that is shorter than its kind");
    let kind = payload.try_get_u8().map_err(|_| SHORT)?;
    let needed = match kind {
        kind::MESSAGE => 32 + 8 + 8 + 1,
        kind::GAP => 32 + 8 + 8 + 8,
        kind::LAGGED => 8,
        kind::EPOCH => 32 + 8,
        _ => return Ok(None),
    };
    if payload.len() < needed {
        return Err(SHORT);
    }
    Ok(Some(match kind {
        kind::MESSAGE => {
            let (origin, epoch, seq) = (origin_of(&mut payload), payload.get_u64(), payload.get_u64());
            let hops = payload.get_u8();
            Event::Message(Message { origin, epoch, seq, hops, payload })
        }
        kind::GAP => Event::Gap {
            origin: origin_of(&mut payload),
            epoch: payload.get_u64(),
            from: payload.get_u64(),
            to: payload.get_u64(),
        },
        kind::LAGGED => Event::Lagged { dropped: payload.get_u64() },
        _ => Event::Epoch { origin: origin_of(&mut payload), epoch: payload.get_u64() },
    }))
}

fn origin_of(payload: &mut Bytes) -> NodeId {
    let mut id = [0; 32];
    payload.copy_to_slice(&mut id);
    NodeId::from_bytes(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: &str = include_str!("../../oap/vectors/msg-ids.json");

    /// The ids were computed by another implementation, from the rule in docs/oap-1.md.
    #[test]
    fn ids_are_what_the_vectors_say() {
        let rows: Vec<serde_json::Value> = serde_json::from_str(VECTORS).expect("a list");
        for row in &rows {
            let text = |name: &str| row[name].as_str().expect("text");
            let number = |name: &str| row[name].as_u64().expect("a number");
            let payload = Bytes::from(vec![number("payload_byte") as u8; number("payload_bytes") as usize]);
            let origin = text("origin").parse().expect("a node id");
            let message = Message { origin, epoch: number("epoch"), seq: number("seq"), hops: 0, payload };
            let lane = text("lane").parse().expect("a lane");
            assert_eq!(message.msg_id(&lane).to_string(), text("msg_id"), "{row}");
        }
        assert!(rows.iter().any(|row| row["payload_bytes"].as_u64() > Some(65_536)), "one is in chunks");
    }
}
