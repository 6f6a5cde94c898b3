//! Bounds of what callers give: each is stated here once, whichever surface the caller comes by.
//!
//! The engine holds every operation to them. A surface that has to refuse a request as a whole, before any item of it
//! is done, asks here while it reads; it states no bound of its own where the meaning is the same.

use std::ops::RangeInclusive;
use std::time::Duration;

use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};

use crate::types::{BreakerSettings, TopicSettings};

/// Bytes of all labels of a topic together.
const LABEL_BYTES_MAX: usize = 24 * 1024;
/// Bytes of an attribute's name that a refusal repeats.
const SHOWN_BYTES_MAX: usize = 40;

/// Holds a number to its range, naming its field.
pub fn check_range(field: &str, value: u64, allowed: RangeInclusive<u64>) -> Result<(), Error> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let (min, max) = allowed.into_inner();
    Err(Error::schema(format!("{field}: {value} is not between {min} and {max}")))
}

/// Holds the number of items in one request over HTTP to its bounds: something, and not too much.
pub fn check_batch(field: &str, length: usize) -> Result<(), Error> {
    check_items(field, length, limits::BATCH_MAX)
}

/// Holds the number of items in one call of the engine to its bounds, whichever surface it comes from.
pub(crate) fn check_call(field: &str, length: usize) -> Result<(), Error> {
    check_items(field, length, limits::CALL_ITEMS_MAX)
}

fn check_items(field: &str, length: usize, max: usize) -> Result<(), Error> {
    match (1..=max).contains(&length) {
        true => Ok(()),
        false => Err(Error::schema(format!("{field}: {length} items; 1 to {max} are allowed"))),
    }
}

/// Whether a text may be a group or an idempotency key.
pub fn is_key(text: &str) -> bool {
    (1..=limits::KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What is said of a text that is no key; the name of its field goes before it.
pub fn key_refusal() -> String {
    format!("must be 1 to {} printable ASCII characters without spaces", limits::KEY_BYTES_MAX)
}

/// Holds the bytes asked for in one answer to their bounds, for a surface whose callers give them. The engine
/// cuts the number to what an answer may have instead, because callers of SQS give none.
pub fn check_max_bytes(max_bytes: u64) -> Result<(), Error> {
    check_range("max_bytes", max_bytes, 1..=limits::RECV_BYTES_MAX as u64)
}

/// Holds the delay of a message that is given back to the longest time any topic keeps one. Not to the retention of
/// its own topic: that counts from when the message was sent, and a message that outlives it expires as any other.
pub fn check_nack_delay(delay_ms: Option<u64>) -> Result<(), Error> {
    delay_ms.map_or(Ok(()), |delay_ms| check_range("delay_ms", delay_ms, 0..=millis(limits::RETENTION_MAX)))
}

/// Whether only surfaces write attributes of this name: what they note of a message beside what its sender says, such
/// as the sender's own name. From outside it can neither be set nor taken away.
pub fn is_reserved_attribute(name: &str) -> bool {
    name.starts_with('$')
}

/// The attribute in which a surface notes who sent a message: the node's word, of which the sender chooses nothing.
pub const SENDER_NOTE: &str = "$sender";

/// Bytes that a message counts with its sender and its receivers, in limits and in usage: its payload, and the names
/// and values of its attributes. Only the node's own word for the sender is free.
pub(crate) fn counted_bytes(payload: &[u8], attrs: &[(String, String)]) -> usize {
    let counted = attrs.iter().filter(|(name, _)| name != SENDER_NOTE);
    payload.len() + counted.map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

/// Bytes of a text in JSON: a control character takes six.
pub fn json_bytes(text: &str) -> usize {
    let bytes_of = |byte: u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.bytes().map(bytes_of).sum()
}

/// What is left of the bounds of a message's attributes, as they are taken one after the other. A reader that stops
/// at the first attribute too many never holds more than a message may have, whatever it is sent.
#[derive(Clone, Copy, Debug)]
pub struct AttributeRoom {
    takes_reserved: bool,
    left: usize,
    bytes_left: usize,
    bytes_max: usize,
    name_bytes_max: usize,
}

impl AttributeRoom {
    /// The room for attributes that a caller names and writes himself.
    pub const fn of_caller() -> Self {
        AttributeRoom::new(false, limits::ATTRIBUTE_BYTES_MAX, limits::ATTRIBUTE_NAME_BYTES_MAX)
    }

    /// The room in an envelope, which is wider than a caller's. A surface keeps more there than its caller wrote: a
    /// word of its own before a name (SQS: the type of an attribute), and bytes in base64, of which SQS allows as many
    /// as of payload.
    pub const fn of_envelope() -> Self {
        AttributeRoom::new(true, limits::ENVELOPE_ATTRIBUTE_BYTES_MAX, limits::ENVELOPE_ATTRIBUTE_NAME_BYTES_MAX)
    }

    const fn new(takes_reserved: bool, bytes_max: usize, name_bytes_max: usize) -> Self {
        let (left, bytes_left) = (limits::ATTRIBUTES_MAX, bytes_max);
        AttributeRoom { takes_reserved, left, bytes_left, bytes_max, name_bytes_max }
    }

    /// Takes one more attribute, or says which bound it is over.
    pub fn take(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let AttributeRoom { takes_reserved, bytes_max, name_bytes_max, .. } = *self;
        if !(1..=name_bytes_max).contains(&name.len()) {
            let shown = &name[..name.floor_char_boundary(SHOWN_BYTES_MAX)];
            return Err(Error::schema(format!("attrs: the name {shown:?} must have 1 to {name_bytes_max} bytes")));
        }
        if !takes_reserved && is_reserved_attribute(name) {
            let shown = &name[..name.floor_char_boundary(SHOWN_BYTES_MAX)];
            return Err(Error::schema(format!(
                "attrs: the name {shown:?} begins with '$', which the node keeps for itself"
            )));
        }
        let too_many = || Error::schema(format!("attrs: more than {} of them", limits::ATTRIBUTES_MAX));
        self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        let too_large = || Error::schema(format!("attrs: over {bytes_max} bytes in all"));
        self.bytes_left = self.bytes_left.checked_sub(name.len() + value.len()).ok_or_else(too_large)?;
        Ok(())
    }
}

pub(crate) fn check_attributes(attrs: &[(String, String)]) -> Result<(), Error> {
    let mut room = AttributeRoom::of_envelope();
    attrs.iter().try_for_each(|(name, value)| room.take(name, value))
}

pub(crate) fn check_key(field: &str, text: Option<&str>) -> Result<(), Error> {
    match text {
        Some(text) if !is_key(text) => Err(Error::schema(format!("{field}: {}", key_refusal()))),
        _ => Ok(()),
    }
}

pub(crate) fn check_payload(size: usize, size_max: u64) -> Result<(), Error> {
    match size as u64 > size_max {
        true => Err(Error::new(Kind::FrameTooLarge, format!("payload: {size} bytes are over {size_max}"))),
        false => Ok(()),
    }
}

/// Holds a message to the largest that its sender's capability allows, attributes included: they take room as the
/// payload does, and a limit of the payload alone could be passed by them.
pub(crate) fn check_message(size: usize, size_max: Option<u64>) -> Result<(), Error> {
    match size_max.filter(|size_max| size as u64 > *size_max) {
        Some(size_max) => {
            let detail = format!("payload: {size} bytes, attributes included, are over the {size_max} of the token");
            Err(Error::new(Kind::FrameTooLarge, detail))
        }
        None => Ok(()),
    }
}

/// A message that would wait for longer than it is kept would never be seen.
pub(crate) fn check_delay(delay_ms: u64, retention_ms: u64) -> Result<(), Error> {
    match delay_ms > retention_ms {
        true => {
            Err(Error::schema(format!("delay_ms: {delay_ms} is longer than the topic keeps messages, {retention_ms}")))
        }
        false => Ok(()),
    }
}

/// Holds the length of a lease to its bounds; surfaces differ in the shortest one they take.
pub(crate) fn check_visibility(visibility_ms: u64, min: Duration) -> Result<(), Error> {
    check_range("visibility_ms", visibility_ms, millis(min)..=millis(limits::VISIBILITY_MAX))
}

pub(crate) fn check_receive(max_messages: usize, wait_ms: u64) -> Result<(), Error> {
    check_range("max_messages", max_messages as u64, 1..=limits::BATCH_MAX as u64)?;
    check_range("wait_ms", wait_ms, 0..=millis(limits::LONG_POLL_MAX))
}

/// Holds the settings of a topic to their limits, naming the field that is out of them.
pub(crate) fn check_settings(settings: &TopicSettings) -> Result<(), Error> {
    let ranges = [
        ("visibility_ms", settings.visibility_ms, 0, millis(limits::VISIBILITY_MAX)),
        ("max_attempts", settings.max_attempts.into(), 0, 1_000),
        ("replay_window_ms", settings.replay_window_ms, 0, millis(limits::RETENTION_MAX)),
        ("retention_ms", settings.retention_ms, 1_000, millis(limits::RETENTION_MAX)),
        ("delay_ms", settings.delay_ms, 0, settings.retention_ms),
        ("partitions", settings.partitions.into(), 1, limits::PARTITIONS_MAX.into()),
        ("backoff_base_ms", settings.backoff_base_ms, 0, millis(limits::VISIBILITY_MAX)),
        ("backoff_max_ms", settings.backoff_max_ms, settings.backoff_base_ms, millis(limits::VISIBILITY_MAX)),
        ("messages_max", settings.messages_max, 1, u64::MAX),
        ("bytes_max", settings.bytes_max, 1, u64::MAX),
        ("inflight_max", settings.inflight_max.into(), 1, 10_000_000),
        ("payload_bytes_max", settings.payload_bytes_max.into(), 1, limits::PAYLOAD_BYTES_MAX as u64),
    ];
    let breaker = settings.breaker.iter().flat_map(BreakerSettings::ranges);
    for (field, value, min, max) in ranges.into_iter().chain(breaker) {
        check_range(field, value, min..=max)?;
    }
    let label_bytes: usize = settings.labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if label_bytes > LABEL_BYTES_MAX {
        return Err(Error::schema(format!("labels: {label_bytes} bytes are over {LABEL_BYTES_MAX}")));
    }
    Ok(())
}

const fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
