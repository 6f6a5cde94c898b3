//! Single messages by their id, and looking through a topic without leasing.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use http_body::Body as _;
use ron_auth::Subject;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::{ADMIN, PAYLOAD_BYTES_MAX};
use svc_mailbox::types::{Attempt, MessageId};
use svc_mailbox::{Explained, Filter, MessageChange, Page};
use utoipa::ToSchema;

use super::dto::{self, BreakerWord, FilterFields, Past, SeenMessage};
use super::fields::{Attrs, Base64, Id};
use super::topics::missing_dlq;
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static BROWSE: Operation =
    Operation::post("/v1/topics/{topic}/browse", "topics", "looks through a topic without leasing anything")
        .concurrency(PAGES_AT_ONCE_MAX)
        .allows(ADMIN)
        .body::<BrowseRequest>(r#"{"filter":{"state":"ready","attrs":{"a":"b"}},"limit":20}"#)
        .optional_body()
        .answers::<PageAnswer<'static>>()
        .errors(&[Kind::NotFound]);

static EXPLAIN: Operation =
    Operation::get("/v1/messages/{msg_id}", "messages", "shows a message and says why it is not being delivered")
        .allows(ADMIN)
        .answers::<ExplainAnswer<'static>>()
        .errors(&[Kind::NotFound]);

static CANCEL: Operation =
    Operation::delete("/v1/messages/{msg_id}", "messages", "takes back a message that was never delivered")
        .allows(ADMIN)
        .marked()
        .errors(&[Kind::NotFound, Kind::Conflict]);

static CHANGE: Operation = Operation::patch(
    "/v1/messages/{msg_id}",
    "messages",
    "edits or reschedules a message that was never delivered: all of it or nothing. A damaged one needs both payload \
         and attributes (409)",
)
.allows(ADMIN)
.body::<ChangeRequest>(r#"{"delay_ms":60000,"payload_b64":"aG8=","attrs":{"a":"c"}}"#)
.answers::<SeenMessage<'static>>()
.marked()
.errors(&[Kind::NotFound, Kind::Conflict, Kind::FrameTooLarge]);

/// What to look for, and from where on.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BrowseRequest {
    /// Which messages; all if not given.
    #[serde(default)]
    filter: FilterFields,
    /// Where to go on: `next` of the page before.
    cursor: Option<Id>,
    /// Maximum messages in one page. A page also ends after about 4 MiB; the next goes on there.
    #[schema(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u64>,
}

/// A page of messages.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PageAnswer<'a> {
    messages: Vec<SeenMessage<'a>>,
    /// Where to go on, if there is more. A page may be empty and still have a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Id>,
    /// Messages looked at for this page.
    looked_at: usize,
}

/// A message, and why it is where it is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExplainAnswer<'a> {
    message: SeenMessage<'a>,
    /// One sentence.
    verdict: &'a str,
    /// The message of its group it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<Id>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Lease<'a>>,
    /// Messages before it in its line.
    ahead: u64,
    /// The share of leases its group holds, in percent, if that makes the group wait for quieter ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    noisy_share: Option<u8>,
    /// True if its topic delivers nothing for now.
    paused: bool,
    /// Whether the breaker of its topic lets messages out.
    breaker: BreakerWord,
    /// Until when nothing is delivered, while the breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker_until_ts: Option<u64>,
    /// The topic that was named for the dead letters of its topic and is gone: it is tried without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    dlq_missing: Option<&'a str>,
    /// Deliveries so far, the newest last.
    history: Vec<Past<'a>>,
}

/// Who has a message, and until when.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Lease<'a> {
    /// Name the consumer gave itself.
    consumer: &'a str,
    /// Number of this delivery, from 1.
    number: u32,
    /// Since when.
    leased_ts: u64,
    /// Until when.
    until_ts: u64,
}

/// What to change; at least one of the three.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeRequest {
    /// When it may be delivered, counted from now.
    delay_ms: Option<u64>,
    /// Another payload; the old one stays if not given.
    payload_b64: Option<Base64>,
    /// Other attributes; the old ones stay if not given, and the node's own in any case.
    attrs: Option<Attrs>,
}

pub(super) const PAGE_DEFAULT: usize = 20;

/// Pages of messages that one route gathers at once, of which one caller can have half. Each may be megabytes in memory
/// before its size is known and counts as an answer.
pub(super) const PAGES_AT_ONCE_MAX: usize = 32;

pub(super) const OPERATIONS: &[&Operation] = &[&BROWSE, &EXPLAIN, &CANCEL, &CHANGE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&BROWSE, with!(app, browse(call, bearer, topic, body)))
        .add(&EXPLAIN, with!(app, explain(call, bearer, id)))
        .add(&CANCEL, with!(app, cancel(call, bearer, id)))
        .add(&CHANGE, with!(app, change(call, bearer, id, body)))
}

async fn browse(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>, body: JsonText) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    let BrowseRequest { filter, cursor, limit } = body.parse_or_default()?;
    let limit = dto::check_limit(limit, PAGE_DEFAULT, limits::BATCH_MAX)?;
    let cursor = cursor.map(|cursor| cursor.0);
    call.has_answer_room()?;
    let page = app.mailbox.browse(&name, Filter::from(filter), cursor, limit, call.deadline).await?;
    let response = Json(PageAnswer::from(&page)).into_response();
    call.hold_answer(response.body().size_hint().lower() as usize)?;
    Ok(response)
}

async fn explain(app: Arc<App>, call: Call, bearer: Bearer, id: Path<String>) -> HandlerResult {
    let (id, _) = app.located(&call, &bearer, &id.0).await?;
    let explained = app.mailbox.explain(id, call.deadline).await?;
    let topic = app.mailbox.topic(&explained.seen.topic)?;
    let dlq_missing = missing_dlq(&topic);
    Ok(Json(ExplainAnswer { dlq_missing, ..ExplainAnswer::from(&explained) }).into_response())
}

async fn cancel(app: Arc<App>, call: Call, bearer: Bearer, id: Path<String>) -> HandlerResult {
    let (id, _) = app.located(&call, &bearer, &id.0).await?;
    app.mailbox.cancel(id, call.deadline).await?;
    Ok(app.done())
}

async fn change(app: Arc<App>, call: Call, bearer: Bearer, id: Path<String>, body: JsonText) -> HandlerResult {
    let ChangeRequest { delay_ms, payload_b64, attrs } = body.parse()?;
    if payload_b64.is_none() && attrs.is_none() && delay_ms.is_none() {
        return Err(Error::schema("one of delay_ms, payload_b64 and attrs is needed").into());
    }
    let (id, by) = app.located(&call, &bearer, &id.0).await?;
    let (payload, attrs) = (payload_b64.map(|payload| payload.0), attrs.map(|attrs| attrs.0));
    let change = MessageChange { payload, attrs, delay_ms, bytes_max: by.limit(PAYLOAD_BYTES_MAX) };
    // What it says is of the change itself: a message that goes right after it does not make it a 404.
    let seen = app.mailbox.change(id, change, call.deadline).await.map_err(dto::name_payload)?;
    Ok(app.changed(StatusCode::OK, &SeenMessage::from(&seen)))
}

impl App {
    /// The message named in a path, whose topic the bearer may look after, and the bearer.
    async fn located(&self, call: &Call, bearer: &Bearer, id: &str) -> Result<(MessageId, Arc<Subject>), Error> {
        bearer.is_known(&self.authority)?;
        let id = dto::parse("msg_id", id)?;
        let topic = self.mailbox.locate(id, call.deadline).await?;
        let by = self.allow(bearer, ADMIN, topic.as_str())?;
        Ok((id, by))
    }
}

impl<'a> From<&'a Page> for PageAnswer<'a> {
    fn from(page: &'a Page) -> Self {
        PageAnswer {
            messages: page.messages.iter().map(SeenMessage::from).collect(),
            next: page.next.map(Id),
            looked_at: page.looked_at,
        }
    }
}

impl<'a> From<&'a Explained> for ExplainAnswer<'a> {
    fn from(explained: &'a Explained) -> Self {
        ExplainAnswer {
            message: SeenMessage::from(&explained.seen),
            verdict: &explained.verdict,
            blocked_by: explained.blocked_by.map(Id),
            lease: explained.lease.as_ref().map(|(attempt, until_ms)| Lease::new(attempt, *until_ms)),
            ahead: explained.ahead,
            noisy_share: explained.noisy_share,
            paused: explained.paused,
            breaker: explained.breaker.state.into(),
            breaker_until_ts: explained.breaker.until_ms,
            dlq_missing: None,
            history: explained.history.iter().map(Past::from).collect(),
        }
    }
}

impl<'a> Lease<'a> {
    fn new(attempt: &'a Attempt, until_ms: u64) -> Self {
        Lease { consumer: &attempt.consumer, number: attempt.number, leased_ts: attempt.leased_ms, until_ts: until_ms }
    }
}
