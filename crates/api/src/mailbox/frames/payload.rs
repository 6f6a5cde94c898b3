//! The layout of payloads: a byte for the operation, the length of the head, the head in JSON, and bodies.

use std::fmt;
use std::marker::PhantomData;

use bytes::{BufMut as _, Bytes, BytesMut};
use ron_types::Error;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::extract;
use crate::problem::Problem;

/// Bytes before the head.
const PREFIX_BYTES: usize = 5;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Send = 1,
    Recv = 2,
    Ack = 3,
    Nack = 4,
    Extend = 5,
}

/// A payload of a request, taken apart.
pub(super) struct RequestPayload {
    pub op: Op,
    head: Bytes,
    /// What follows the head.
    pub bodies: Bytes,
}

impl RequestPayload {
    pub(super) fn split(payload: &Bytes) -> Result<RequestPayload, Error> {
        let short =
            || Error::schema("the payload must be an operation, the length of its head, and a head of that length");
        let [op, a, b, c, d] = *payload.first_chunk::<PREFIX_BYTES>().ok_or_else(short)?;
        let op = match op {
            1 => Op::Send,
            2 => Op::Recv,
            3 => Op::Ack,
            4 => Op::Nack,
            5 => Op::Extend,
            _ => return Err(Error::schema(format!("{op} is no operation of the mailbox; 1 to 5 are"))),
        };
        let head_len = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let end = PREFIX_BYTES.checked_add(head_len).filter(|end| *end <= payload.len()).ok_or_else(short)?;
        Ok(RequestPayload { op, head: payload.slice(PREFIX_BYTES..end), bodies: payload.slice(end..) })
    }

    /// Reads the head; what is wrong with it is said with the field it is wrong in.
    pub(super) fn head<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        extract::parse(&self.head)
    }

    /// The head of an operation that has no bodies.
    pub(super) fn head_alone<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        match self.bodies.len() {
            0 => self.head(),
            more => Err(Error::schema(format!("{more} bytes follow the head of an operation without bodies")).into()),
        }
    }
}

/// The payload of an answer; `about` is how many bytes it may take.
pub(super) fn write<'a>(
    op: Op,
    head: &impl Serialize,
    bodies: impl IntoIterator<Item = &'a Bytes>,
    about: usize,
) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + about).writer();
    let written = out.get_mut();
    written.put_u8(op as u8);
    written.put_u32(0);
    serde_json::to_writer(&mut out, head).expect("texts, numbers and lists of them can be written");
    let mut out = out.into_inner();
    // No answer comes near 4 GiB: its messages and their number are bounded.
    let head_len = (out.len() - PREFIX_BYTES) as u32;
    out[1..PREFIX_BYTES].copy_from_slice(&head_len.to_be_bytes());
    bodies.into_iter().for_each(|body| out.put_slice(body));
    out.freeze()
}

/// A list of at most so many items; reading stops at the first one too many.
#[derive(Debug)]
pub(super) struct AtMost<T, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = Vec<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of 1 to {MAX} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == MAX {
                        return Err(A::Error::invalid_length(MAX + 1, &self));
                    }
                    items.push(item);
                }
                match items.is_empty() {
                    true => Err(A::Error::invalid_length(0, &self)),
                    false => Ok(items),
                }
            }
        }
        deserializer.deserialize_seq(Items::<T, MAX>(PhantomData)).map(AtMost)
    }
}

/// A BLAKE3 hash that a caller gives: `b3:` and 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenHash(pub [u8; 32]);

impl<'de> Deserialize<'de> for GivenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HashText;
        impl Visitor<'_> for HashText {
            type Value = GivenHash;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("b3: and 64 hex digits")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<GivenHash, E> {
                let hash = text.strip_prefix("b3:").and_then(|digits| blake3::Hash::from_hex(digits).ok());
                hash.map(|hash| GivenHash(*hash.as_bytes())).ok_or_else(|| E::custom("must be b3: and 64 hex digits"))
            }
        }
        deserializer.deserialize_str(HashText)
    }
}
