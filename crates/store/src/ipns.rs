//! IPNS records: protobuf around signed DAG-CBOR, validated as its specification says.

use bytes::Bytes;
use ron_types::limits::records::IPNS_BYTES_MAX;

use crate::bytes_io::{Reader, put_bytes};
use crate::peer::PEER_ID_BYTES_MAX;
use crate::{Key, PeerId, RecordError};

mod data;
mod entry;
mod public_key;
mod timestamp;

use data::Data;
use entry::Entry;

/// A record of IPNS: what a name points at, signed with the key of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpnsRecord {
    name: PeerId,
    bytes: Bytes,
    value: Bytes,
    sequence: u64,
    validity_ms: u64,
    ttl_ns: Option<u64>,
}

/// Reason why an IPNS record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpnsError {
    /// It is larger than records may be.
    #[error("an IPNS record has at most 10 KiB")]
    TooLong,
    /// The bytes are no protobuf of a record.
    #[error("the bytes are no IPNS record")]
    Malformed,
    /// It has no signature of version 2, or nothing that one is over.
    #[error("the record has no signature of version 2; older ones are not taken")]
    Unsigned,
    /// What is signed is no DAG-CBOR of a record.
    #[error("the signed data is not valid DAG-CBOR of a record")]
    Data,
    /// A field beside the signed data says something else than the data.
    #[error("a field of the record differs from the signed data")]
    Contradiction,
    /// The validity is of an unknown kind, or no time.
    #[error("the validity is not an end of life in RFC 3339")]
    Validity,
    /// The key is missing, or it is not that of the name.
    #[error("the record has no key that belongs to the name")]
    Key,
    /// Keys of this kind are not verified here.
    #[error("only Ed25519 and RSA keys can be verified")]
    KeyKind,
    /// The signature is not of the key over the data.
    #[error("the signature does not verify")]
    Signature,
}

impl IpnsRecord {
    /// The record of `name` in these bytes, with everything about it checked but whether it is over yet.
    pub fn parse(name: &PeerId, bytes: &[u8]) -> Result<Self, IpnsError> {
        let record = IpnsRecord::read(name, bytes)?;
        record.verify()?;
        Ok(record)
    }

    /// Name that the record is about: the peer id of its key.
    pub fn name(&self) -> &PeerId {
        &self.name
    }

    /// The record as it came, which is how it is handed on.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What the name points at: a path such as `/ipfs/<cid>`, as bytes.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// The highest sequence wins.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Unix milliseconds at which it is over.
    pub fn validity_ms(&self) -> u64 {
        self.validity_ms
    }

    /// Nanoseconds for which it may be cached, if it says so.
    pub fn ttl_ns(&self) -> Option<u64> {
        self.ttl_ns
    }

    /// Whether it takes the place of `other`: by sequence, then by its end, then by its bytes.
    pub fn newer_than(&self, other: &IpnsRecord) -> bool {
        let rank = |record: &IpnsRecord| (record.sequence, record.validity_ms, record.bytes.clone());
        rank(self) > rank(other)
    }

    /// Position of the name in the key space.
    pub fn key(&self) -> Key {
        Key::of_ipns(&self.name)
    }

    /// Whether the signature is that of the name's key over the data.
    pub fn verify(&self) -> Result<(), IpnsError> {
        let entry = Entry::read(&self.bytes)?;
        let mut signed = b"ipns-signature:".to_vec();
        signed.extend_from_slice(entry.data);
        public_key::verify(&self.name, entry.public_key, &signed, entry.signature_v2)
    }

    /// All checks but that of the signature, for records that were verified when they came.
    pub(crate) fn read(name: &PeerId, bytes: &[u8]) -> Result<Self, IpnsError> {
        if bytes.len() > IPNS_BYTES_MAX {
            return Err(IpnsError::TooLong);
        }
        let entry = Entry::read(bytes)?;
        if entry.signature_v2.is_empty() || entry.data.is_empty() {
            return Err(IpnsError::Unsigned);
        }
        let data = Data::read(entry.data)?;
        if !entry.agrees_with(&data) {
            return Err(IpnsError::Contradiction);
        }
        let validity = std::str::from_utf8(&data.validity).map_err(|_| IpnsError::Validity)?;
        let validity_ms = timestamp::unix_millis(validity).ok_or(IpnsError::Validity)?;
        Ok(IpnsRecord {
            name: *name,
            bytes: Bytes::copy_from_slice(bytes),
            value: Bytes::from(data.value),
            sequence: data.sequence,
            validity_ms,
            ttl_ns: data.ttl_ns,
        })
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, &self.bytes);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        let name = PeerId::from_bytes(reader.bytes(PEER_ID_BYTES_MAX)?).map_err(|_| RecordError::Malformed)?;
        let record = reader.bytes(IPNS_BYTES_MAX)?;
        reader.end()?;
        Ok(IpnsRecord::read(&name, record)?)
    }
}
