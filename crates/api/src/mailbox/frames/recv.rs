//! Taking messages out: heads in one list, bodies behind it.

use std::sync::Arc;

use ron_types::Error;
use serde::{Deserialize, Serialize};
use svc_mailbox::{Delivery, Receive, bounds, capabilities};

use super::payload::{Op, RequestPayload, write};
use super::{Known, Shared, deadline};
use crate::admission::Admission;
use crate::frames::{Answer, Caller, Reply, batch_hash};
use crate::mailbox::dto::{self, DeadView, Shown};
use crate::mailbox::fields::{AttrsView, Hash, Id, Topic};
use crate::mailbox::recv::{RECV_DEADLINE, bytes_default};

/// Maximum bytes of messages in one answer. An answer may take several frames, and waits in memory until they are sent.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecvHead {
    topic: Topic,
    #[serde(default = "one")]
    max_messages: u64,
    #[serde(default = "bytes_default")]
    max_bytes: u64,
    visibility_ms: Option<u64>,
    #[serde(default)]
    wait_ms: u64,
    deadline_ms: Option<u64>,
}

const fn one() -> u64 {
    1
}

#[derive(Serialize)]
struct RecvAnswer<'a> {
    messages: Vec<DeliveryHead<'a>>,
    /// Number of this batch among those that went out on the session.
    batch: u64,
    batch_chain: Hash<'a>,
}

#[derive(Serialize)]
struct DeliveryHead<'a> {
    msg_id: Id,
    /// Bytes of its body.
    len: usize,
    ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    idem_key: Option<&'a str>,
    payload_hash: Hash<'a>,
    hash_chain: Hash<'a>,
    #[serde(skip_serializing_if = "is_none")]
    attrs: AttrsView<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    corr_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    attempt: u32,
    receipt: Shown<svc_mailbox::Receipt>,
    fence: u32,
    first_received_ts: u64,
    until_ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<DeadView<'a>>,
}

fn is_none(attrs: &AttrsView<'_>) -> bool {
    attrs.0.is_empty()
}

pub(super) fn answer(known: &Known<'_>, payload: &RequestPayload) -> Result<Answer, Reply> {
    let head: RecvHead = payload.head_alone()?;
    let subject = known.allow(capabilities::RECV, head.topic.0.as_str())?;
    let RecvHead { topic, max_messages, max_bytes, visibility_ms, wait_ms, deadline_ms } = head;
    let deadline = deadline(deadline_ms, RECV_DEADLINE)?;
    visibility_ms.map_or(Ok(()), |visibility_ms| known.shared.mailbox.check_visibility(visibility_ms))?;
    bounds::check_range("max_bytes", max_bytes, 1..=BYTES_MAX)?;
    let receive = Receive {
        visibility_ms,
        max_messages: max_messages.try_into().unwrap_or(usize::MAX),
        max_bytes: max_bytes as usize,
        wait_ms,
        consumer: format!("{} {}", subject.name, known.request.corr),
    };
    known.admission.has_answer_room()?;
    let waiting = (wait_ms > 0).then(|| known.admission.wait()).transpose()?;
    let (shared, caller, admission) = (Arc::clone(known.shared), known.caller.clone(), known.admission.clone());
    // Whoever cancels it gets no message: the mailbox takes back what a receive holds that is dropped.
    Ok(Answer::begin_waiting(async move {
        let find_room = |bytes| admission.hold_answer(bytes);
        let received = shared.mailbox.recv_within(&subject, &topic.0, receive, deadline, find_room).await;
        drop(waiting);
        let answered = received.and_then(|deliveries| shared.received(&caller, &admission, &subject.name, &deliveries));
        answered.unwrap_or_else(Reply::from)
    }))
}

impl Shared {
    /// The answer, whose bytes are of the caller's share of the memory for answers until they have left: the replies to
    /// all requests of one read are made before the first of them is sent.
    fn received(
        &self,
        caller: &Caller,
        admission: &Admission,
        by: &str,
        deliveries: &[Delivery],
    ) -> Result<Reply, Error> {
        let about = deliveries.iter().map(|one| one.payload.len() + dto::head_bytes(one)).sum::<usize>() + 128;
        // Before the chain goes on: a batch that is refused is none.
        admission.hold_answer(about).inspect_err(|_| self.mailbox.undeliver(deliveries))?;
        self.metered.received(by, deliveries);
        let link = caller.outgoing().add(&batch_hash(deliveries.iter().map(|delivery| &delivery.payload_hash)));
        let messages = deliveries.iter().map(DeliveryHead::from).collect();
        let answer = RecvAnswer { messages, batch: link.number, batch_chain: Hash(&link.hash) };
        let payload = write(Op::Recv, &answer, deliveries.iter().map(|delivery| &delivery.payload), about);
        Ok(Reply::ok(admission.held_until_left(payload)))
    }
}

impl<'a> From<&'a Delivery> for DeliveryHead<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        DeliveryHead {
            msg_id: Id(delivery.msg_id),
            len: delivery.payload.len(),
            ts: delivery.sent_ms,
            idem_key: delivery.idem_key.as_deref(),
            payload_hash: Hash(&delivery.payload_hash),
            hash_chain: Hash(&delivery.hash_chain),
            attrs: AttrsView(&delivery.attrs),
            corr_id: &delivery.corr_id,
            group: delivery.group.as_deref(),
            attempt: delivery.attempt,
            receipt: Shown(delivery.receipt),
            fence: delivery.fence,
            first_received_ts: delivery.first_received_ms,
            until_ts: delivery.until_ms,
            dead: delivery.dead.as_ref().map(DeadView::from),
        }
    }
}

pub(super) fn read_any(payload: &RequestPayload) -> bool {
    payload.head_alone::<RecvHead>().is_ok()
}
