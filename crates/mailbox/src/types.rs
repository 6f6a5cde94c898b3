//! The words of the mailbox: names, ids, settings, and what is said about a message.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use ron_log::Position;
use ron_types::{Error, limits};
use serde::{Deserialize, Serialize};

mod breaker;

pub use breaker::{BreakerSettings, BreakerState, BreakerTurn, BreakerView};

/// Number of a message, unique on the node and rising; it is inside every [`MessageId`].
pub type Seq = u64;

/// A point in time: milliseconds since 1970 on the steady clock, which goes back only where the wall clock was ahead.
pub use ron_types::Millis;

/// Number of a topic, given once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(pub u32);

/// One partition of a topic: the unit that a shard owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey {
    /// Number of the topic.
    pub topic: TopicId,
    /// Number of the partition within the topic, from 0.
    pub partition: u16,
}

/// The name of a topic: 1 to 80 letters, digits, `-`, `_` or `.`, not starting with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TopicName(Arc<str>);

/// End of the names of dead letters that come with a topic.
const DEAD_LETTERS_SUFFIX: &str = ".dlq";

/// What people call a message: a ULID of its time, its number, and a tag only this node can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// When the message was sent.
    pub sent_ms: Millis,
    /// Number of the message.
    pub seq: Seq,
    /// Proof that this node gave the id.
    pub tag: u32,
}

/// What may be set about a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicSettings {
    /// Length of a lease whose receiver gives none, in milliseconds.
    pub visibility_ms: u64,
    /// Deliveries before a message is dead; 0 means any number.
    pub max_attempts: u32,
    /// Milliseconds for which an idempotency key is remembered.
    pub replay_window_ms: u64,
    /// Milliseconds for which a message is kept.
    pub retention_ms: u64,
    /// What becomes of a message that is kept no longer.
    pub expired: Expired,
    /// Delay of a message that does not ask for one, in milliseconds.
    pub delay_ms: u64,
    /// Partitions, fixed when the topic is made; order is kept within each.
    pub partitions: u16,
    /// What a message's group means.
    pub groups: Groups,
    /// Where dead messages go; none means the dead letters that come with the topic, `<topic>.dlq`.
    pub dlq: Option<String>,
    /// Bound of the wait after the first failed delivery, in milliseconds.
    pub backoff_base_ms: u64,
    /// Bound that the wait after failed deliveries never grows past, in milliseconds.
    pub backoff_max_ms: u64,
    /// Maximum messages in the topic.
    pub messages_max: u64,
    /// Maximum bytes of the topic's messages as they lie in the log: payload, attributes, and some 50 bytes more each.
    pub bytes_max: u64,
    /// Maximum messages leased at once.
    pub inflight_max: u32,
    /// Maximum bytes of one payload.
    pub payload_bytes_max: u32,
    /// Deliveries stop while set.
    pub paused: bool,
    /// When deliveries pause because too many of them fail; none means never.
    pub breaker: Option<BreakerSettings>,
    /// Whatever a surface keeps with the topic, such as tags.
    pub labels: std::collections::BTreeMap<String, String>,
}

/// What makes two messages with the same idempotency key the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// Key and payload: the same key with another payload is a conflict.
    #[default]
    Payload,
    /// The key alone, whatever the payload.
    Topic,
    /// The key within the message's group, whatever the payload.
    Group,
}

/// What a message's group means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Groups {
    /// A tenant: quiet groups are served before noisy ones, nobody waits for anybody.
    #[default]
    Fair,
    /// A line: in order, and while one of a group is leased the rest of the group waits.
    Fifo,
}

/// What becomes of a message that is kept no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expired {
    /// It goes to the dead letters with the reason `expired`; from there it is dropped and counted.
    #[default]
    DeadLetter,
    /// It is dropped and counted.
    Drop,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// Delivered as often as the topic allows.
    MaxAttempts,
    /// Kept longer than the topic allows.
    Expired,
    /// Its bytes are not what was sent.
    Integrity,
    /// A consumer or operator said so.
    Rejected,
}

/// What is known of a dead message beyond the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// What the message died of.
    pub reason: DeadReason,
    /// The partition it was in when it died.
    pub source: PartKey,
    /// Deliveries it had.
    pub attempts: u32,
    /// When it died.
    pub since_ms: Millis,
    /// What the last consumer said.
    pub last_error: Box<str>,
}

/// A delivery that came to nothing, or the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Which delivery this was, from 1.
    pub number: u32,
    /// Name of the consumer that took the message.
    pub consumer: Box<str>,
    /// When the message was handed out.
    pub leased_ms: Millis,
    /// What came of it: empty while it runs.
    pub outcome: Box<str>,
}

/// Where the bytes of a message are.
#[derive(Clone, Debug)]
pub enum Content {
    /// Still in memory.
    Hot(Bytes),
    /// To be read back.
    Cold(Position),
}

impl Content {
    /// Bytes it takes in memory once it is read.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Content::Hot(body) => body.len(),
            Content::Cold(position) => position.len as usize,
        }
    }
}

/// A message handed to a consumer under a lease.
#[derive(Clone, Debug)]
pub struct Leased {
    /// Partition of the message.
    pub part: PartKey,
    /// Number of the message.
    pub seq: Seq,
    /// When it was sent.
    pub sent_ms: Millis,
    /// Group the sender gave the message.
    pub group: Option<Arc<str>>,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// The lease's number: rising for each message, so that a late worker can be told from its successor.
    pub fence: u32,
    /// When the lease was taken.
    pub leased_ms: Millis,
    /// When the lease ends.
    pub until_ms: Millis,
    /// When it was first delivered.
    pub first_leased_ms: Millis,
    /// What became of earlier deliveries, the newest last.
    pub history: Vec<Attempt>,
    /// Why it is dead, for a message in a dead letter topic.
    pub dead: Option<Dead>,
    /// Its bytes: an encoded [`crate::envelope::Envelope`].
    pub content: Content,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// May be delivered.
    Ready,
    /// Waits for its time.
    Delayed,
    /// Is with a consumer.
    Leased,
}

/// A message as browsing shows it: looked at, not leased.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Partition of the message.
    pub part: PartKey,
    /// Number of the message.
    pub seq: Seq,
    /// When it was sent.
    pub sent_ms: Millis,
    /// When it came into the partition: when it was sent, or moved there.
    pub since_ms: Millis,
    /// Group the sender gave the message.
    pub group: Option<Arc<str>>,
    /// Deliveries so far.
    pub attempts: u32,
    /// Where it stands.
    pub state: State,
    /// When that changes by itself: the end of the delay or the lease.
    pub due_ms: Option<Millis>,
    /// Why it is dead.
    pub dead: Option<Dead>,
    /// Bytes of the message: an encoded [`crate::envelope::Envelope`].
    pub content: Content,
}

/// Why a message is where it is.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The message as browsing shows it.
    pub summary: Summary,
    /// Who has it and until when, if leased.
    pub lease: Option<(Attempt, Millis)>,
    /// The message of its group it waits for, in a first-in-first-out topic.
    pub blocked_by: Option<Seq>,
    /// Messages before it in its line.
    pub ahead: u64,
    /// Its group is noisy: quiet ones go first; the share of leases it holds, in percent.
    pub noisy_share: Option<u8>,
    /// Leases its partition may give at once, if it has given all of them.
    pub leases_max: Option<u64>,
    /// Its topic is paused.
    pub paused: bool,
    /// Whether the breaker of its partition lets messages out.
    pub breaker: BreakerView,
    /// Deliveries so far, the newest last.
    pub history: Vec<Attempt>,
}

/// Numbers of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartStats {
    /// Messages that may be delivered now.
    pub ready: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages that are with consumers.
    pub leased: u64,
    /// Bytes of all messages as they lie in the log: payload, attributes, and some 50 bytes more each.
    pub bytes: u64,
    /// Groups with messages.
    pub groups: u64,
    /// Idempotency keys remembered.
    pub keys: u64,
    /// When the oldest message was sent; 0 for none.
    pub oldest_ms: Millis,
    /// Messages taken in since the start.
    pub sent: u64,
    /// Deliveries since the start.
    pub delivered: u64,
    /// Messages acknowledged since the start.
    pub acked: u64,
    /// Deliveries that failed or ran out since the start.
    pub failed: u64,
    /// Messages that died since the start.
    pub died: u64,
    /// Messages dropped by retention since the start.
    pub expired: u64,
    /// Deepest reordering seen: how many newer messages were delivered before an older one that was ready.
    pub reorder_depth_max: u64,
    /// Whether its breaker lets messages out.
    pub breaker: BreakerView,
}

impl Default for TopicSettings {
    fn default() -> Self {
        use limits::mailbox as m;
        TopicSettings {
            visibility_ms: m::VISIBILITY.as_millis() as u64,
            max_attempts: m::MAX_ATTEMPTS,
            replay_window_ms: m::REPLAY_WINDOW.as_millis() as u64,
            retention_ms: m::RETENTION.as_millis() as u64,
            expired: Expired::default(),
            delay_ms: 0,
            partitions: 1,
            groups: Groups::default(),
            dlq: None,
            backoff_base_ms: m::BACKOFF_BASE.as_millis() as u64,
            backoff_max_ms: m::BACKOFF_MAX.as_millis() as u64,
            messages_max: m::TOPIC_MESSAGES_MAX,
            bytes_max: m::TOPIC_BYTES_MAX,
            inflight_max: m::TOPIC_INFLIGHT_MAX,
            payload_bytes_max: m::PAYLOAD_BYTES_MAX as u32,
            paused: false,
            breaker: None,
            labels: std::collections::BTreeMap::new(),
        }
    }
}

impl TopicName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a name; a refusal names the field it was given in.
    pub fn read(field: &str, text: &str) -> Result<TopicName, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let max = limits::mailbox::TOPIC_NAME_BYTES_MAX;
        if text.is_empty() || text.len() > max || text.starts_with('.') || !text.bytes().all(allowed) {
            let shown: String = text.chars().take(40).collect();
            return Err(Error::schema(format!(
                "{field}: {shown:?} is not a name of 1 to {max} letters, digits, '-', '_' or '.' that starts with no dot"
            )));
        }
        Ok(TopicName(text.into()))
    }

    /// The usual name of its own dead letters, which may be too long for a topic. Which topic they are is a question of
    /// numbers (`Topics::dead_letters_of`), never of this name.
    pub fn dead_letters(&self) -> TopicName {
        TopicName(format!("{}{DEAD_LETTERS_SUFFIX}", self.0).into())
    }

    /// Only dead letters that come with a topic have such a name.
    pub fn is_of_dead_letters(&self) -> bool {
        self.0.ends_with(DEAD_LETTERS_SUFFIX)
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for TopicName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        TopicName::read("topic", text)
    }
}

impl<'de> Deserialize<'de> for TopicName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| serde::de::Error::custom(error.detail))
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl MessageId {
    /// How long an id is as text.
    pub const TEXT_BYTES: usize = ulid::ULID_LEN;

    /// The id as text, without an allocation.
    pub fn write_in(self, room: &mut [u8; MessageId::TEXT_BYTES]) -> &str {
        ulid::Ulid::from(self.number()).array_to_str(room)
    }

    /// The same 128 bits as a UUID, which is how clients of SQS know ids.
    pub fn as_uuid(self) -> String {
        let digits = format!("{:032x}", self.number());
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    /// The id as the number a ULID stands for.
    fn number(self) -> u128 {
        u128::from(self.sent_ms) << 80 | u128::from(self.seq & SEQ_MASK) << 32 | u128::from(self.tag)
    }
}

/// A message's number has 48 bits: ten thousand a second for eight hundred years.
const SEQ_MASK: u64 = (1 << 48) - 1;

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.write_in(&mut [0; MessageId::TEXT_BYTES]))
    }
}

/// The number of a UUID in its usual form: groups of 8, 4, 4, 4 and 12 hex digits.
fn uuid_number(text: &str) -> Option<u128> {
    let mut groups = text.split('-');
    let mut number: u128 = 0;
    for len in [8, 4, 4, 4, 12] {
        let group = groups.next().filter(|group| group.len() == len)?;
        for digit in group.chars() {
            number = number << 4 | u128::from(digit.to_digit(16)?);
        }
    }
    groups.next().is_none().then_some(number)
}

impl FromStr for MessageId {
    type Err = Error;

    /// Takes both forms, so that an id from a client of SQS can be looked up as it is.
    fn from_str(text: &str) -> Result<Self, Error> {
        let number = uuid_number(text).or_else(|| ulid::Ulid::from_string(text).ok().map(u128::from));
        let number = number.ok_or_else(|| Error::schema("msg_id: not a message id: neither a ULID nor a UUID"))?;
        Ok(MessageId { sent_ms: (number >> 80) as u64, seq: (number >> 32) as u64 & SEQ_MASK, tag: number as u32 })
    }
}
