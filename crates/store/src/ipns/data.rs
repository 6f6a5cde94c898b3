//! The signed part of an IPNS record: DAG-CBOR.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::IpnsError;

/// An end of life, the one kind of validity there is.
const END_OF_LIFE: u64 = 0;

/// What the owner of the name signed.
pub(super) struct Data {
    pub(super) value: Vec<u8>,
    pub(super) validity: Vec<u8>,
    pub(super) validity_kind: u64,
    pub(super) sequence: u64,
    pub(super) ttl_ns: Option<u64>,
}

/// Further fields are allowed, and are signed like the others.
#[derive(serde::Deserialize)]
struct Fields {
    #[serde(rename = "Value")]
    value: ByteString,
    #[serde(rename = "Validity")]
    validity: ByteString,
    #[serde(rename = "ValidityType")]
    validity_kind: u64,
    #[serde(rename = "Sequence")]
    sequence: u64,
    #[serde(rename = "TTL")]
    ttl_ns: Option<u64>,
}

struct ByteString(Vec<u8>);

impl Data {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, IpnsError> {
        let fields: Fields = serde_ipld_dagcbor::from_slice(bytes).map_err(|_| IpnsError::Data)?;
        if fields.validity_kind != END_OF_LIFE {
            return Err(IpnsError::Validity);
        }
        Ok(Data {
            value: fields.value.0,
            validity: fields.validity.0,
            validity_kind: fields.validity_kind,
            sequence: fields.sequence,
            ttl_ns: fields.ttl_ns,
        })
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(ByteStringVisitor)
    }
}

struct ByteStringVisitor;

impl Visitor<'_> for ByteStringVisitor {
    type Value = ByteString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<ByteString, E> {
        Ok(ByteString(bytes.to_vec()))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<ByteString, E> {
        Ok(ByteString(bytes))
    }
}
