//! The mailbox: messages in batches, requests beside each other, bodies held to their hashes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use oap::AppId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};

use crate::client::Connection;
use crate::error::{Error, Problem, Refusal};
use crate::routes::Purpose;

/// Bytes before the head of a payload: operation, length of the head.
const PREFIX_BYTES: usize = 5;

/// Batches that may come out of order before one that is missing counts as given up.
const BATCHES_AHEAD_MAX: usize = 1024;

#[derive(Clone, Copy)]
enum Op {
    Send = 1,
    Recv = 2,
    Ack = 3,
    Nack = 4,
    Extend = 5,
}

/// The mailbox of a node. Clones share the session; requests of all of them are on their way at once.
#[derive(Clone)]
pub struct Mailbox {
    pub(crate) connection: Arc<Connection>,
}

/// The chains over the batches of one session, in both directions.
#[derive(Default)]
pub(crate) struct SessionChains {
    received: Mutex<ReceivedChain>,
    sent: Arc<tokio::sync::Mutex<[u8; 32]>>,
}

/// A batch that continues the chain of those that were sent, should the node take it. Holds the chain until then, so
/// that the next one goes on from where the node is, whoever still waits for this one.
pub(crate) struct ChainStep {
    chain: OwnedMutexGuard<[u8; 32]>,
    next: [u8; 32],
}

impl ChainStep {
    /// Whether the node has taken the batch is known.
    pub(crate) fn settle(&mut self, is_taken: bool) {
        if is_taken {
            *self.chain = self.next;
        }
    }
}

/// A message to be sent.
#[derive(Clone, Debug, Default)]
pub struct OutgoingMessage {
    /// What is sent.
    pub body: Bytes,
    /// Key under which a second one is a duplicate.
    pub idem_key: Option<String>,
    /// Group within which messages stay in order.
    pub group: Option<String>,
    /// Attributes.
    pub attrs: BTreeMap<String, String>,
    /// Milliseconds before it can be received.
    pub delay_ms: Option<u64>,
}

/// A message that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Sent {
    /// Its id.
    pub msg_id: String,
    /// Whether one with the same key was there already.
    #[serde(default)]
    pub duplicate: bool,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its id.
    pub msg_id: String,
    /// When it was sent, milliseconds since 1970.
    pub ts: u64,
    /// How many times it was received, this time included.
    pub attempt: u32,
    /// Proof of the lease; acknowledges or extends it.
    pub receipt: String,
    /// Number that grows with each delivery, against late writers.
    pub fence: u32,
    /// When the lease ends, milliseconds since 1970.
    pub until_ts: u64,
    /// Its attributes.
    pub attrs: BTreeMap<String, String>,
    /// Its group.
    pub group: Option<String>,
    /// Its key.
    pub idem_key: Option<String>,
    /// What was sent; it has the hash that came with it.
    pub body: Bytes,
}

#[derive(Serialize)]
struct SendHead<'a> {
    topic: &'a str,
    messages: Vec<MessageHead<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_chain: Option<String>,
}

#[derive(Serialize)]
struct MessageHead<'a> {
    len: usize,
    payload_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    idem_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attrs: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Results<T> {
    results: Vec<OrRefused<T>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OrRefused<T> {
    Refused { error: Problem },
    Done(T),
}

#[derive(Serialize)]
struct RecvHead<'a> {
    topic: &'a str,
    max_messages: usize,
    wait_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_ms: Option<u64>,
}

#[derive(Deserialize)]
struct RecvAnswer {
    messages: Vec<DeliveryHead>,
    batch: u64,
    batch_chain: String,
}

#[derive(Deserialize)]
struct DeliveryHead {
    msg_id: String,
    len: usize,
    ts: u64,
    payload_hash: String,
    idem_key: Option<String>,
    group: Option<String>,
    #[serde(default)]
    attrs: BTreeMap<String, String>,
    attempt: u32,
    receipt: String,
    fence: u32,
    until_ts: u64,
}

#[derive(Serialize)]
struct SettleHead<'a, S> {
    receipts: &'a [S],
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct Extended {
    until_ts: u64,
}

/// The chain over what the node sent on this session. Answers may come in another order than they were made.
#[derive(Default)]
struct ReceivedChain {
    /// Batches that are in the chain.
    number: u64,
    hash: [u8; 32],
    /// Batches that came before an earlier one: number, hash of the batch, hash of the chain with it.
    ahead: BTreeMap<u64, ([u8; 32], String)>,
    is_broken: bool,
}

impl Mailbox {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Mailbox { connection }
    }

    /// Sends messages to a topic as one batch, each with its hash; one outcome for each, in order. Batches of several
    /// callers are on their way at once.
    pub async fn send_batch(
        &self,
        topic: &str,
        messages: &[OutgoingMessage],
    ) -> Result<Vec<Result<Sent, Refusal>>, Error> {
        let payload = send_payload(topic, messages, None);
        outcomes(&self.ask(payload).await?)
    }

    /// The same, chained to the batches before it on this session: one that is lost, doubled or changed on the way
    /// shows at the next. One chained batch is on its way at a time, because the chain goes on only from one that was
    /// taken. A call that is dropped does not break the chain; its batch may have been sent.
    pub async fn send_batch_chained(
        &self,
        topic: &str,
        messages: &[OutgoingMessage],
    ) -> Result<Vec<Result<Sent, Refusal>>, Error> {
        let chain = Arc::clone(&self.connection.chains.sent).lock_owned().await;
        let next = chained(&chain, &batch_hash(messages.iter().map(|message| *blake3::hash(&message.body).as_bytes())));
        let payload = send_payload(topic, messages, Some(&next));
        let step = Purpose::Chained(ChainStep { chain, next });
        let asked = self.connection.ask(AppId::MAILBOX, payload, step).await?;
        outcomes(&asked.answer().await?)
    }

    /// Receives at most so many messages; waits for the first one no longer than this. The lease is the topic's unless
    /// one is given. A call that is dropped takes no messages: the node is told, and what is on its way nevertheless is
    /// given back.
    pub async fn recv(
        &self,
        topic: &str,
        max_messages: usize,
        wait: Duration,
        visibility: Option<Duration>,
    ) -> Result<Vec<Received>, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let visibility_ms = visibility.map(millis);
        let head = RecvHead { topic, max_messages, wait_ms: millis(wait), visibility_ms };
        let asked = self.connection.ask(AppId::MAILBOX, payload(Op::Recv, &head, []), Purpose::Receive).await?;
        self.take(&asked.answer().await?)
    }

    /// The messages of an answer, held to their hashes and their chain.
    fn take(&self, answer: &Bytes) -> Result<Vec<Received>, Error> {
        let (head, bodies) = split::<RecvAnswer>(answer)?;
        let (messages, hashes) = received(head.messages, bodies)?;
        let mut chain = self.connection.chains.received.lock().unwrap_or_else(PoisonError::into_inner);
        chain.add(head.batch, batch_hash(hashes), head.batch_chain)?;
        Ok(messages)
    }

    /// Gives back what the answer to a receive has brought that nobody waits for: one of a node that does not know
    /// cancels, or one that was on its way already.
    pub(crate) async fn give_back(&self, answer: &Bytes, permit: OwnedSemaphorePermit) {
        let Ok((RecvAnswer { messages, .. }, _)) = split(answer) else { return };
        // The chain goes on with it. If it is broken, the next one who receives is told.
        let _ = self.take(answer);
        if messages.is_empty() {
            return;
        }
        let receipts: Vec<String> = messages.into_iter().map(|message| message.receipt).collect();
        let (delay_ms, reason) = (Some(0), Some("its receiver had gone"));
        let nack = payload(Op::Nack, &SettleHead { receipts: &receipts, visibility_ms: None, delay_ms, reason }, []);
        let nacked = match self.connection.ask_in_turn(permit, AppId::MAILBOX, nack, Purpose::Plain).await {
            Ok(asked) => asked.answer().await,
            Err(error) => Err(error),
        };
        // Who may receive and acknowledge may not always nack, but can end a lease.
        if matches!(nacked, Err(Error::Refused(Refusal { status: 403, .. }))) {
            let _ = self.extend(&receipts, Duration::ZERO).await;
        }
    }

    /// Acknowledges deliveries by their receipts; one outcome for each, in order.
    pub async fn ack(&self, receipts: &[impl AsRef<str> + Serialize]) -> Result<Vec<Result<(), Refusal>>, Error> {
        self.settle(Op::Ack, &SettleHead { receipts, visibility_ms: None, delay_ms: None, reason: None }).await
    }

    /// Gives deliveries back before their lease ends; one outcome for each, in order.
    pub async fn nack(
        &self,
        receipts: &[impl AsRef<str> + Serialize],
        reason: &str,
    ) -> Result<Vec<Result<(), Refusal>>, Error> {
        self.settle(Op::Nack, &SettleHead { receipts, visibility_ms: None, delay_ms: None, reason: Some(reason) }).await
    }

    /// Extends leases to this time from now; the new ends, in milliseconds since 1970, in order.
    pub async fn extend(
        &self,
        receipts: &[impl AsRef<str> + Serialize],
        visibility: Duration,
    ) -> Result<Vec<Result<u64, Refusal>>, Error> {
        let visibility_ms = Some(u64::try_from(visibility.as_millis()).unwrap_or(u64::MAX));
        let head = SettleHead { receipts, visibility_ms, delay_ms: None, reason: None };
        let answer = self.ask(payload(Op::Extend, &head, [])).await?;
        let outcomes: Vec<Result<Extended, Refusal>> = outcomes(&answer)?;
        Ok(outcomes.into_iter().map(|outcome| outcome.map(|extended| extended.until_ts)).collect())
    }

    async fn settle<S: Serialize>(&self, op: Op, head: &SettleHead<'_, S>) -> Result<Vec<Result<(), Refusal>>, Error> {
        let answer = self.ask(payload(op, head, [])).await?;
        let outcomes: Vec<Result<serde::de::IgnoredAny, Refusal>> = outcomes(&answer)?;
        Ok(outcomes.into_iter().map(|outcome| outcome.map(drop)).collect())
    }

    async fn ask(&self, payload: Bytes) -> Result<Bytes, Error> {
        self.connection.ask(AppId::MAILBOX, payload, Purpose::Plain).await?.answer().await
    }
}

fn send_payload(topic: &str, messages: &[OutgoingMessage], chain: Option<&[u8; 32]>) -> Bytes {
    let messages_head = messages.iter().map(message_head).collect();
    let head = SendHead { topic, messages: messages_head, batch_chain: chain.map(hash_text) };
    payload(Op::Send, &head, messages.iter().map(|message| &message.body))
}

fn message_head(message: &OutgoingMessage) -> MessageHead<'_> {
    let OutgoingMessage { body, idem_key, group, attrs, delay_ms } = message;
    let (idem_key, group) = (idem_key.as_deref(), group.as_deref());
    let payload_hash = hash_text(blake3::hash(body).as_bytes());
    MessageHead { len: body.len(), payload_hash, idem_key, group, attrs, delay_ms: *delay_ms }
}

fn payload<'a>(op: Op, head: &impl Serialize, bodies: impl IntoIterator<Item = &'a Bytes>) -> Bytes {
    let head = serde_json::to_vec(head).expect("texts, numbers and lists of them can be written");
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + head.len());
    out.put_u8(op as u8);
    // A head of 4 GiB would not fit a frame by far, and is refused as one.
    out.put_u32(u32::try_from(head.len()).unwrap_or(u32::MAX));
    out.put_slice(&head);
    bodies.into_iter().for_each(|body| out.put_slice(body));
    out.freeze()
}

/// The head of an answer, and what follows it.
fn split<T: DeserializeOwned>(answer: &Bytes) -> Result<(T, Bytes), Error> {
    let short = Error::Protocol("an answer that is shorter than it says");
    let Some([_, a, b, c, d]) = answer.first_chunk::<PREFIX_BYTES>() else { return Err(short) };
    let head_len = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
    let end = PREFIX_BYTES.saturating_add(head_len);
    let head = answer.get(PREFIX_BYTES..end).ok_or(short)?;
    let head = serde_json::from_slice(head).map_err(|_| Error::Protocol("the head of an answer"))?;
    Ok((head, answer.slice(end..)))
}

fn outcomes<T: DeserializeOwned>(answer: &Bytes) -> Result<Vec<Result<T, Refusal>>, Error> {
    let (Results { results }, _) = split::<Results<T>>(answer)?;
    let outcome = |result| match result {
        OrRefused::Refused { error } => Err(Refusal::from(error)),
        OrRefused::Done(done) => Ok(done),
    };
    Ok(results.into_iter().map(outcome).collect())
}

/// Gives each head its body, and holds the body to its hash.
fn received(heads: Vec<DeliveryHead>, mut bodies: Bytes) -> Result<(Vec<Received>, Vec<[u8; 32]>), Error> {
    let (mut messages, mut hashes) = (Vec::with_capacity(heads.len()), Vec::with_capacity(heads.len()));
    for head in heads {
        if head.len > bodies.len() {
            return Err(Error::Protocol("bodies that are shorter than their heads say"));
        }
        let body = bodies.split_to(head.len);
        let hash = *blake3::hash(&body).as_bytes();
        if hash_text(&hash) != head.payload_hash {
            return Err(Error::Integrity("a body does not have the hash that came with it"));
        }
        hashes.push(hash);
        let DeliveryHead { msg_id, ts, attempt, receipt, fence, until_ts, attrs, group, idem_key, .. } = head;
        messages.push(Received { msg_id, ts, attempt, receipt, fence, until_ts, attrs, group, idem_key, body });
    }
    Ok((messages, hashes))
}

fn batch_hash(hashes: impl IntoIterator<Item = [u8; 32]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for hash in hashes {
        hasher.update(&hash);
    }
    *hasher.finalize().as_bytes()
}

fn chained(before: &[u8; 32], batch: &[u8; 32]) -> [u8; 32] {
    *blake3::Hasher::new().update(before).update(batch).finalize().as_bytes()
}

fn hash_text(hash: &[u8; 32]) -> String {
    format!("b3:{}", blake3::Hash::from_bytes(*hash).to_hex())
}

impl ReceivedChain {
    /// Adds a batch, and those that waited for it. An answer that nobody waited for leaves a hole, which nothing can be
    /// said about: after so many further batches the chain goes on behind it.
    fn add(&mut self, number: u64, batch: [u8; 32], chain: String) -> Result<(), Error> {
        self.ahead.insert(number, (batch, chain));
        if self.ahead.len() > BATCHES_AHEAD_MAX
            && let Some((number, (_, chain))) = self.ahead.pop_first()
        {
            let behind = chain.strip_prefix("b3:").and_then(|digits| blake3::Hash::from_hex(digits).ok());
            self.number = number;
            self.hash = *behind.ok_or(Error::Protocol("a chain that is no hash"))?.as_bytes();
        }
        while let Some((batch, chain)) = self.ahead.remove(&(self.number + 1)) {
            self.hash = chained(&self.hash, &batch);
            self.number += 1;
            self.is_broken |= hash_text(&self.hash) != chain;
        }
        match self.is_broken {
            true => Err(Error::Integrity("a batch does not continue the one before it")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches as a node would send them: number, hash, chain.
    fn batches(count: u64) -> Vec<(u64, [u8; 32], String)> {
        let mut hash = [0; 32];
        let mut batch = |number: u64| {
            let batch = *blake3::hash(&number.to_be_bytes()).as_bytes();
            hash = chained(&hash, &batch);
            (number, batch, hash_text(&hash))
        };
        (1..=count).map(&mut batch).collect()
    }

    fn add(chain: &mut ReceivedChain, (number, batch, text): &(u64, [u8; 32], String)) -> bool {
        chain.add(*number, *batch, text.clone()).is_ok()
    }

    #[test]
    fn batches_are_checked_in_their_order_however_they_come() {
        let batches = batches(6);
        for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [1, 0, 3, 2, 5, 4]] {
            let mut chain = ReceivedChain::default();
            for place in order {
                assert!(add(&mut chain, &batches[place]), "{order:?} at {place}");
            }
            assert_eq!(chain.number, 6);
        }
    }

    #[test]
    fn a_changed_batch_breaks_the_chain_for_good() {
        let mut batches = batches(3);
        batches[1].1 = [8; 32];
        let mut chain = ReceivedChain::default();
        let outcomes = batches.iter().map(|batch| add(&mut chain, batch)).collect::<Vec<bool>>();
        assert_eq!(outcomes, [true, false, false]);
    }

    #[test]
    fn a_hole_is_passed_over_in_the_end() {
        let batches = batches(3000);
        let mut chain = ReceivedChain::default();
        for batch in batches.iter().filter(|(number, _, _)| *number != 10) {
            assert!(add(&mut chain, batch), "{}", batch.0);
        }
        assert_eq!((chain.number, chain.ahead.len()), (3000, 0));
        assert!(!add(&mut chain, &(3001, [0; 32], batches[0].2.clone())), "behind the hole it is checked again");
    }
}
