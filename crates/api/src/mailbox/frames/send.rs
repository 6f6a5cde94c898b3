//! Putting messages in: one request, one batch for the engine.

use std::sync::Arc;

use bytes::Bytes;
use ron_auth::Subject;
use ron_kernel::Deadline;
use ron_types::limits::{self, mailbox as mailbox_limits};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::types::{Dedup, TopicName};
use svc_mailbox::{Outgoing, Receipted, capabilities};

use super::payload::{AtMost, GivenHash, Op, RequestPayload, write};
use super::{Known, Shared, deadline};
use crate::frames::{Answer, Reply, batch_hash};
use crate::mailbox::dto::Failed;
use crate::mailbox::fields::{Attrs, Id, Key, Topic};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SendHead<'a> {
    topic: Topic,
    messages: AtMost<MessageHead, { mailbox_limits::CALL_ITEMS_MAX }>,
    batch_chain: Option<GivenHash>,
    corr_id: Option<Key>,
    #[serde(borrow)]
    min_durability: Option<&'a str>,
    deadline_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageHead {
    /// Bytes of its body.
    len: usize,
    payload_hash: Option<GivenHash>,
    idem_key: Option<Key>,
    group: Option<Key>,
    #[serde(default)]
    attrs: Attrs,
    delay_ms: Option<u64>,
}

#[derive(Serialize)]
struct SendAnswer {
    durability: &'static str,
    results: Vec<SendResult>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum SendResult {
    Sent {
        msg_id: Id,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        duplicate: bool,
    },
    Refused(Failed),
}

pub(super) fn answer(known: &Known<'_>, payload: &RequestPayload) -> Result<Answer, Reply> {
    let head: SendHead<'_> = payload.head()?;
    known.shared.require(head.min_durability)?;
    let deadline = deadline(head.deadline_ms, limits::REQUEST_DEADLINE)?;
    let subject = known.allow(capabilities::SEND, head.topic.0.as_str())?;
    let bodies = cut(&payload.bodies, &head.messages.0)?;
    check_hashes(known, &head, &bodies)?;
    let corr_id = head.corr_id.map_or_else(String::new, |corr_id| corr_id.0);
    let messages = head.messages.0.into_iter().zip(bodies);
    let messages: Vec<Outgoing> = messages.map(|(message, body)| message.outgoing(body, &corr_id)).collect();
    let (shared, caller, topic) = (Arc::clone(known.shared), known.caller.clone(), head.topic.0);
    Ok(Answer::begin(async move {
        let sending = shared.send(&subject, &topic, messages, deadline);
        caller.in_order(|| shared.mailbox.has_topic(&topic), sending).await
    }))
}

impl Shared {
    async fn send(&self, by: &Subject, topic: &TopicName, mut messages: Vec<Outgoing>, deadline: Deadline) -> Reply {
        let bytes: Vec<usize> = messages.iter().map(Outgoing::bytes).collect();
        // A batch of one need not be spread over partitions and gathered again.
        let sent = match messages.pop() {
            Some(only) if messages.is_empty() => vec![self.mailbox.send(by, topic, only, deadline).await],
            last => {
                messages.extend(last);
                self.mailbox.send_batch(by, topic, messages, deadline).await
            }
        };
        self.metered.sent_batch(by, &bytes, &sent);
        let about = 64 + 48 * sent.len();
        let results = sent.into_iter().map(SendResult::from).collect();
        let answer = SendAnswer { durability: self.mailbox.durability().as_str(), results };
        Reply::ok(write(Op::Send, &answer, [], about))
    }
}

/// The body of each message; together they are all there is.
fn cut(bodies: &Bytes, messages: &[MessageHead]) -> Result<Vec<Bytes>, Error> {
    let mut rest = bodies.clone();
    let cut = messages.iter().map(|message| (message.len <= rest.len()).then(|| rest.split_to(message.len)));
    let cut: Option<Vec<Bytes>> = cut.collect();
    let wrong =
        || Error::schema(format!("messages: their lengths do not add up to the {} bytes there are", bodies.len()));
    cut.filter(|_| rest.is_empty()).ok_or_else(wrong)
}

/// Holds bodies to the hashes that came with them, and the batch to its place in the session. A request with a wrong
/// hash is refused as a whole: what else of it is right cannot be known.
fn check_hashes(known: &Known<'_>, head: &SendHead<'_>, bodies: &[Bytes]) -> Result<(), Error> {
    let all = head.batch_chain.is_some();
    let mut hashes = Vec::with_capacity(if all { bodies.len() } else { 0 });
    for (place, (message, body)) in head.messages.0.iter().zip(bodies).enumerate() {
        if !all && message.payload_hash.is_none() {
            continue;
        }
        let hash = *blake3::hash(body).as_bytes();
        if message.payload_hash.is_some_and(|given| given.0 != hash) {
            let detail = format!("messages[{place}].payload_hash: the body does not have this hash");
            return Err(Error::new(Kind::Integrity, detail));
        }
        hashes.push(hash);
    }
    match head.batch_chain {
        Some(given) => known.caller.incoming().add_checked(&batch_hash(&hashes), &given.0).map(drop),
        None => Ok(()),
    }
}

impl MessageHead {
    fn outgoing(self, payload: Bytes, corr_id: &str) -> Outgoing {
        Outgoing {
            idem_key: self.idem_key.map(|key| key.0),
            dedup: Dedup::Payload,
            group: self.group.map(|group| group.0),
            attrs: self.attrs.0,
            payload,
            delay_ms: self.delay_ms,
            corr_id: corr_id.to_owned(),
            existing_only: false,
        }
    }
}

impl From<Result<Receipted, Error>> for SendResult {
    fn from(sent: Result<Receipted, Error>) -> Self {
        match sent {
            Ok(Receipted { msg_id, duplicate, .. }) => SendResult::Sent { msg_id: Id(msg_id), duplicate },
            Err(error) => SendResult::Refused(Failed { error: error.into() }),
        }
    }
}

pub(super) fn read_any(payload: &RequestPayload) -> bool {
    payload.head::<SendHead<'_>>().is_ok_and(|head| cut(&payload.bodies, &head.messages.0).is_ok())
}
