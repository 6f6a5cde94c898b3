//! What goes in and what comes out, and how both are written.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// About what a message takes beside its payload, when it has no attributes.
const ENVELOPE_BYTES: usize = 64;

/// Message to send.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Message {
    /// Payload bytes.
    #[serde(rename = "payload_b64", serialize_with = "write_base64")]
    pub payload: Bytes,
    /// The same key and payload within the topic's replay window are one message. With a key, a send whose answer was
    /// lost is sent again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idem_key: Option<String>,
    /// Attributes: names and values that travel with the message.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attrs: BTreeMap<String, String>,
    /// The tenant or line it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Time until the message can be received; the topic's own delay if not given.
    #[serde(rename = "delay_ms", skip_serializing_if = "Option::is_none", serialize_with = "write_millis")]
    pub delay: Option<Duration>,
}

/// Answer of the node to an accepted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Id of the message.
    pub msg_id: String,
    /// Whether the message was there already, under the same key.
    pub duplicate: bool,
    /// Durability of the message when the answer left the node.
    pub durability: Durability,
}

/// Durability of a message when the answer leaves the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Kept in memory only.
    Ram,
    /// Handed to the operating system, not yet synced.
    Written,
    /// Synced to the disk.
    Fsynced,
}

/// Size, lease and wait of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// At most this many, up to 100.
    pub max_messages: usize,
    /// Maximum bytes of messages as the node keeps them, attributes included, but at least one message.
    pub max_bytes: usize,
    /// Duration of the lease; the topic's own if not given.
    pub visibility: Option<Duration>,
    /// Maximum wait for the first message, up to 20 s.
    pub wait: Duration,
}

/// Message received under a lease.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Received {
    /// Id of the message.
    pub msg_id: String,
    /// Time of the send in milliseconds since 1970.
    pub ts: u64,
    /// Payload bytes.
    #[serde(rename = "payload_b64", deserialize_with = "read_base64")]
    pub payload: Bytes,
    /// Attributes: names and values that travelled with the message.
    #[serde(default)]
    pub attrs: BTreeMap<String, String>,
    /// Idempotency key of the send.
    pub idem_key: Option<String>,
    /// The tenant or line it belongs to.
    pub group: Option<String>,
    /// Number of this delivery, from 1.
    pub attempt: u32,
    /// Rises with each delivery: a store can refuse the work of a late consumer by it.
    pub fence: u32,
    /// Receipt to acknowledge the message with.
    pub receipt: String,
}

impl Message {
    /// A message that is nothing but its payload.
    pub fn new(payload: impl Into<Bytes>) -> Message {
        Message { payload: payload.into(), ..Message::default() }
    }

    /// As it stands in a request.
    pub(crate) fn written(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.payload.len().div_ceil(3) * 4 + ENVELOPE_BYTES);
        serde_json::to_writer(&mut text, self).expect("texts and numbers can be written");
        text
    }
}

impl<P: Into<Bytes>> From<P> for Message {
    fn from(payload: P) -> Self {
        Message::new(payload)
    }
}

impl Receive {
    /// At most this many, without waiting.
    pub fn up_to(max_messages: usize) -> Receive {
        Receive { max_messages, max_bytes: 512 * 1024, visibility: None, wait: Duration::ZERO }
    }

    /// Waits this long for the first.
    #[must_use]
    pub fn waiting(self, wait: Duration) -> Receive {
        Receive { wait, ..self }
    }

    /// The same receive with a lease of this duration.
    #[must_use]
    pub fn holding(self, visibility: Duration) -> Receive {
        Receive { visibility: Some(visibility), ..self }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Durability::Ram => "ram",
            Durability::Written => "written",
            Durability::Fsynced => "fsynced",
        })
    }
}

fn write_base64<S: Serializer>(payload: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&base64_simd::STANDARD.encode_to_string(payload))
}

fn read_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    base64_simd::STANDARD.decode_to_vec(text.as_bytes()).map(Bytes::from).map_err(serde::de::Error::custom)
}

fn write_millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_u64(time.as_millis() as u64),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_written() {
        let text = |message: &Message| String::from_utf8(message.written()).expect("text");
        assert_eq!(text(&Message::new("hi")), r#"{"payload_b64":"aGk="}"#);
        let full = Message {
            idem_key: Some("k1".to_owned()),
            attrs: BTreeMap::from([("a\"".to_owned(), "b".to_owned())]),
            group: Some("g".to_owned()),
            delay: Some(Duration::from_millis(1500)),
            ..Message::new("hi")
        };
        let expected = r#"{"payload_b64":"aGk=","idem_key":"k1","attrs":{"a\"":"b"},"group":"g","delay_ms":1500}"#;
        assert_eq!(text(&full), expected);
    }

    #[test]
    fn a_delivery_is_read_with_fields_of_later_versions() {
        let text = r#"{"msg_id":"01","topic":"t","ts":5,"payload_b64":"aGk=","attrs":{"a":"b"},"corr_id":"c","shard":0,
            "attempt":2,"receipt":"r","fence":3,"unheard_of":[1]}"#;
        let message: Received = serde_json::from_str(text).expect("sound");
        assert_eq!((&message.payload[..], message.attempt, message.fence), (&b"hi"[..], 2, 3));
        assert_eq!(message.attrs["a"], "b");
        assert!(serde_json::from_str::<Received>(&text.replace("aGk=", "a?")).is_err());
    }
}
