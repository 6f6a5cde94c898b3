//! Messages as they come: one NDJSON line each, no more of them at once than the reader granted.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, header};
use ron_auth::Subject;
use ron_kernel::shutdown::Stopping;
use ron_kernel::{Deadline, clock};
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::RECV;
use svc_mailbox::types::TopicName;
use svc_mailbox::{Delivery, Receive, bounds};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::dto::{self, ItemError, Message};
use super::fields::Topic;
use super::recv::{bytes_default, consumer};
use super::{App, Routes};
use crate::admission::Waiting;
use crate::auth::Bearer;
use crate::call::Call;
use crate::corr::CorrId;
use crate::extract::{Json, JsonText, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

/// Maximum credit of one stream, in messages.
const CREDIT_MAX: u64 = 10_000;
/// Maximum life of a stream; its reader opens the next.
const STREAM_TIME_MAX: Duration = Duration::from_secs(600);
/// Time after which a stream without credit ends.
const CREDIT_PATIENCE: Duration = Duration::from_secs(30);
/// Pause after which a `beat` line is sent, so that both sides notice a connection that is gone.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// Pause between two checks of the token, which may expire or be revoked while the stream is open.
const RECHECK_EVERY: Duration = Duration::from_secs(5);
/// Time a receive may take beyond its wait, and maximum pause after one that failed.
const RECV_SLACK: Duration = Duration::from_secs(2);

const STREAM_ID_HEADER: HeaderName = HeaderName::from_static("x-stream-id");

static STREAM: Operation =
    Operation::post("/v1/recv/stream", "messages", "takes messages out as they come, one on each line")
        .allows(RECV)
        .body::<StreamRequest>(r#"{"topic":"orders","credit":100,"visibility_ms":30000}"#)
        .streams::<Line<'static>>()
        .errors(&[Kind::NotFound]);

static CREDIT: Operation =
    Operation::post("/v1/recv/stream/{id}/credit", "messages", "lets a stream hand out more messages")
        .allows(RECV)
        .body::<CreditRequest>(r#"{"credit":100}"#)
        .answers::<CreditAnswer>()
        .errors(&[Kind::NotFound]);

/// What to stream.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamRequest {
    /// Where from.
    topic: Topic,
    /// So many messages may be handed out before more are granted.
    #[schema(minimum = 1, maximum = 10_000)]
    credit: u64,
    /// How long each lease lasts; the topic's own time if not given.
    visibility_ms: Option<u64>,
    /// Maximum bytes of messages at once, as the node keeps them: payload, attributes and some 50 bytes more each. One
    /// message is given even if it is larger.
    #[serde(default = "bytes_default")]
    #[schema(minimum = 1, maximum = 4_194_304, default = 524_288)]
    max_bytes: u64,
}

/// How many more messages may come.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreditRequest {
    /// Added to what is left.
    #[schema(minimum = 1, maximum = 10_000)]
    credit: u64,
}

/// How many messages the stream may hand out now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CreditAnswer {
    credit: u64,
}

/// One line of a stream: the stream's id first, then messages and beats, the end last.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Line<'a> {
    /// The first line: the id under which more credit is granted.
    Opened {
        stream: &'a str,
    },
    Message(Box<Message<'a>>),
    /// Nothing came for a while; the time in milliseconds since 1970.
    Beat {
        beat: u64,
    },
    /// The last line: why the stream ends.
    End {
        end: End,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<ItemError>,
    },
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// The node is leaving.
    Draining,
    /// It lasted as long as a stream may.
    Deadline,
    /// The token ran out or was revoked.
    Revoked,
    /// No more credit was granted in time.
    Credit,
    /// The mailbox refused; `error` says why.
    Error,
}

/// Open streams, by id, so that a request for credit finds its stream.
#[derive(Default)]
pub(super) struct Streams(Mutex<HashMap<CorrIdText, Arc<Ticket>>>);

type CorrIdText = String;

/// State that a stream shares with requests for more credit.
struct Ticket {
    topic: TopicName,
    credit: AtomicU64,
    granted: Notify,
}

/// An open stream; closed by dropping it.
struct Open {
    streams: Arc<Streams>,
    id: String,
    ticket: Arc<Ticket>,
}

/// State of one open stream between two lines.
struct Feed {
    app: Arc<App>,
    bearer: Bearer,
    open: Open,
    visibility_ms: Option<u64>,
    max_bytes: usize,
    /// Whose credential the stream was opened with.
    subject: Arc<Subject>,
    consumer: String,
    /// The request, whose share of the memory for answers the lines take.
    call: Call,
    stopping: watch::Receiver<Stopping>,
    /// Bounds the streams open at once, and those of each caller.
    _waiting: Waiting,
    stage: Stage,
    ends: Instant,
    beat: Instant,
    recheck: Instant,
    /// Moment at which the stream ends for want of credit; none while it has credit.
    starves: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Running,
    Ended,
}

/// Outcome of one wait for messages.
enum Turn {
    Messages(Vec<Delivery>),
    Nothing,
    Failed(Error),
}

pub(super) const OPERATIONS: &[&Operation] = &[&STREAM, &CREDIT];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&STREAM, with!(app, open(call, bearer, body))).add(&CREDIT, with!(app, grant(bearer, id, body)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn open(app: Arc<App>, call: Call, bearer: Bearer, body: JsonText) -> HandlerResult {
    let StreamRequest { topic: Topic(topic), credit, visibility_ms, max_bytes } = body.parse()?;
    let subject = app.allow(&bearer, RECV, topic.as_str())?;
    bounds::check_max_bytes(max_bytes)?;
    visibility_ms.map_or(Ok(()), |visibility_ms| app.mailbox.check_visibility(visibility_ms))?;
    bounds::check_range("credit", credit, 1..=CREDIT_MAX)?;
    app.mailbox.topic(&topic)?;
    let (now, consumer) = (clock::now(), consumer(&subject, &call));
    let feed = Feed {
        _waiting: call.wait()?,
        open: Streams::open(&app.streams, topic, credit),
        stopping: app.kernel.watch_stopping(),
        app,
        bearer,
        visibility_ms,
        max_bytes: max_bytes as usize,
        subject,
        consumer,
        call,
        stage: Stage::Opening,
        ends: now + STREAM_TIME_MAX,
        beat: now + BEAT_EVERY,
        recheck: now + RECHECK_EVERY,
        starves: None,
    };
    Ok(feed.response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn grant(app: Arc<App>, bearer: Bearer, id: Path<String>, body: JsonText) -> HandlerResult {
    let CreditRequest { credit } = body.parse()?;
    bearer.is_known(&app.authority)?;
    let no_stream = || Error::new(Kind::NotFound, "no stream of this id is open");
    let ticket = app.streams.find(&id.0).ok_or_else(no_stream)?;
    // The topic of the stream decides which right is needed, so the stream is looked up first.
    app.allow(&bearer, RECV, ticket.topic.as_str())?;
    bounds::check_range("credit", credit, 1..=CREDIT_MAX)?;
    Ok(Json(CreditAnswer { credit: ticket.grant(credit)? }).into_response())
}

impl Streams {
    fn open(streams: &Arc<Streams>, topic: TopicName, credit: u64) -> Open {
        let ticket = Arc::new(Ticket { topic, credit: AtomicU64::new(credit), granted: Notify::new() });
        let id = CorrId::fresh().to_string();
        streams.table().insert(id.clone(), Arc::clone(&ticket));
        Open { streams: Arc::clone(streams), id, ticket }
    }

    fn find(&self, id: &str) -> Option<Arc<Ticket>> {
        self.table().get(id).cloned()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<CorrIdText, Arc<Ticket>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.streams.table().remove(&self.id);
    }
}

impl Ticket {
    /// Adds credit; returns what there is now.
    fn grant(&self, more: u64) -> Result<u64, Error> {
        let add = |credit: u64| Some(credit + more).filter(|credit| *credit <= CREDIT_MAX);
        let refused = |credit| Error::schema(format!("credit: {credit} and {more} are more than {CREDIT_MAX}"));
        let before = self.credit.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).map_err(refused)?;
        self.granted.notify_one();
        Ok(before + more)
    }

    fn credit(&self) -> u64 {
        self.credit.load(Ordering::Acquire)
    }

    fn spend(&self, messages: usize) {
        self.credit.fetch_sub(messages as u64, Ordering::AcqRel);
    }
}

impl Feed {
    fn response(self) -> Response {
        let id = HeaderValue::from_str(&self.open.id);
        let lines = stream::unfold(self, |mut feed| async {
            let text = Box::pin(feed.next()).await?;
            Some((Ok::<_, Infallible>(text), feed))
        });
        let mut response = Response::new(Body::from_stream(lines));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(id.ok().map(|id| (STREAM_ID_HEADER, id)));
        response
    }

    /// The next lines; none once the last was given.
    async fn next(&mut self) -> Option<Bytes> {
        match self.stage {
            Stage::Ended => return None,
            Stage::Opening => {
                self.stage = Stage::Running;
                return Some(line(Line::Opened { stream: &self.open.id }));
            }
            Stage::Running => {}
        }
        loop {
            if let Some(end) = self.reason_to_end() {
                return Some(self.end(end, None));
            }
            let now = clock::now();
            if now >= self.beat {
                self.beat = now + BEAT_EVERY;
                return Some(line(Line::Beat { beat: clock::unix_millis() }));
            }
            match self.turn(now).await {
                Turn::Messages(deliveries) => {
                    self.open.ticket.spend(deliveries.len());
                    self.app.metered.received(&self.subject.name, &deliveries);
                    self.beat = clock::now() + BEAT_EVERY;
                    return Some(messages(&deliveries));
                }
                Turn::Nothing => {}
                Turn::Failed(error) => return Some(self.end(End::Error, Some(error.into()))),
            }
        }
    }

    fn reason_to_end(&mut self) -> Option<End> {
        let now = clock::now();
        if self.stopping.borrow().draining {
            return Some(End::Draining);
        }
        if now >= self.ends {
            return Some(End::Deadline);
        }
        if now >= self.recheck {
            self.recheck = now + RECHECK_EVERY;
            if self.app.allow(&self.bearer, RECV, self.open.ticket.topic.as_str()).is_err() {
                return Some(End::Revoked);
            }
        }
        self.starves.is_some_and(|starves| now >= starves && self.open.ticket.credit() == 0).then_some(End::Credit)
    }

    /// Waits for messages or for credit, until something else is due.
    async fn turn(&mut self, now: Instant) -> Turn {
        let wake = self.ends.min(self.beat).min(self.recheck);
        let credit = self.open.ticket.credit();
        if credit == 0 {
            let wake = wake.min(*self.starves.get_or_insert(now + CREDIT_PATIENCE));
            return self.wait_for_credit(wake).await;
        }
        self.starves = None;
        if let Err(busy) = self.call.has_answer_room() {
            return self.bear(busy).await;
        }
        let wait = (wake - now).min(limits::LONG_POLL_MAX);
        let receive = Receive {
            visibility_ms: self.visibility_ms,
            max_messages: credit.min(limits::BATCH_MAX as u64) as usize,
            max_bytes: self.max_bytes,
            wait_ms: (wait.as_millis() as u64).max(1),
            consumer: self.consumer.clone(),
        };
        let (topic, deadline) = (&self.open.ticket.topic, Deadline::after(wait + RECV_SLACK));
        let find_room = |bytes| self.call.hold_answer(dto::in_base64(bytes));
        let taking = self.app.mailbox.recv_within(&self.subject, topic, receive, deadline, find_room);
        // It ends by itself when the node drains.
        match taking.await {
            Ok(deliveries) if deliveries.is_empty() => Turn::Nothing,
            Ok(deliveries) => match self.call.hold_answer(deliveries.iter().map(dto::written_bytes).sum()) {
                Ok(()) => Turn::Messages(deliveries),
                Err(busy) => {
                    self.app.mailbox.undeliver(&deliveries);
                    self.bear(busy).await
                }
            },
            Err(error) => self.bear(error).await,
        }
    }

    async fn wait_for_credit(&mut self, wake: Instant) -> Turn {
        tokio::select! {
            () = self.open.ticket.granted.notified() => {}
            () = tokio::time::sleep_until(wake) => {}
            _ = self.stopping.wait_for(|stopping| stopping.draining) => {}
        }
        Turn::Nothing
    }

    /// A busy mailbox is waited for; any other trouble ends the stream.
    async fn bear(&mut self, error: Error) -> Turn {
        match error.kind {
            Kind::Timeout => return Turn::Nothing,
            Kind::Busy | Kind::Backpressure => {}
            _ => return Turn::Failed(error),
        }
        let pause = error.retry_after.unwrap_or(RECV_SLACK).min(RECV_SLACK);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = self.stopping.wait_for(|stopping| stopping.draining) => {}
        }
        Turn::Nothing
    }

    fn end(&mut self, end: End, error: Option<ItemError>) -> Bytes {
        self.stage = Stage::Ended;
        line(Line::End { end, error })
    }
}

fn messages(deliveries: &[Delivery]) -> Bytes {
    let bytes = deliveries.iter().map(dto::written_bytes).sum();
    lines(bytes, deliveries.iter().map(|delivery| Line::Message(Box::new(delivery.into()))))
}

fn line(line: Line<'_>) -> Bytes {
    lines(64, [line])
}

fn lines<'a>(bytes: usize, lines: impl IntoIterator<Item = Line<'a>>) -> Bytes {
    let mut text = Vec::with_capacity(bytes);
    for line in lines {
        serde_json::to_writer(&mut text, &line).expect("a vector grows, and lines are texts and numbers");
        text.push(b'\n');
    }
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(credit: u64) -> (Arc<Streams>, Open) {
        let streams = Arc::new(Streams::default());
        let open = Streams::open(&streams, "t".parse().expect("a name"), credit);
        (streams, open)
    }

    #[test]
    fn credit_is_spent_and_granted_up_to_a_bound() {
        let (streams, open) = ticket(5);
        open.ticket.spend(5);
        assert_eq!(open.ticket.credit(), 0);
        let shared = streams.find(&open.id).expect("it is open");
        assert_eq!(shared.grant(CREDIT_MAX), Ok(CREDIT_MAX));
        assert_eq!(shared.grant(1).map_err(|error| error.kind), Err(Kind::Schema));
        assert_eq!(open.ticket.credit(), CREDIT_MAX);
    }

    #[test]
    fn a_stream_is_known_while_it_is_open() {
        let (streams, open) = ticket(1);
        let (id, other) = (open.id.clone(), Streams::open(&streams, "t".parse().expect("a name"), 1));
        assert!(streams.find(&id).is_some());
        drop(open);
        assert!(streams.find(&id).is_none());
        drop(other);
        assert_eq!(streams.table().len(), 0);
    }

    #[test]
    fn lines_are_what_readers_expect() {
        for (shown, expected) in [
            (Line::Opened { stream: "x" }, "{\"stream\":\"x\"}\n"),
            (Line::Beat { beat: 5 }, "{\"beat\":5}\n"),
            (Line::End { end: End::Draining, error: None }, "{\"end\":\"draining\"}\n"),
            (Line::End { end: End::Revoked, error: None }, "{\"end\":\"revoked\"}\n"),
        ] {
            assert_eq!(line(shown), expected);
        }
    }
}
