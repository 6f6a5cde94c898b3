//! Putting messages in.

use std::sync::Arc;

use http::StatusCode;
use ron_types::Kind;
use serde::{Deserialize, Serialize};
use svc_mailbox::{Outgoing, Receipted};
use svc_mailbox::{bounds, capabilities, types::Dedup};
use utoipa::ToSchema;

use super::dto::{self, Failed};
use super::fields::{Attrs, Base64, Id, Key, Topic};
use super::headers::Minimum;
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::JsonText;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static SEND: Operation = Operation::post("/v1/send", "messages", "puts a message into a topic")
    .allows(capabilities::SEND)
    .body::<SendRequest>(
        r#"{"topic":"orders","idem_key":"k1","payload_b64":"aGk=","attrs":{"a":"b"},"group":"g","delay_ms":0}"#,
    )
    .answers::<SendAnswer>()
    .durable()
    .errors(&[Kind::NotFound, Kind::Conflict, Kind::FrameTooLarge]);

static SEND_BATCH: Operation = Operation::post("/v1/send:batch", "messages", "puts up to 100 messages into a topic")
    .allows(capabilities::SEND)
    .body::<BatchRequest>(r#"{"topic":"orders","messages":[{"idem_key":"k1","payload_b64":"aGk="}]}"#)
    .answers::<BatchAnswer>()
    .durable()
    .errors(&[Kind::NotFound, Kind::FrameTooLarge]);

/// A message to put in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendRequest {
    /// Where to.
    topic: Topic,
    /// Sent again with the same payload within the replay window, the message is not put in twice.
    idem_key: Option<Key>,
    /// The payload.
    payload_b64: Base64,
    /// What goes with it.
    #[serde(default)]
    attrs: Attrs,
    /// The tenant or line it belongs to.
    group: Option<Key>,
    /// How long it is held back; the topic's own delay if not given.
    delay_ms: Option<u64>,
}

/// Several messages for one topic.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest {
    /// Where to.
    topic: Topic,
    /// 1 to 100 of them.
    #[schema(min_items = 1, max_items = 100)]
    messages: Vec<BatchMessage>,
}

/// One message of several.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchMessage {
    /// Sent again with the same payload within the replay window, the message is not put in twice.
    idem_key: Option<Key>,
    /// The payload.
    payload_b64: Base64,
    /// What goes with it.
    #[serde(default)]
    attrs: Attrs,
    /// The tenant or line it belongs to.
    group: Option<Key>,
    /// How long it is held back; the topic's own delay if not given.
    delay_ms: Option<u64>,
}

/// What became of a message put in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SendAnswer {
    /// Its id.
    msg_id: Id,
    /// True if it was there already.
    duplicate: bool,
    /// How safe it is: `fsynced`, `written` or `ram`.
    durability: &'static str,
}

/// What became of each message, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchAnswer {
    results: Vec<BatchResult>,
}

/// What became of one message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BatchResult {
    /// It is in.
    Sent(SendAnswer),
    /// It is not.
    Refused(Failed),
}

pub(super) const OPERATIONS: &[&Operation] = &[&SEND, &SEND_BATCH];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&SEND, with!(app, send(call, bearer, minimum, body)))
        .add(&SEND_BATCH, with!(app, send_batch(call, bearer, minimum, body)))
}

async fn send(app: Arc<App>, call: Call, bearer: Bearer, minimum: Minimum, body: JsonText) -> HandlerResult {
    app.require(minimum)?;
    let request: SendRequest = body.parse()?;
    let subject = app.allow(&bearer, capabilities::SEND, request.topic.0.as_str())?;
    let SendRequest { topic, idem_key, payload_b64, attrs, group, delay_ms } = request;
    let message = BatchMessage { idem_key, payload_b64, attrs, group, delay_ms }.outgoing(&call);
    let bytes = message.bytes();
    let sent = app.mailbox.send(&subject, &topic.0, message, call.deadline).await;
    app.metered.sent(&subject, bytes, &sent);
    let receipted = sent.map_err(dto::name_payload)?;
    Ok(app.changed(StatusCode::OK, &SendAnswer::from(receipted)))
}

async fn send_batch(app: Arc<App>, call: Call, bearer: Bearer, minimum: Minimum, body: JsonText) -> HandlerResult {
    app.require(minimum)?;
    let BatchRequest { topic, messages } = body.parse()?;
    bounds::check_batch("messages", messages.len())?;
    let subject = app.allow(&bearer, capabilities::SEND, topic.0.as_str())?;
    let messages: Vec<Outgoing> = messages.into_iter().map(|message| message.outgoing(&call)).collect();
    let bytes: Vec<usize> = messages.iter().map(Outgoing::bytes).collect();
    let receipted = app.mailbox.send_batch(&subject, &topic.0, messages, call.deadline).await;
    app.metered.sent_batch(&subject, &bytes, &receipted);
    let results = receipted.into_iter().map(|result| match result {
        Ok(receipted) => BatchResult::Sent(receipted.into()),
        Err(error) => BatchResult::Refused(Failed { error: dto::name_payload(error).into() }),
    });
    Ok(app.changed(StatusCode::OK, &BatchAnswer { results: results.collect() }))
}

impl BatchMessage {
    fn outgoing(self, call: &Call) -> Outgoing {
        Outgoing {
            idem_key: self.idem_key.map(|key| key.0),
            dedup: Dedup::Payload,
            group: self.group.map(|group| group.0),
            attrs: self.attrs.0,
            payload: self.payload_b64.0,
            delay_ms: self.delay_ms,
            corr_id: call.corr_id.as_str().to_owned(),
            existing_only: false,
        }
    }
}

impl From<Receipted> for SendAnswer {
    fn from(receipted: Receipted) -> Self {
        SendAnswer {
            msg_id: Id(receipted.msg_id),
            duplicate: receipted.duplicate,
            durability: receipted.durability.as_str(),
        }
    }
}
