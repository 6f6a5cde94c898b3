//! Lanes over frames: publishing streams, subscriptions, and single messages.
//!
//! A stream opens with JSON that says what it is: `{"publish":LANE}` or `{"subscribe":LANE,"from":[...],"own":bool}`.

mod publishing;
mod stream_writer;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use oap::{AppId, Flags, Frame};
use ron_auth::{Authority, Identified};
use ron_transport::{NodeId, Outbox};
use ron_types::limits::overlay::STARTING_POINTS_MAX;
use ron_types::{Error, Kind};
use serde::Deserialize;
use svc_overlay::capabilities::{PUBLISH, SUBSCRIBE};
use svc_overlay::words::{Item, Message, Published};
use svc_overlay::{LaneName, Made, Overlay, SHARED_BYTES_MIN, Subscriber, check_lane};
use tokio::sync::oneshot;

use self::publishing::{Publishing, accepted};
use self::stream_writer::{OpenGuard, StreamWriter};
use super::{Answer, Caller, FrameStream, FrameSurface, Reply, Stream};
use crate::admission::Waiting;

/// Kinds of events of a subscription, the first byte of their payload.
mod kind {
    pub(super) const READY: u8 = 0;
    pub(super) const MESSAGE: u8 = 1;
    pub(super) const GAP: u8 = 2;
    pub(super) const LAGGED: u8 = 3;
    pub(super) const EPOCH: u8 = 4;
}

/// Bytes of an event of a message before its payload: kind, origin, epoch, number, hops.
const MESSAGE_HEAD_BYTES: usize = 1 + 32 + 8 + 8 + 1;
/// Largest opening payload.
const OPENING_BYTES_MAX: usize = 64 * 1024;

/// The lanes' surface.
struct Lanes {
    overlay: Overlay,
    authority: Authority,
}

/// The surface of the overlay for clients.
pub fn overlay_frames(overlay: Overlay, authority: Authority) -> Arc<dyn FrameSurface> {
    Arc::new(Lanes { overlay, authority })
}

/// What a stream is for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    publish: Option<String>,
    subscribe: Option<String>,
    /// `ORIGIN:SEQ`, for each origin to begin from.
    #[serde(default)]
    from: Vec<String>,
    #[serde(default = "yes")]
    own: bool,
}

fn yes() -> bool {
    true
}

enum Purpose {
    Publish(LaneName),
    Subscribe { lane: LaneName, from: Vec<(NodeId, u64)>, own: bool },
}

impl FrameSurface for Lanes {
    fn app(&self) -> AppId {
        AppId::LANES
    }

    /// One message for one lane: a JSON head of one line, then the payload.
    fn answer(&self, caller: &Caller, request: Frame) -> Answer {
        let bearer = match caller.identify(&self.authority, &request) {
            Ok(bearer) => bearer,
            Err(error) => return Answer::Now(Reply::from(error)),
        };
        let admission = match caller.admit(&bearer, &request) {
            Ok(admission) => admission,
            Err(problem) => return Answer::Now(Reply::from(problem)),
        };
        let (overlay, authority) = (self.overlay.clone(), self.authority.clone());
        Answer::begin(async move {
            let published = publish_one(&overlay, &authority, &bearer, request.payload).await;
            published.map_or_else(Reply::from, |published| accepted(&published, usize::MAX))
        })
        .holding(admission)
    }

    fn open(&self, caller: &Caller, first: Frame, outbox: Outbox) -> BoxFuture<'static, Result<Stream, Reply>> {
        let admitted = caller.identify(&self.authority, &first).map_err(Reply::from).and_then(|bearer| {
            let waiting = caller.admit(&bearer, &first)?.wait()?;
            Ok((bearer, waiting))
        });
        let (overlay, authority) = (self.overlay.clone(), self.authority.clone());
        Box::pin(async move {
            let (bearer, waiting) = admitted?;
            let stream = open(overlay, authority, bearer, first, outbox).await?;
            Ok(Box::new(SharedStream { stream, _waiting: waiting }) as Stream)
        })
    }
}

/// A stream and its caller's share of those that are open.
struct SharedStream {
    stream: Stream,
    _waiting: Waiting,
}

impl FrameStream for SharedStream {
    fn take(&mut self, frame: Frame) -> Result<(), Reply> {
        self.stream.take(frame)
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        self.stream.flush()
    }

    fn finish(&mut self) -> BoxFuture<'_, Result<(), Reply>> {
        self.stream.finish()
    }

    fn ended(&mut self) -> Option<BoxFuture<'static, Option<Reply>>> {
        self.stream.ended()
    }
}

async fn publish_one(
    overlay: &Overlay,
    authority: &Authority,
    bearer: &Identified,
    payload: Bytes,
) -> Result<Published, Error> {
    let end = payload.iter().take(OPENING_BYTES_MAX).position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| schema("a request begins with a line of JSON"))?;
    let Purpose::Publish(lane) = purpose_of(&payload[..end])? else {
        return Err(schema("a whole request publishes; a subscription is a stream"));
    };
    let subject = authority.allows(bearer, PUBLISH, lane.as_str(), None)?;
    overlay.publish(&subject.name, lane, payload.slice(end + 1..)).await
}

async fn open(
    overlay: Overlay,
    authority: Authority,
    bearer: Identified,
    first: Frame,
    outbox: Outbox,
) -> Result<Stream, Error> {
    match purpose_of(&first.payload)? {
        Purpose::Publish(lane) => {
            let subject = authority.allows(&bearer, PUBLISH, lane.as_str(), None)?;
            check_lane(&lane)?;
            Ok(Box::new(Publishing::new(overlay, authority, (bearer, subject), lane, (first.corr, outbox))))
        }
        Purpose::Subscribe { lane, from, own } => {
            let subject = authority.allows(&bearer, SUBSCRIBE, lane.as_str(), None)?;
            let ((writer, open), (over, ended)) = (StreamWriter::new(first.corr, outbox), oneshot::channel());
            let right = Right { authority, bearer, lane };
            let mut subscriber = FrameSubscriber::new(writer, right, over);
            subscriber.push(ready(&overlay), Bytes::new());
            overlay.subscribe_with(&subject, lane, from, own, Box::new(subscriber)).await?;
            Ok(Box::new(Hearing { _open: open, ended: Some(ended) }))
        }
    }
}

fn purpose_of(json: &[u8]) -> Result<Purpose, Error> {
    if json.len() > OPENING_BYTES_MAX {
        return Err(schema("the opening is too long"));
    }
    let opening: Opening = serde_json::from_slice(json).map_err(|error| schema(&error.to_string()))?;
    let lane_of = |name: &str| name.parse::<LaneName>().map_err(|error| schema(&error.to_string()));
    match (opening.publish, opening.subscribe) {
        (Some(lane), None) => Ok(Purpose::Publish(lane_of(&lane)?)),
        (None, Some(lane)) if opening.from.len() <= STARTING_POINTS_MAX => {
            let from = opening.from.iter().map(|text| starting_point(text)).collect::<Result<Vec<_>, _>>()?;
            let origins: HashSet<NodeId> = from.iter().map(|(origin, _)| *origin).collect();
            if origins.len() < from.len() {
                return Err(schema("from: each origin may be named once"));
            }
            Ok(Purpose::Subscribe { lane: lane_of(&lane)?, from, own: opening.own })
        }
        (None, Some(_)) => Err(schema("too many origins to begin from")),
        _ => Err(schema("either publish or subscribe names a lane")),
    }
}

/// `ORIGIN:SEQ`.
fn starting_point(text: &str) -> Result<(NodeId, u64), Error> {
    let parts = text.split_once(':').and_then(|(origin, seq)| Some((origin.parse().ok()?, seq.parse().ok()?)));
    parts.ok_or_else(|| schema("a starting point is ORIGIN:SEQ, an id of 64 digits and a number"))
}

fn schema(detail: &str) -> Error {
    Error::new(Kind::Schema, detail.to_owned())
}

/// A subscription's own stream: nothing is sent on it after its opening, and its end is the subscription's.
struct Hearing {
    /// Held for its drop.
    _open: OpenGuard,
    /// Resolves when the node ends the subscription.
    ended: Option<oneshot::Receiver<Reply>>,
}

impl FrameStream for Hearing {
    fn take(&mut self, _frame: Frame) -> Result<(), Reply> {
        Err(Reply::from(schema("nothing is sent on a subscription")))
    }

    fn ended(&mut self) -> Option<BoxFuture<'static, Option<Reply>>> {
        let ended = self.ended.take()?;
        Some(Box::pin(async move { ended.await.ok() }))
    }
}

/// The right to hear a lane.
struct Right {
    authority: Authority,
    bearer: Identified,
    lane: LaneName,
}

impl Right {
    fn check(&self) -> Result<(), Error> {
        self.authority.allows(&self.bearer, SUBSCRIBE, self.lane.as_str(), None).map(drop)
    }
}

/// A client that hears a lane: events go straight into the outbox of its session.
struct FrameSubscriber {
    writer: Arc<StreamWriter>,
    right: Right,
    /// Told why nothing more is heard, where the node ends it.
    over: Option<oneshot::Sender<Reply>>,
    /// Frames of the events since the last flush.
    waiting: VecDeque<Frame>,
    /// Number of those events.
    waiting_events: u64,
    /// Events that found no room, since the client was last told.
    dropped: u64,
}

impl FrameSubscriber {
    fn new(writer: Arc<StreamWriter>, right: Right, over: oneshot::Sender<Reply>) -> Self {
        FrameSubscriber { writer, right, over: Some(over), waiting: VecDeque::new(), waiting_events: 0, dropped: 0 }
    }

    fn part_bytes_max(&self) -> usize {
        self.writer.outbox().frame_bytes_max() - oap::HEADER_BYTES
    }

    /// An event that is larger than a frame goes out in parts: the first has START, the last END.
    fn push(&mut self, mut head: Bytes, mut body: Bytes) {
        let part_bytes_max = self.part_bytes_max();
        self.waiting_events += 1;
        if head.len() + body.len() <= part_bytes_max {
            return self.waiting.push_back(event(self.writer.corr(), head, body));
        }
        let mut flags = Flags::EVENT | Flags::START;
        while !(head.is_empty() && body.is_empty()) {
            let first = head.split_to(head.len().min(part_bytes_max));
            let second = body.split_to(body.len().min(part_bytes_max - first.len()));
            if head.is_empty() && body.is_empty() {
                flags = flags | Flags::END;
            }
            self.waiting.push_back(event(self.writer.corr(), first, second).with_flags(flags));
            flags = Flags::EVENT;
        }
    }
}

/// Loss is told where it happened: before what comes next. True if nothing is left to be told.
fn told_of_loss(outbox: &Outbox, corr: u64, dropped: u64) -> bool {
    if dropped == 0 {
        return true;
    }
    let mut payload = BytesMut::with_capacity(9);
    payload.put_u8(kind::LAGGED);
    payload.put_u64(dropped);
    outbox.push(corr, Frame::event(AppId::LANES, corr, payload.freeze())).is_ok()
}

impl Subscriber for FrameSubscriber {
    fn give(&mut self, _lane: &LaneName, item: &Item, made: &mut Made) {
        match item {
            Item::Lagged { dropped } => self.dropped += dropped,
            // Sent from where the ring holds it, behind a head of its own.
            Item::Message(message) if message.payload.len() >= SHARED_BYTES_MIN => {
                let head = made.get(|| head_of(message, MESSAGE_HEAD_BYTES).freeze());
                self.push(head, message.payload.clone());
            }
            item => self.push(made.get(|| event_of(item)), Bytes::new()),
        }
    }

    fn poll_room(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<()> {
        // What waits goes first, so that the outbox alone says how much room there is.
        self.flush();
        let bytes = MESSAGE_HEAD_BYTES + bytes;
        let frames = bytes.div_ceil(self.part_bytes_max());
        self.writer.outbox().poll_half_free(context, frames, bytes + frames * oap::HEADER_BYTES)
    }

    fn is_gone(&self) -> bool {
        // Asked about once a second: a token that ran out or was revoked ends what it opened.
        !self.writer.is_open() || self.writer.outbox().is_closed() || self.right.check().is_err()
    }

    fn flush(&mut self) {
        if self.waiting.is_empty() && self.dropped == 0 {
            return;
        }
        let frames = std::mem::take(&mut self.waiting);
        let events = std::mem::take(&mut self.waiting_events);
        let (corr, dropped) = (self.writer.corr(), self.dropped);
        let taken = self.writer.while_open(|outbox| match told_of_loss(outbox, corr, dropped) {
            true => Some(outbox.push_all(corr, frames).0 as u64),
            false => None,
        });
        self.dropped = match taken {
            Some(Some(taken)) => events - taken,
            Some(None) => dropped + events,
            // Nobody is left to be told.
            None => 0,
        };
    }
}

impl Drop for FrameSubscriber {
    /// A client that still listens is told why it hears nothing more, by the port that keeps its stream.
    fn drop(&mut self) {
        if self.writer.is_open()
            && let Some(over) = self.over.take()
        {
            let restarted = || Error::new(Kind::Degraded, "the lane's engine was restarted; subscribe again");
            let _ = over.send(Reply::from(self.right.check().err().unwrap_or_else(restarted)));
        }
    }
}

fn ready(overlay: &Overlay) -> Bytes {
    let mut payload = BytesMut::with_capacity(33);
    payload.put_u8(kind::READY);
    payload.put_slice(overlay.node_id().as_bytes());
    payload.freeze()
}

/// An event of two pieces, of which either may be empty.
fn event(corr: u64, first: Bytes, second: Bytes) -> Frame {
    match (first.is_empty(), second.is_empty()) {
        (_, true) => Frame::event(AppId::LANES, corr, first),
        (true, false) => Frame::event(AppId::LANES, corr, second),
        (false, false) => Frame::event(AppId::LANES, corr, first).followed_by(second),
    }
}

/// The event of a message up to its payload, in a buffer of so many bytes.
fn head_of(message: &Message, capacity: usize) -> BytesMut {
    let mut head = BytesMut::with_capacity(capacity);
    head.put_u8(kind::MESSAGE);
    head.put_slice(message.origin.as_bytes());
    head.put_u64(message.epoch);
    head.put_u64(message.seq);
    head.put_u8(message.hops);
    head
}

fn event_of(item: &Item) -> Bytes {
    let mut payload = BytesMut::new();
    match item {
        Item::Message(message) => {
            payload = head_of(message, MESSAGE_HEAD_BYTES + message.payload.len());
            payload.put_slice(&message.payload);
        }
        Item::Gap { origin, epoch, from, to } => {
            payload.put_u8(kind::GAP);
            payload.put_slice(origin.as_bytes());
            payload.put_u64(*epoch);
            payload.put_u64(*from);
            payload.put_u64(*to);
        }
        Item::Epoch { origin, epoch } => {
            payload.put_u8(kind::EPOCH);
            payload.put_slice(origin.as_bytes());
            payload.put_u64(*epoch);
        }
        Item::Lagged { dropped } => {
            payload.put_u8(kind::LAGGED);
            payload.put_u64(*dropped);
        }
    }
    payload.freeze()
}
