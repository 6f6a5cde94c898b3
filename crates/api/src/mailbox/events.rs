//! What happens to messages, as a stream of server-sent events that goes on where its reader stopped.

mod filter;
mod frames;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ron_kernel::clock;
use ron_kernel::shutdown::Stopping;
use ron_types::Error;
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::ADMIN;
use svc_mailbox::{Event, EventItem, EventReader, EventsFrom, NumberedEvent};
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::{App, Routes, dto};
use crate::admission::Waiting;
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::Query;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use filter::Filter;

/// Maximum life of a stream; its reader opens the next one and misses nothing.
const STREAM_TIME_MAX: Duration = Duration::from_secs(3600);
/// Pause after which a comment is sent, so that both sides notice a connection that is gone.
const BEAT_EVERY: Duration = Duration::from_secs(15);
/// Pause between two checks of the token, which may expire or be revoked while the stream is open.
const RECHECK_EVERY: Duration = Duration::from_secs(5);
/// Maximum events in one write.
const EVENTS_AT_ONCE: usize = 64;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells proxies of the nginx family to pass events on as they come.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

static EVENTS: Operation =
    Operation::get("/v1/events", "operations", "tells what happens to messages and topics, as server-sent events")
        .allows(ADMIN)
        .query::<EventsQuery>()
        .event_stream::<EventData<'static>>();

/// Which events, and where to begin. A reader that comes back sends the id of the last event it has seen in the header
/// `Last-Event-ID`: it gets what followed, or an event `missed` with the number of events it cannot have any more (null
/// if the node was started anew since).
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "the description; a parameter that may be repeated is read from the pairs")]
pub(super) struct EventsQuery {
    /// Only events of this topic, or with `orders.*` of every topic whose name begins with `orders.`; may be repeated.
    /// The token must allow `admin` on each of them, and without one on everything.
    topic: Option<String>,
    /// Begin with the oldest event the node remembers; otherwise with what happens from now on.
    replay: Option<bool>,
    /// Go on with what happens; if false, end once everything remembered was told.
    follow: Option<bool>,
}

/// The data of one event: `event` is `died`, `lost`, `moved`, `breaker_opened`, `breaker_closed`, `topic_made`,
/// `topic_gone`, `rebalanced`, `clock_held`, `clock_confirmed`, `log_damaged` or `log_failed`, `at_ms` its time, and
/// the rest is what it tells: topic, message, reason, counts. The stream itself speaks as `opened`, `missed` (with
/// `count`) and, at its end, `end` (with `reason`).
#[derive(Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub(super) struct EventData<'a>(&'a NumberedEvent);

/// Reason that the last frame of a stream gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum EventsEnd {
    /// The node is draining.
    Draining,
    /// The stream reached its maximum life.
    Deadline,
    /// The token expired or was revoked.
    Revoked,
    /// Everything that was remembered has been told, and no more was asked for.
    Complete,
}

/// State of one open stream between two frames.
struct EventFeed {
    app: Arc<App>,
    bearer: Bearer,
    filter: Filter,
    reader: EventReader,
    follow: bool,
    stopping: watch::Receiver<Stopping>,
    stage: EventsStage,
    ends: Instant,
    beat: Instant,
    recheck: Instant,
    /// Bounds the streams open at once, and those of each caller.
    _waiting: Waiting,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EventsStage {
    Opening,
    Running,
    Ended,
}

/// Event or timer that woke a waiting stream.
enum Woken {
    Item(Option<EventItem>),
    Time,
}

pub(super) const OPERATIONS: &[&Operation] = &[&EVENTS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&EVENTS, with!(app, open(call, bearer, headers, query)))
}

/// The query string, read and checked.
struct Asked {
    filter: Filter,
    replay: bool,
    follow: bool,
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn open(
    app: Arc<App>,
    call: Call,
    bearer: Bearer,
    headers: HeaderMap,
    query: Query<Vec<(String, String)>>,
) -> HandlerResult {
    let Asked { filter, replay, follow } = Asked::read(query.0)?;
    filter.allow(&app, &bearer)?;
    let from = match headers.get(LAST_EVENT_ID) {
        Some(id) => EventsFrom::After(dto::parse("Last-Event-ID", id.to_str().unwrap_or_default())?),
        None if replay => EventsFrom::Oldest,
        None => EventsFrom::Now,
    };
    let now = clock::now();
    let feed = EventFeed {
        _waiting: call.wait()?,
        reader: app.mailbox.watch_events(from)?,
        stopping: app.kernel.watch_stopping(),
        app,
        bearer,
        filter,
        follow,
        stage: EventsStage::Opening,
        ends: now + STREAM_TIME_MAX,
        beat: now + BEAT_EVERY,
        recheck: now + RECHECK_EVERY,
    };
    Ok(feed.response())
}

impl Asked {
    fn read(pairs: Vec<(String, String)>) -> Result<Asked, Error> {
        let mut asked = Asked { filter: Filter::default(), replay: false, follow: true };
        for (name, value) in pairs {
            let flag = || match value.as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(Error::schema(format!("{name}: true or false is expected"))),
            };
            match name.as_str() {
                "topic" => asked.filter.add(&value)?,
                "replay" => asked.replay = flag()?,
                "follow" => asked.follow = flag()?,
                _ => return Err(Error::schema("the query may have topic, replay and follow")),
            }
        }
        Ok(asked)
    }
}

impl EventFeed {
    fn response(self) -> Response {
        let frames = stream::unfold(self, |mut feed| async {
            let text = Box::pin(feed.next()).await?;
            Some((Ok::<_, Infallible>(text), feed))
        });
        let mut response = Response::new(Body::from_stream(frames));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(BUFFERING, HeaderValue::from_static("no"));
        response
    }

    /// The next frames; none once the last was given.
    async fn next(&mut self) -> Option<Bytes> {
        match self.stage {
            EventsStage::Ended => return None,
            EventsStage::Opening => {
                self.stage = EventsStage::Running;
                return Some(frames::opened(self.reader.position()));
            }
            EventsStage::Running => {}
        }
        loop {
            if let Some(end) = self.reason_to_end() {
                return Some(self.end(end));
            }
            let now = clock::now();
            if now >= self.beat {
                self.beat = now + BEAT_EVERY;
                return Some(frames::beat(self.reader.position()));
            }
            let first = match self.wait().await {
                Woken::Item(first) => first,
                Woken::Time => continue,
            };
            // All senders of events are gone with the node, and a reader of the past has seen it all.
            let Some(first) = first else {
                let end = if self.follow { EventsEnd::Draining } else { EventsEnd::Complete };
                return Some(self.end(end));
            };
            if let Some(frames) = self.frames_from(first) {
                self.beat = clock::now() + BEAT_EVERY;
                return Some(frames);
            }
        }
    }

    fn reason_to_end(&mut self) -> Option<EventsEnd> {
        let now = clock::now();
        if self.stopping.borrow().draining {
            return Some(EventsEnd::Draining);
        }
        if now >= self.ends {
            return Some(EventsEnd::Deadline);
        }
        if now >= self.recheck {
            self.recheck = now + RECHECK_EVERY;
            if self.filter.allow(&self.app, &self.bearer).is_err() {
                return Some(EventsEnd::Revoked);
            }
        }
        None
    }

    async fn wait(&mut self) -> Woken {
        if !self.follow {
            return Woken::Item(self.reader.next_remembered());
        }
        let wake = self.ends.min(self.beat).min(self.recheck);
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| stopping.draining) => Woken::Time,
            item = self.reader.next() => Woken::Item(item),
            () = tokio::time::sleep_until(wake) => Woken::Time,
        }
    }

    /// The frames of this item and of those that have come already; none if the reader wants none of them.
    fn frames_from(&mut self, first: EventItem) -> Option<Bytes> {
        let mut text = String::new();
        let (mut item, mut taken) = (first, 1);
        loop {
            match item {
                EventItem::Missed(missed) => frames::missed(&mut text, self.reader.position(), missed),
                EventItem::Event(event) => {
                    if let Some(event) = self.shown(event) {
                        frames::event(&mut text, self.reader.position(), &event);
                    }
                }
            }
            if taken == EVENTS_AT_ONCE {
                break;
            }
            let Some(next) = self.reader.next().now_or_never().flatten() else { break };
            (item, taken) = (next, taken + 1);
        }
        (!text.is_empty()).then(|| Bytes::from(text))
    }

    /// The event as the reader may see it, if it asked for it. A move between two topics shows the name of the other
    /// one only to those who may look after it, too.
    fn shown(&self, event: Arc<NumberedEvent>) -> Option<Arc<NumberedEvent>> {
        if !self.filter.matches(&event.event) {
            return None;
        }
        let Event::Moved { from, to, count } = &event.event else { return Some(event) };
        let may_see = |topic: &svc_mailbox::types::TopicName| {
            self.filter.covers(topic) || self.app.allow_admin(&self.bearer, topic.as_str()).is_ok()
        };
        if event.event.topics().all(may_see) {
            return Some(event);
        }
        let (from, to) = (from.clone().filter(may_see), to.clone().filter(may_see));
        let event_shown = Event::Moved { from, to, count: *count };
        Some(Arc::new(NumberedEvent { number: event.number, at_ms: event.at_ms, event: event_shown }))
    }

    fn end(&mut self, end: EventsEnd) -> Bytes {
        self.stage = EventsStage::Ended;
        frames::end(self.reader.position(), end)
    }
}

#[cfg(test)]
mod tests;
