//! Ending and prolonging leases, by receipts.

use std::sync::Arc;

use ron_auth::Action;
use ron_types::Error;
use ron_types::limits::{self, mailbox as mailbox_limits};
use serde::{Deserialize, Serialize};
use svc_mailbox::{NackOutcome, bounds, capabilities};

use super::payload::{AtMost, Op, RequestPayload, write};
use super::{Known, Shared, deadline};
use crate::frames::{Answer, Reply};
use crate::mailbox::dto::ItemError;
use crate::mailbox::fields::Text;
use crate::mailbox::settle::{Purpose, ReadReceipts};

type Receipts<'a> = AtMost<Text<'a>, { mailbox_limits::CALL_ITEMS_MAX }>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AckHead<'a> {
    #[serde(borrow)]
    receipts: Receipts<'a>,
    #[serde(borrow)]
    min_durability: Option<&'a str>,
    deadline_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NackHead<'a> {
    #[serde(borrow)]
    receipts: Receipts<'a>,
    #[serde(default)]
    reason: String,
    delay_ms: Option<u64>,
    #[serde(default)]
    reject: bool,
    #[serde(borrow)]
    min_durability: Option<&'a str>,
    deadline_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtendHead<'a> {
    #[serde(borrow)]
    receipts: Receipts<'a>,
    visibility_ms: u64,
    #[serde(borrow)]
    min_durability: Option<&'a str>,
    deadline_ms: Option<u64>,
}

#[derive(Serialize)]
struct SettleAnswer {
    durability: &'static str,
    results: Vec<Settled>,
}

/// What became of one receipt.
#[derive(Serialize)]
#[serde(untagged)]
enum Settled {
    Done { ok: bool },
    Extended { until_ts: u64 },
    Requeued { due_ts: u64 },
    Died { dead: bool },
    Refused { error: ItemError },
}

pub(super) fn ack(known: &Known<'_>, payload: &RequestPayload) -> Result<Answer, Reply> {
    let head: AckHead<'_> = payload.head_alone()?;
    known.shared.require(head.min_durability)?;
    let deadline = deadline(head.deadline_ms, limits::REQUEST_DEADLINE)?;
    let read = known.receipts((capabilities::ACK, Purpose::End), &head.receipts)?;
    let shared = Arc::clone(known.shared);
    Ok(Answer::begin(async move {
        let outcomes = shared.mailbox.ack(read.good(), deadline).await;
        read.by.iter().for_each(|by| shared.metered.acknowledged(by, &outcomes));
        shared.settled(Op::Ack, read, outcomes, |()| Settled::Done { ok: true })
    }))
}

pub(super) fn nack(known: &Known<'_>, payload: &RequestPayload) -> Result<Answer, Reply> {
    let head: NackHead<'_> = payload.head_alone()?;
    known.shared.require(head.min_durability)?;
    let deadline = deadline(head.deadline_ms, limits::REQUEST_DEADLINE)?;
    bounds::check_nack_delay(head.delay_ms)?;
    let read = known.receipts((capabilities::NACK, Purpose::End), &head.receipts)?;
    let (shared, NackHead { reason, delay_ms, reject, .. }) = (Arc::clone(known.shared), head);
    Ok(Answer::begin(async move {
        let outcomes = shared.mailbox.nack(read.good(), &reason, delay_ms, reject, deadline).await;
        shared.settled(Op::Nack, read, outcomes, |nacked| match nacked {
            NackOutcome::Requeued { due_ms } => Settled::Requeued { due_ts: due_ms },
            NackOutcome::Died => Settled::Died { dead: true },
        })
    }))
}

pub(super) fn extend(known: &Known<'_>, payload: &RequestPayload) -> Result<Answer, Reply> {
    let head: ExtendHead<'_> = payload.head_alone()?;
    known.shared.require(head.min_durability)?;
    let deadline = deadline(head.deadline_ms, limits::REQUEST_DEADLINE)?;
    let purpose = Purpose::of_extension(head.visibility_ms);
    let read = known.receipts((capabilities::ACK, purpose), &head.receipts)?;
    let (shared, visibility_ms) = (Arc::clone(known.shared), head.visibility_ms);
    Ok(Answer::begin(async move {
        let outcomes = shared.mailbox.extend(read.good(), visibility_ms, deadline).await;
        shared.settled(Op::Extend, read, outcomes, |until_ts| Settled::Extended { until_ts })
    }))
}

impl Known<'_> {
    fn receipts(&self, (action, purpose): (Action, Purpose), texts: &Receipts<'_>) -> Result<ReadReceipts, Error> {
        let Shared { mailbox, authority, .. } = &**self.shared;
        let texts = texts.0.iter().map(|text| &*text.0);
        let read = ReadReceipts::read(mailbox, texts, |topic, leased_ms| {
            authority.allows(&self.bearer, action, topic, purpose.time_of_request(leased_ms))
        })?;
        // Nothing was asked of the authority: the token may have been revoked since the session began.
        if read.by.is_none() {
            self.caller.recognize(authority, self.request)?;
        }
        Ok(read)
    }
}

impl Shared {
    fn settled<T>(
        &self,
        op: Op,
        read: ReadReceipts,
        outcomes: Vec<Result<T, Error>>,
        done: impl Fn(T) -> Settled,
    ) -> Reply {
        let refused = |error: Error| Settled::Refused { error: error.into() };
        let results: Vec<Settled> =
            read.outcomes(outcomes).map(|outcome| outcome.map_or_else(refused, &done)).collect();
        let about = 64 + 32 * results.len();
        let answer = SettleAnswer { durability: self.mailbox.durability().as_str(), results };
        Reply::ok(write(op, &answer, [], about))
    }
}

pub(super) fn read_any(payload: &RequestPayload) -> bool {
    let heads = [
        payload.head_alone::<AckHead<'_>>().is_ok(),
        payload.head_alone::<NackHead<'_>>().is_ok(),
        payload.head_alone::<ExtendHead<'_>>().is_ok(),
    ];
    heads.contains(&true)
}
