//! What several routes say and ask: messages as they are shown, errors of single items, filters, ranges.

use std::fmt::Display;

use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::types::{Attempt, BreakerState, DeadReason, State};
use svc_mailbox::{DeadInfo, Delivery, Filter, Seen, bounds};
use utoipa::ToSchema;

use super::fields::{AttrsView, Base64, Hash, Id, Key, SoughtAttrs};

/// Why one item of a batch was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ItemError {
    /// The stable code that clients match on.
    code: &'static str,
    /// The HTTP status a request for this item alone would have had.
    status: u16,
    /// What happened.
    detail: String,
    /// When to come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// An item that was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Failed {
    /// Reason it was refused.
    pub error: ItemError,
}

/// A message handed out under a lease.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Message<'a> {
    /// Its id.
    msg_id: Id,
    /// The topic it came from.
    topic: &'a str,
    /// When it was sent: milliseconds since 1970.
    ts: u64,
    /// Its idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    idem_key: Option<&'a str>,
    /// The payload.
    payload_b64: Base64,
    /// The hash of the payload.
    payload_hash: Hash<'a>,
    /// What goes with it.
    attrs: AttrsView<'a>,
    /// The id of the request that sent it.
    corr_id: &'a str,
    /// The tenant or line it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// The shard that holds it.
    shard: u16,
    /// Which delivery this is, from 1.
    attempt: u32,
    /// The hash over topic, time, key, payload hash and attributes.
    hash_chain: Hash<'a>,
    /// What to acknowledge it with.
    #[schema(value_type = String)]
    receipt: Shown<svc_mailbox::Receipt>,
    /// Rises with each delivery: a store can refuse the work of a late consumer by it.
    fence: u32,
    /// When it was first delivered.
    first_received_ts: u64,
    /// What became of earlier deliveries, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<Past<'a>>,
    /// Why it is dead, in a topic of dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<DeadView<'a>>,
}

/// A message looked at without leasing it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SeenMessage<'a> {
    /// Its id.
    msg_id: Id,
    /// The topic it is in.
    topic: &'a str,
    /// When it was sent: milliseconds since 1970.
    ts: u64,
    /// Its idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    idem_key: Option<&'a str>,
    /// The payload.
    payload_b64: Base64,
    /// The hash of the payload.
    payload_hash: Hash<'a>,
    /// What goes with it.
    attrs: AttrsView<'a>,
    /// The id of the request that sent it.
    corr_id: &'a str,
    /// The tenant or line it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// Deliveries so far.
    attempts: u32,
    /// Where it stands.
    state: StateWord,
    /// When that changes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ts: Option<u64>,
    /// Why it is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<DeadView<'a>>,
    /// True if its bytes cannot be read or are not what was sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    damaged: bool,
}

/// A delivery that came to nothing, or the current one.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Past<'a> {
    /// Which delivery, from 1.
    number: u32,
    /// Who took it.
    consumer: &'a str,
    /// When it was taken: milliseconds since 1970.
    leased_ts: u64,
    /// What came of it; empty while it runs.
    outcome: &'a str,
}

/// Why a message is dead.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadView<'a> {
    /// The kind of death.
    reason: ReasonWord,
    /// The topic it was for.
    source: &'a str,
    /// Deliveries it had.
    attempts: u32,
    /// When it died.
    since_ts: u64,
    /// What the last consumer said.
    last_error: &'a str,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StateWord {
    Ready,
    Delayed,
    Leased,
}

/// Why a message is dead, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReasonWord {
    MaxAttempts,
    Expired,
    Integrity,
    Rejected,
}

/// Whether a breaker lets messages out: all of them, one at a time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum BreakerWord {
    Closed,
    HalfOpen,
    Open,
}

/// Which messages are meant: those to which everything given applies.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterFields {
    /// Where it stands.
    state: Option<StateWord>,
    /// Its group.
    group: Option<Key>,
    /// Attributes it has.
    #[serde(default)]
    attrs: SoughtAttrs,
    /// A text that its payload contains.
    payload_contains: Option<String>,
    /// Sent at or after this time.
    sent_after_ms: Option<u64>,
    /// Sent before this time.
    sent_before_ms: Option<u64>,
    /// Why it is dead.
    reason: Option<ReasonWord>,
    /// A text that its last error contains.
    error_contains: Option<String>,
}

/// Serializes as the text that `Display` gives.
#[derive(Debug)]
pub(super) struct Shown<T>(pub T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl From<Error> for ItemError {
    fn from(error: Error) -> Self {
        ItemError {
            code: error.kind.code(),
            status: error.kind.http_status(),
            detail: error.detail.into_owned(),
            retry_after_ms: error.retry_after.map(|wait| wait.as_millis() as u64),
        }
    }
}

impl<'a> From<&'a Delivery> for Message<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        Message {
            msg_id: Id(delivery.msg_id),
            topic: delivery.topic.as_str(),
            ts: delivery.sent_ms,
            idem_key: delivery.idem_key.as_deref(),
            payload_b64: Base64(delivery.payload.clone()),
            payload_hash: Hash(&delivery.payload_hash),
            attrs: AttrsView(&delivery.attrs),
            corr_id: &delivery.corr_id,
            group: delivery.group.as_deref(),
            shard: delivery.shard,
            attempt: delivery.attempt,
            hash_chain: Hash(&delivery.hash_chain),
            receipt: Shown(delivery.receipt),
            fence: delivery.fence,
            first_received_ts: delivery.first_received_ms,
            history: delivery.history.iter().map(Past::from).collect(),
            dead: delivery.dead.as_ref().map(DeadView::from),
        }
    }
}

/// Bytes of so many others in base64.
pub(super) const fn in_base64(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// About how many bytes a message takes when it is written, its payload in base64.
pub(crate) fn written_bytes(delivery: &Delivery) -> usize {
    in_base64(delivery.payload.len()) + head_bytes(delivery)
}

/// About how many bytes all of a message but its payload takes when it is written, escapes included.
pub(super) fn head_bytes(delivery: &Delivery) -> usize {
    let Delivery { attrs, history, idem_key, group, dead, .. } = delivery;
    let attrs = attrs.iter().map(|(name, value)| bounds::json_bytes(name) + bounds::json_bytes(value) + 6);
    let history =
        history.iter().map(|past| bounds::json_bytes(&past.consumer) + bounds::json_bytes(&past.outcome) + 80);
    let keys = [idem_key.as_deref(), group.as_deref()].into_iter().flatten().map(bounds::json_bytes);
    let dead = dead.as_ref().map_or(0, |dead| bounds::json_bytes(&dead.last_error) + 200);
    attrs.chain(history).chain(keys).sum::<usize>() + dead + 640
}

impl<'a> From<&'a Seen> for SeenMessage<'a> {
    fn from(seen: &'a Seen) -> Self {
        SeenMessage {
            msg_id: Id(seen.msg_id),
            topic: seen.topic.as_str(),
            ts: seen.sent_ms,
            idem_key: seen.idem_key.as_deref(),
            payload_b64: Base64(seen.payload.clone()),
            payload_hash: Hash(&seen.payload_hash),
            attrs: AttrsView(&seen.attrs),
            corr_id: &seen.corr_id,
            group: seen.group.as_deref(),
            attempts: seen.attempts,
            state: seen.state.into(),
            due_ts: seen.due_ms,
            dead: seen.dead.as_ref().map(DeadView::from),
            damaged: seen.damaged,
        }
    }
}

impl<'a> From<&'a Attempt> for Past<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Past {
            number: attempt.number,
            consumer: &attempt.consumer,
            leased_ts: attempt.leased_ms,
            outcome: &attempt.outcome,
        }
    }
}

impl<'a> From<&'a DeadInfo> for DeadView<'a> {
    fn from(dead: &'a DeadInfo) -> Self {
        DeadView {
            reason: dead.reason.into(),
            source: dead.source.as_str(),
            attempts: dead.attempts,
            since_ts: dead.since_ms,
            last_error: &dead.last_error,
        }
    }
}

/// Words of ours for words of the mailbox, both ways.
macro_rules! same_words {
    ($ours:ident, $theirs:ident: $($word:ident)*) => {
        impl From<$theirs> for $ours {
            fn from(word: $theirs) -> Self {
                match word { $($theirs::$word => $ours::$word,)* }
            }
        }
        impl From<$ours> for $theirs {
            fn from(word: $ours) -> Self {
                match word { $($ours::$word => $theirs::$word,)* }
            }
        }
    };
}

same_words!(StateWord, State: Ready Delayed Leased);
same_words!(ReasonWord, DeadReason: MaxAttempts Expired Integrity Rejected);
same_words!(BreakerWord, BreakerState: Closed HalfOpen Open);

impl From<FilterFields> for Filter {
    fn from(fields: FilterFields) -> Self {
        Filter {
            state: fields.state.map(State::from),
            group: fields.group.map(|group| group.0),
            attrs: fields.attrs.0.into_iter().collect(),
            payload_contains: fields.payload_contains,
            sent_after_ms: fields.sent_after_ms,
            sent_before_ms: fields.sent_before_ms,
            reason: fields.reason.map(DeadReason::from),
            error_contains: fields.error_contains,
        }
    }
}

/// Number of items in one page: the default if none was asked for, refused if above `most`.
pub(super) fn check_limit(limit: Option<u64>, default: usize, most: usize) -> Result<usize, Error> {
    let Some(limit) = limit else { return Ok(default) };
    bounds::check_range("limit", limit, 1..=most as u64)?;
    Ok(limit as usize)
}

/// The mailbox speaks of the payload; here its field has another name.
pub(super) fn name_payload(mut error: Error) -> Error {
    if let Some(rest) = error.detail.strip_prefix("payload:") {
        error.detail = format!("payload_b64:{rest}").into();
    }
    error
}

/// Text in a path or a query that stands for something.
pub(super) fn parse<T: std::str::FromStr<Err = Error>>(field: &str, text: &str) -> Result<T, Error> {
    text.parse().map_err(|error: Error| {
        let is_named = error.kind != Kind::Schema || error.detail.starts_with(field);
        if is_named { error } else { Error { detail: format!("{field}: {}", error.detail).into(), ..error } }
    })
}

#[cfg(test)]
mod tests;
