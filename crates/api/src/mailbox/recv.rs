//! Taking messages out.

use std::sync::Arc;
use std::time::Duration;

use ron_auth::Subject;
use ron_types::Kind;
use ron_types::limits::mailbox as limits;
use serde::{Deserialize, Serialize};
use svc_mailbox::{Receive, bounds, capabilities};
use utoipa::ToSchema;

use super::dto::{self, Message};
use super::fields::Topic;
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

/// A receive may wait as long as it may, and then still be answered.
pub(super) const RECV_DEADLINE: Duration = limits::LONG_POLL_MAX.saturating_add(Duration::from_secs(5));

static RECV: Operation = Operation::post("/v1/recv", "messages", "takes messages out of a topic under a lease")
    .deadline(RECV_DEADLINE)
    .allows(capabilities::RECV)
    .body::<RecvRequest>(r#"{"topic":"orders","visibility_ms":5000,"max_messages":32,"max_bytes":524288,"wait_ms":0}"#)
    .answers::<RecvAnswer<'static>>()
    .errors(&[Kind::NotFound]);

/// How many messages, and for how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecvRequest {
    /// Where from.
    topic: Topic,
    /// How long the lease lasts; the topic's own time if not given.
    visibility_ms: Option<u64>,
    /// Maximum messages in one answer.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 100, default = 1)]
    max_messages: u64,
    /// Maximum bytes of messages as the node keeps them: payload, attributes and some 50 bytes more each. One message
    /// is given even if it is larger.
    #[serde(default = "bytes_default")]
    #[schema(minimum = 1, maximum = 4_194_304, default = 524_288)]
    max_bytes: u64,
    /// How long to wait for the first one.
    #[serde(default)]
    #[schema(maximum = 20_000, default = 0)]
    wait_ms: u64,
}

/// The messages taken; none if there were none in time.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RecvAnswer<'a> {
    messages: Vec<Message<'a>>,
}

const fn one() -> u64 {
    1
}

/// Bytes of one receive where nobody says.
pub(super) const fn bytes_default() -> u64 {
    512 * 1024
}

pub(super) const OPERATIONS: &[&Operation] = &[&RECV];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&RECV, with!(app, recv(call, bearer, body)))
}

async fn recv(app: Arc<App>, call: Call, bearer: Bearer, body: JsonText) -> HandlerResult {
    let RecvRequest { topic, visibility_ms, max_messages, max_bytes, wait_ms } = body.parse()?;
    let subject = app.allow(&bearer, capabilities::RECV, topic.0.as_str())?;
    visibility_ms.map_or(Ok(()), |visibility_ms| app.mailbox.check_visibility(visibility_ms))?;
    bounds::check_max_bytes(max_bytes)?;
    let receive = Receive {
        visibility_ms,
        max_messages: max_messages.try_into().unwrap_or(usize::MAX),
        max_bytes: max_bytes as usize,
        wait_ms,
        consumer: consumer(&subject, &call),
    };
    call.has_answer_room()?;
    let _waiting = (wait_ms > 0).then(|| call.wait()).transpose()?;
    let find_room = |bytes| call.hold_answer(dto::in_base64(bytes));
    let deliveries = app.mailbox.recv_within(&subject, &topic.0, receive, call.deadline, find_room).await?;
    let bytes = deliveries.iter().map(dto::written_bytes).sum();
    if let Err(refusal) = call.hold_answer(bytes) {
        app.mailbox.undeliver(&deliveries);
        return Err(refusal.into());
    }
    app.metered.received(&subject.name, &deliveries);
    let messages = deliveries.iter().map(Message::from).collect();
    Ok(Json(RecvAnswer { messages }).into_response_of(bytes))
}

/// Name under which a lease is held: the subject and the correlation id of its request.
pub(super) fn consumer(subject: &Subject, call: &Call) -> String {
    let (name, corr_id) = (&*subject.name, call.corr_id.as_str());
    let mut consumer = String::with_capacity(name.len() + 1 + corr_id.len());
    consumer.push_str(name);
    consumer.push(' ');
    consumer.push_str(corr_id);
    consumer
}
