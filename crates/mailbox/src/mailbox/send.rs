//! Sending: one message, or many of one topic.

use std::sync::Arc;

use bytes::Bytes;
use ron_auth::Subject;
use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::{Durability, Mailbox};
use crate::bounds;
use crate::capabilities::PAYLOAD_BYTES_MAX;
use crate::envelope::{Envelope, payload_hash};
use crate::job::Turn;
use crate::key_shares::SendRoom;
use crate::shard::{Key, Send};
use crate::topics::Topic;
use crate::types::{Dedup, MessageId, PartKey, Seq, TopicName};

/// A message to be sent.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// Sending it again with the same key within the replay window has no effect.
    pub idem_key: Option<String>,
    /// What makes two messages of the same key the same.
    pub dedup: Dedup,
    /// Its group: a line of its own in first-in-first-out topics, a tenant in others.
    pub group: Option<String>,
    /// Attributes in order.
    pub attrs: Vec<(String, String)>,
    /// Payload of the message.
    pub payload: Bytes,
    /// Milliseconds before it may be delivered; none means as the topic says.
    pub delay_ms: Option<u64>,
    /// What ties it to other messages and requests.
    pub corr_id: String,
    /// The topic must be there: it is not made for this message, whatever the node's rules say.
    pub existing_only: bool,
}

impl Outgoing {
    /// Bytes it counts with: payload and attributes.
    pub fn bytes(&self) -> usize {
        bounds::counted_bytes(&self.payload, &self.attrs)
    }
}

/// Proof that a message was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipted {
    /// The message's id: the first one's, for a duplicate.
    pub msg_id: MessageId,
    /// The key was known: nothing new was taken in.
    pub duplicate: bool,
    /// How safe it is.
    pub durability: Durability,
    /// The message's number.
    pub seq: Seq,
}

type Outcome = Result<Receipted, Error>;
/// Outcomes of some messages of a batch, each with its place in the batch.
type Placed = Vec<(usize, Outcome)>;

/// A message ready for its shard.
struct Prepared {
    part: PartKey,
    group: Option<String>,
    key: Option<Key>,
    dedup: Dedup,
    delay_ms: Option<u64>,
    body: Bytes,
    replay_window_ms: u64,
}

/// Why messages are refused for want of memory, if they are.
struct Refusals {
    without_key: Option<Error>,
    /// What was sent before takes no room: a key that is known is answered all the same.
    with_new_key: Option<Error>,
}

impl Mailbox {
    /// Sends one message.
    pub async fn send(
        &self,
        by: &Subject,
        topic: &TopicName,
        message: Outgoing,
        deadline: Deadline,
    ) -> Result<Receipted, Error> {
        let topic = self.topic_for_send(by, topic, message.existing_only, deadline).await?;
        let sent = self.operation(|| self.begin_send(by, &topic, message, deadline))?.await??;
        Ok(Receipted { durability: self.durability(), ..sent })
    }

    /// Prepares a message and asks its shard to take it in.
    fn begin_send(
        &self,
        by: &Subject,
        topic: &Topic,
        message: Outgoing,
        deadline: Deadline,
    ) -> Result<impl Future<Output = Result<Result<Receipted, Error>, Error>> + use<>, Error> {
        super::in_time(deadline)?;
        let room = self.engine.room_for_sends(by, message.idem_key.is_some())?;
        self.engine.admit(by, 1)?;
        let prepared = prepare(topic, by, message)?;
        let index = self.engine.route(prepared.part)?;
        let by = Arc::clone(&by.name);
        Ok(self.begin_on_shard(index, prepared.body.len(), deadline, move |turn| take_in(turn, &by, prepared, room)))
    }

    /// Sends up to [`limits::CALL_ITEMS_MAX`](ron_types::limits::mailbox::CALL_ITEMS_MAX) messages of one topic; each
    /// has its own outcome, in order.
    pub async fn send_batch(
        &self,
        by: &Subject,
        topic: &TopicName,
        messages: Vec<Outgoing>,
        deadline: Deadline,
    ) -> Vec<Result<Receipted, Error>> {
        let count = messages.len();
        let all = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
        if let Err(error) = bounds::check_call("messages", count) {
            return all(error);
        }
        let existing_only = messages.iter().any(|message| message.existing_only);
        let topic = match self.topic_for_send(by, topic, existing_only, deadline).await {
            Ok(topic) => topic,
            Err(error) => return all(error),
        };
        let begun = self.operation(|| {
            super::in_time(deadline)?;
            let room = self.engine.room_for_sends(by, messages.iter().any(|message| message.idem_key.is_some()))?;
            self.engine.admit(by, count as u32)?;
            Ok(self.begin_batch(by, &topic, messages, &room, deadline))
        });
        let (mut outcomes, sends) = match begun {
            Ok(begun) => begun,
            Err(error) => return all(error),
        };
        for (place, outcome) in futures_util::future::join_all(sends).await.into_iter().flatten() {
            outcomes[place] = Some(outcome);
        }
        let durability = self.durability();
        let outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(|| Err(super::lost())).map(|sent| Receipted { durability, ..sent }));
        outcomes.collect()
    }

    /// Prepares messages and asks their shards, one job for each partition. Outcomes that are known at once, and the
    /// waits for the others.
    fn begin_batch(
        &self,
        by: &Subject,
        topic: &Topic,
        messages: Vec<Outgoing>,
        room: &SendRoom,
        deadline: Deadline,
    ) -> (Vec<Option<Outcome>>, Vec<impl Future<Output = Placed> + use<>>) {
        let mut outcomes: Vec<Option<Outcome>> = messages.iter().map(|_| None).collect();
        let mut by_part: Vec<(PartKey, Vec<(usize, Prepared)>)> = Vec::new();
        for (place, message) in messages.into_iter().enumerate() {
            match prepare(topic, by, message) {
                Err(error) => outcomes[place] = Some(Err(error)),
                Ok(prepared) => match by_part.iter_mut().find(|(part, _)| *part == prepared.part) {
                    Some((_, group)) => group.push((place, prepared)),
                    None => by_part.push((prepared.part, vec![(place, prepared)])),
                },
            }
        }
        let sends = by_part.into_iter();
        let begin = |(part, group)| self.begin_send_to_part(part, &by.name, group, room.clone(), deadline);
        let sends = sends.map(begin).collect();
        (outcomes, sends)
    }

    fn begin_send_to_part(
        &self,
        part: PartKey,
        by: &Arc<str>,
        group: Vec<(usize, Prepared)>,
        room: SendRoom,
        deadline: Deadline,
    ) -> impl Future<Output = Placed> + use<> {
        let places: Vec<usize> = group.iter().map(|(place, _)| *place).collect();
        let bytes = group.iter().map(|(_, prepared)| prepared.body.len()).sum();
        let by = Arc::clone(by);
        let work = move |turn: &mut Turn<'_>| -> Vec<Outcome> {
            if let Err(error) = turn.enter(part) {
                return group.iter().map(|_| Err(error.clone())).collect();
            }
            let refusals = Refusals::of(turn, part, room);
            group.into_iter().map(|(_, prepared)| put_in(turn, &by, prepared, &refusals)).collect()
        };
        let sent = self.engine.route(part).map(|index| self.begin_on_shard(index, bytes, deadline, work));
        async move {
            let sent = match sent {
                Ok(sent) => sent.await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(outcomes) => places.into_iter().zip(outcomes).collect(),
                Err(error) => places.into_iter().map(|place| (place, Err(error.clone()))).collect(),
            }
        }
    }

    async fn topic_for_send(
        &self,
        by: &Subject,
        name: &TopicName,
        existing_only: bool,
        deadline: Deadline,
    ) -> Result<Arc<Topic>, Error> {
        if let Some(topic) = self.engine.topics.get(name) {
            return Ok(topic);
        }
        if existing_only || !self.engine.live.get().value.auto_create {
            return self.engine.topics.expect(name);
        }
        // Boxed, because sends that find their topic need not carry the room for it.
        Box::pin(self.topic_made(by, name, deadline)).await
    }

    async fn topic_made(&self, by: &Subject, name: &TopicName, deadline: Deadline) -> Result<Arc<Topic>, Error> {
        let defaults = self.default_settings();
        match self.make_topic(Some(by), name, defaults, deadline).await {
            Ok((topic, _)) => Ok(topic),
            // Somebody else may have made it just now, with other settings.
            Err(error) if error.kind == Kind::Conflict => self.engine.topics.expect(name),
            Err(error) => Err(error),
        }
    }
}

/// On the shard's turn.
fn take_in(turn: &mut Turn<'_>, by: &Arc<str>, prepared: Prepared, room: SendRoom) -> Result<Receipted, Error> {
    turn.enter(prepared.part)?;
    let refusals = Refusals::of(turn, prepared.part, room);
    put_in(turn, by, prepared, &refusals)
}

impl Refusals {
    /// What a partition refuses for want of memory.
    fn of(turn: &mut Turn<'_>, part: PartKey, SendRoom { memory, keys }: SendRoom) -> Refusals {
        let memory = memory.and_then(|free| turn.shard.admit_memory(part, free)).err();
        let keys = keys.and_then(|keys| keys.and_then(|free| turn.shard.admit_keys(turn.now, part, free)).err());
        Refusals { without_key: memory.clone(), with_new_key: memory.or(keys) }
    }
}

/// Where its partition is known to belong.
fn put_in(turn: &mut Turn<'_>, by: &Arc<str>, prepared: Prepared, refusals: &Refusals) -> Result<Receipted, Error> {
    let now = turn.now;
    let send = Send {
        part: prepared.part,
        group: prepared.group.as_deref(),
        key: prepared.key,
        dedup: prepared.dedup,
        delay_ms: prepared.delay_ms,
        sent_ms: now,
        seq: turn.engine.numbers.next(),
        body: prepared.body,
    };
    let has_key = send.key.is_some();
    let sent = match if has_key { &refusals.with_new_key } else { &refusals.without_key } {
        None => turn.shard.send(now, turn.journal, send)?,
        Some(refusal) => turn.shard.sent_before(now, &send)?.ok_or_else(|| refusal.clone())?,
    };
    if !sent.duplicate {
        turn.engine.origins.note(sent.seq, prepared.part);
    }
    if has_key && !sent.duplicate {
        turn.engine.key_shares.add(by, now, prepared.replay_window_ms);
    }
    let msg_id = turn.engine.secret.message_id(sent.sent_ms, sent.seq);
    // How safe it is, the caller knows.
    Ok(Receipted { msg_id, duplicate: sent.duplicate, durability: Durability::Ram, seq: sent.seq })
}

fn prepare(topic: &Topic, by: &Subject, mut message: Outgoing) -> Result<Prepared, Error> {
    bounds::check_payload(message.payload.len(), topic.settings.payload_bytes_max.into())?;
    bounds::check_message(message.bytes(), by.limit(PAYLOAD_BYTES_MAX))?;
    bounds::check_key("idem_key", message.idem_key.as_deref())?;
    bounds::check_key("group", message.group.as_deref())?;
    bounds::check_attributes(&message.attrs)?;
    bounds::check_delay(message.delay_ms.unwrap_or(0), topic.settings.retention_ms)?;
    let hash = payload_hash(&message.payload);
    let key = message.idem_key.as_deref().map(|key| Key { hash: key_hash(key, &message), payload: narrow(&hash) });
    let part = PartKey { topic: topic.id, partition: partition(topic, &message, key, &hash) };
    let envelope = Envelope {
        idem_key: message.idem_key.as_deref(),
        corr_id: Some(message.corr_id.as_str()).filter(|id| !id.is_empty()),
        attrs: message.attrs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        payload_hash: hash,
        payload: std::mem::take(&mut message.payload),
    };
    let body = envelope.encode();
    let Outgoing { group, dedup, delay_ms, .. } = message;
    Ok(Prepared { part, group, key, dedup, delay_ms, body, replay_window_ms: topic.settings.replay_window_ms })
}

/// What a key is known by.
fn key_hash(key: &str, message: &Outgoing) -> u128 {
    let group = match message.dedup {
        Dedup::Payload | Dedup::Topic => return wide(blake3::hash(key.as_bytes())),
        Dedup::Group => message.group.as_deref().unwrap_or_default(),
    };
    // No key has the byte between them in it, so no key alone has the hash of a key and a group.
    let mut hasher = blake3::Hasher::new();
    hasher.update(key.as_bytes()).update(&[0]).update(group.as_bytes());
    wide(hasher.finalize())
}

/// The same group, or else the same key, always meets the same partition; everything else is spread by its content.
fn partition(topic: &Topic, message: &Outgoing, key: Option<Key>, hash: &[u8; 32]) -> u16 {
    let partitions = topic.settings.partitions.max(1);
    if partitions == 1 {
        return 0;
    }
    let spread = match (&message.group, key) {
        (Some(group), _) => return partition_of_group(topic, group),
        (None, Some(key)) => key.hash as u64,
        (None, None) => narrow(hash) ^ crate::random::draw(),
    };
    (spread % u64::from(partitions)) as u16
}

/// Where the messages of a group are, whichever way they come.
pub(super) fn partition_of_group(topic: &Topic, group: &str) -> u16 {
    let partitions = u64::from(topic.settings.partitions.max(1));
    (narrow(blake3::hash(group.as_bytes()).as_bytes()) % partitions) as u16
}

fn wide(hash: blake3::Hash) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}

fn narrow(hash: &[u8; 32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(bytes)
}
