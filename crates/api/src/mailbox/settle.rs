//! Ending and prolonging leases: acknowledge, give back, hold for longer.

use std::sync::Arc;

use http::StatusCode;
use ron_auth::{Action, Subject};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::types::{MessageId, Millis};
use svc_mailbox::{Mailbox, NackOutcome, Receipt};
use svc_mailbox::{bounds, capabilities};
use utoipa::ToSchema;

use super::dto::{self, ItemError};
use super::fields::Text;
use super::headers::Minimum;
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{JsonText, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static ACK: Operation = Operation::post("/v1/ack", "leases", "acknowledges messages: they are done with")
    .allows(capabilities::ACK)
    .even_expired()
    .body::<AckRequest<'static>>(r#"{"receipts":["AwAAAAEA…"]}"#)
    .answers::<SettleAnswer<'static>>()
    .durable();

static ACK_ONE: Operation =
    Operation::post("/v1/ack/{msg_id}", "leases", "acknowledges a message under its current lease")
        .allows(capabilities::ACK)
        .even_expired()
        .answers::<Settled<'static>>()
        .durable()
        .errors(&[Kind::NotFound]);

static NACK: Operation = Operation::post("/v1/nack", "leases", "gives messages back, to be delivered again later")
    .allows(capabilities::NACK)
    .even_expired()
    .body::<NackRequest<'static>>(r#"{"receipts":["AwAAAAEA…"],"reason":"upstream is down","delay_ms":1000}"#)
    .answers::<SettleAnswer<'static>>()
    .durable();

static NACK_ONE: Operation =
    Operation::post("/v1/nack/{msg_id}", "leases", "gives a message under its current lease back")
        .allows(capabilities::NACK)
        .even_expired()
        .body::<NackFields>(r#"{"reason":"upstream is down","delay_ms":1000}"#)
        .optional_body()
        .answers::<Settled<'static>>()
        .durable()
        .errors(&[Kind::NotFound]);

static EXTEND: Operation = Operation::post("/v1/extend", "leases", "prolongs leases, counted from now; 0 ends them")
    .allows(capabilities::ACK)
    .even_expired()
    .body::<ExtendRequest<'static>>(r#"{"receipts":["AwAAAAEA…"],"visibility_ms":30000}"#)
    .answers::<SettleAnswer<'static>>()
    .durable();

/// What is done with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AckRequest<'a> {
    /// 1 to 100 receipts.
    #[serde(borrow)]
    #[schema(min_items = 1, max_items = 100)]
    receipts: Vec<Text<'a>>,
}

/// What is given back, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NackRequest<'a> {
    /// 1 to 100 receipts.
    #[serde(borrow)]
    #[schema(min_items = 1, max_items = 100)]
    receipts: Vec<Text<'a>>,
    /// What went wrong; the beginning of it is kept with the message.
    #[serde(default)]
    reason: String,
    /// When it may be delivered again; drawn from the topic's backoff if not given.
    delay_ms: Option<u64>,
    /// True sends it to the dead letters at once.
    #[serde(default)]
    reject: bool,
}

/// Why a message is given back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NackFields {
    /// What went wrong; the beginning of it is kept with the message.
    #[serde(default)]
    reason: String,
    /// When it may be delivered again; drawn from the topic's backoff if not given.
    delay_ms: Option<u64>,
    /// True sends it to the dead letters at once.
    #[serde(default)]
    reject: bool,
}

/// What is held for longer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendRequest<'a> {
    /// 1 to 100 receipts.
    #[serde(borrow)]
    #[schema(min_items = 1, max_items = 100)]
    receipts: Vec<Text<'a>>,
    /// For how long from now; 0 makes the messages visible at once.
    visibility_ms: u64,
}

/// What became of each receipt, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SettleAnswer<'a> {
    results: Vec<Settled<'a>>,
}

/// What became of one receipt: `ok` or `error`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Settled<'a> {
    receipt: &'a str,
    /// True if it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    /// When the prolonged lease ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ts: Option<u64>,
    /// When the message given back may be delivered again.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ts: Option<u64>,
    /// True if the message given back went to the dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<bool>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// The part of a result that differs between the operations.
enum Done {
    Acked,
    Extended { until_ms: u64 },
    Nacked(NackOutcome),
}

pub(super) const OPERATIONS: &[&Operation] = &[&ACK, &ACK_ONE, &NACK, &NACK_ONE, &EXTEND];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&ACK, with!(app, ack(call, bearer, minimum, body)))
        .add(&ACK_ONE, with!(app, ack_one(call, bearer, minimum, id)))
        .add(&NACK, with!(app, nack(call, bearer, minimum, body)))
        .add(&NACK_ONE, with!(app, nack_one(call, bearer, minimum, id, body)))
        .add(&EXTEND, with!(app, extend(call, bearer, minimum, body)))
}

async fn ack(app: Arc<App>, call: Call, bearer: Bearer, minimum: Minimum, body: JsonText) -> HandlerResult {
    app.require(minimum)?;
    let request: AckRequest = body.parse()?;
    let batch = app.receipts(&bearer, (capabilities::ACK, Purpose::End), &request.receipts)?;
    let outcomes = app.mailbox.ack(batch.read.good(), call.deadline).await;
    batch.read.by.iter().for_each(|by| app.metered.acknowledged(by, &outcomes));
    Ok(batch.answer(&app, outcomes.into_iter().map(|outcome| outcome.map(|()| Done::Acked))))
}

async fn nack(app: Arc<App>, call: Call, bearer: Bearer, minimum: Minimum, body: JsonText) -> HandlerResult {
    app.require(minimum)?;
    let NackRequest { receipts, reason, delay_ms, reject } = body.parse()?;
    bounds::check_nack_delay(delay_ms)?;
    let batch = app.receipts(&bearer, (capabilities::NACK, Purpose::End), &receipts)?;
    let outcomes = app.mailbox.nack(batch.read.good(), &reason, delay_ms, reject, call.deadline).await;
    Ok(batch.answer(&app, outcomes.into_iter().map(|outcome| outcome.map(Done::Nacked))))
}

async fn extend(app: Arc<App>, call: Call, bearer: Bearer, minimum: Minimum, body: JsonText) -> HandlerResult {
    app.require(minimum)?;
    let ExtendRequest { receipts, visibility_ms } = body.parse()?;
    let purpose = Purpose::of_extension(visibility_ms);
    let batch = app.receipts(&bearer, (capabilities::ACK, purpose), &receipts)?;
    let outcomes = app.mailbox.extend(batch.read.good(), visibility_ms, call.deadline).await;
    let done = |outcome: Result<u64, Error>| outcome.map(|until_ms| Done::Extended { until_ms });
    Ok(batch.answer(&app, outcomes.into_iter().map(done)))
}

async fn ack_one(app: Arc<App>, call: Call, bearer: Bearer, minimum: Minimum, id: Path<String>) -> HandlerResult {
    app.require(minimum)?;
    let (receipt, by) = app.current(&call, &bearer, capabilities::ACK, &id.0).await?;
    let outcomes = app.mailbox.ack(vec![receipt], call.deadline).await;
    app.metered.acknowledged(&by, &outcomes);
    only(outcomes)?;
    Ok(app.changed(StatusCode::OK, &Settled::ok(&receipt.to_string(), Done::Acked)))
}

async fn nack_one(
    app: Arc<App>,
    call: Call,
    bearer: Bearer,
    minimum: Minimum,
    id: Path<String>,
    body: JsonText,
) -> HandlerResult {
    app.require(minimum)?;
    let NackFields { reason, delay_ms, reject } = body.parse_or_default()?;
    bounds::check_nack_delay(delay_ms)?;
    let (receipt, _) = app.current(&call, &bearer, capabilities::NACK, &id.0).await?;
    let outcome = only(app.mailbox.nack(vec![receipt], &reason, delay_ms, reject, call.deadline).await)?;
    Ok(app.changed(StatusCode::OK, &Settled::ok(&receipt.to_string(), Done::Nacked(outcome))))
}

/// What is wanted of leases. A token that ran out may bring to an end what was begun with it, and hold nothing longer.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    End,
    Prolong,
}

/// Receipts that were read, and whether each is one of this node.
pub(super) struct ReadReceipts {
    receipts: Vec<Result<Receipt, Error>>,
    /// The bearer; none if no receipt is good.
    pub by: Option<Arc<Subject>>,
}

impl ReadReceipts {
    /// Reads receipts and asks for the topic of each good one, and the time of its lease, whether the bearer is
    /// allowed. One that is no receipt of this node is refused alone; one of a topic the token does not cover refuses
    /// the request, of which then nothing was done.
    pub(super) fn read<'a>(
        mailbox: &Mailbox,
        texts: impl ExactSizeIterator<Item = &'a str>,
        mut allow: impl FnMut(&str, Millis) -> Result<Arc<Subject>, Error>,
    ) -> Result<Self, Error> {
        let mut read = ReadReceipts { receipts: Vec::with_capacity(texts.len()), by: None };
        for text in texts {
            let receipt = text.parse::<Receipt>().and_then(|receipt| Ok((receipt, mailbox.topic_of(&receipt)?)));
            let receipt = match receipt {
                Ok((receipt, (topic, leased_ms))) => {
                    read.by = Some(allow(topic.as_str(), leased_ms)?);
                    Ok(receipt)
                }
                Err(error) => Err(error),
            };
            read.receipts.push(receipt);
        }
        Ok(read)
    }

    /// Those of this node.
    pub(super) fn good(&self) -> Vec<Receipt> {
        self.receipts.iter().filter_map(|receipt| receipt.as_ref().ok().copied()).collect()
    }

    /// The outcomes of the good receipts between the refusals of the others.
    pub(super) fn outcomes<T>(
        self,
        outcomes: impl IntoIterator<Item = Result<T, Error>>,
    ) -> impl Iterator<Item = Result<T, Error>> {
        let missing = || Err(Error::new(Kind::Degraded, "the mailbox did not say what became of it"));
        let mut outcomes = outcomes.into_iter();
        self.receipts.into_iter().map(move |receipt| receipt.and_then(|_| outcomes.next().unwrap_or_else(missing)))
    }
}

impl Purpose {
    /// What is wanted of a lease that gets a new end: 0 gives it back.
    pub(super) fn of_extension(visibility_ms: u64) -> Self {
        if visibility_ms == 0 { Purpose::End } else { Purpose::Prolong }
    }

    /// The time at which the bearer must have been allowed; none is now.
    pub(super) fn time_of_request(self, leased_ms: Millis) -> Option<Millis> {
        match self {
            Purpose::End => Some(leased_ms),
            Purpose::Prolong => None,
        }
    }
}

/// Receipts as they came, and what each of them stands for.
struct Batch<'a> {
    texts: &'a [Text<'a>],
    read: ReadReceipts,
}

impl App {
    fn receipts<'a>(
        &self,
        bearer: &Bearer,
        (action, purpose): (Action, Purpose),
        texts: &'a [Text<'a>],
    ) -> Result<Batch<'a>, Error> {
        bounds::check_batch("receipts", texts.len())?;
        let read =
            ReadReceipts::read(&self.mailbox, texts.iter().map(|text| &*text.0), |topic, leased_ms| {
                match purpose.time_of_request(leased_ms) {
                    Some(at_ms) => bearer.allowed_at(&self.authority, action, topic, at_ms),
                    None => self.allow(bearer, action, topic),
                }
            })?;
        if read.by.is_none() {
            bearer.is_known(&self.authority)?;
        }
        Ok(Batch { texts, read })
    }

    /// The receipt of the lease a message is under now, and the bearer.
    async fn current(
        &self,
        call: &Call,
        bearer: &Bearer,
        action: Action,
        id: &str,
    ) -> Result<(Receipt, Arc<Subject>), Error> {
        bearer.is_known(&self.authority)?;
        let id: MessageId = dto::parse("msg_id", id)?;
        let (topic, receipt) = self.mailbox.current_receipt(id, call.deadline).await?;
        let by = bearer.allowed_at(&self.authority, action, topic.as_str(), receipt.leased_ms)?;
        Ok((receipt, by))
    }
}

impl Batch<'_> {
    /// Puts the outcomes of the good receipts between the refusals of the others.
    fn answer(self, app: &App, outcomes: impl Iterator<Item = Result<Done, Error>>) -> axum::response::Response {
        let settled = self.texts.iter().zip(self.read.outcomes(outcomes)).map(|(text, outcome)| match outcome {
            Ok(done) => Settled::ok(&text.0, done),
            Err(error) => Settled { error: Some(error.into()), ..Settled::blank(&text.0) },
        });
        app.changed(StatusCode::OK, &SettleAnswer { results: settled.collect() })
    }
}

impl<'a> Settled<'a> {
    fn blank(receipt: &'a str) -> Self {
        Settled { receipt, ok: None, until_ts: None, due_ts: None, dead: None, error: None }
    }

    fn ok(receipt: &'a str, done: Done) -> Self {
        let blank = Settled { ok: Some(true), ..Settled::blank(receipt) };
        match done {
            Done::Acked => blank,
            Done::Extended { until_ms } => Settled { until_ts: Some(until_ms), ..blank },
            Done::Nacked(NackOutcome::Requeued { due_ms }) => Settled { due_ts: Some(due_ms), ..blank },
            Done::Nacked(NackOutcome::Died) => Settled { dead: Some(true), ..blank },
        }
    }
}

fn only<T>(outcomes: Vec<Result<T, Error>>) -> Result<T, Error> {
    let missing = || Err(Error::new(Kind::Degraded, "the mailbox did not say what became of it"));
    outcomes.into_iter().next().unwrap_or_else(missing)
}
