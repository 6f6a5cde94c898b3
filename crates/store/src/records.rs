//! Signed records: who provides content, what a name points at, where a peer is reached.

use multiaddr::Multiaddr;
use ron_types::limits::records::{
    ADDR_BYTES_MAX, ADDRS_MAX, CLOCK_SKEW, PROTOCOL_BYTES_MAX, PROTOCOLS_MAX, REGION_BYTES_MAX,
    TTL_MAX as TTL_MAX_DURATION,
};

use crate::bytes_io::{Malformed, Reader, put_bytes, put_number};
use crate::{IpnsError, IpnsRecord, Key};

mod name;
mod peer;
mod provider;

pub use name::NameRecord;
pub(crate) use name::take_content_id;
pub use peer::PeerRecord;
pub use provider::{ProviderFields, ProviderRecord};

/// Longest time that a record may last, in milliseconds.
pub const TTL_MAX_MS: u64 = TTL_MAX_DURATION.as_millis() as u64;
/// A record issued further in the future than this many milliseconds is refused.
pub const CLOCK_SKEW_MS: u64 = CLOCK_SKEW.as_millis() as u64;

/// Bytes of an Ed25519 signature.
pub(crate) const SIGNATURE_BYTES: usize = 64;

/// A signed record of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Who provides content.
    Provider(ProviderRecord),
    /// What a name points at.
    Name(NameRecord),
    /// Where a peer is reached.
    Peer(PeerRecord),
    /// What an IPNS name points at.
    Ipns(IpnsRecord),
}

/// Kinds of records; the number is the first byte of an encoded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Who provides content.
    Provider = 1,
    /// What a name points at.
    Name = 2,
    /// Where a peer is reached.
    Peer = 3,
    /// What an IPNS name points at.
    Ipns = 4,
}

/// Reason why a record is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes are no record.
    #[error("the bytes are no record")]
    Malformed,
    /// There are too many addresses, or one is empty or too long.
    #[error("a record has at most {ADDRS_MAX} addresses of 1 to {ADDR_BYTES_MAX} bytes")]
    Addresses,
    /// There are too many protocols, or one is empty, too long or not plain ASCII.
    #[error("a record has at most {PROTOCOLS_MAX} protocols of 1 to {PROTOCOL_BYTES_MAX} printable ASCII characters")]
    Protocols,
    /// The region is none.
    #[error("a region is 1 to {REGION_BYTES_MAX} lower-case letters, digits and hyphens")]
    Region,
    /// The label is none.
    #[error("the record has no valid label")]
    Label,
    /// Its end is before its beginning, or too long after it.
    #[error("a record lasts at most 48 hours")]
    Lifetime,
    /// The signature is not of the signer over this record.
    #[error("the signature does not verify")]
    Signature,
    /// The signer is not the one who must have signed.
    #[error("the record is signed with another key than its owner's")]
    Signer,
    /// It is over.
    #[error("the record has expired")]
    Expired,
    /// It was issued in the future.
    #[error("the record was issued more than 5 minutes in the future")]
    NotYet,
    /// It is an IPNS record and breaks a rule of those.
    #[error(transparent)]
    Ipns(#[from] IpnsError),
}

impl From<Malformed> for RecordError {
    fn from(_: Malformed) -> Self {
        RecordError::Malformed
    }
}

impl Record {
    /// Kind of the record.
    pub fn kind(&self) -> RecordKind {
        match self {
            Record::Provider(_) => RecordKind::Provider,
            Record::Name(_) => RecordKind::Name,
            Record::Peer(_) => RecordKind::Peer,
            Record::Ipns(_) => RecordKind::Ipns,
        }
    }

    /// Position in the key space that the record is kept at.
    pub fn key(&self) -> Key {
        match self {
            Record::Provider(record) => record.key,
            Record::Name(record) => record.key(),
            Record::Peer(record) => record.peer.key(),
            Record::Ipns(record) => record.key(),
        }
    }

    /// Unix milliseconds at which it is over.
    pub fn expires_ms(&self) -> u64 {
        match self {
            Record::Provider(record) => record.expires_ms,
            Record::Name(record) => record.expires_ms,
            Record::Peer(record) => record.expires_ms,
            Record::Ipns(record) => record.validity_ms(),
        }
    }

    /// Unix milliseconds until which a node keeps it. A withdrawal outlasts whatever it withdraws, or an older record
    /// that arrives late would stand again.
    pub fn kept_until_ms(&self) -> u64 {
        match self {
            Record::Provider(record) => record.kept_until_ms(),
            Record::Name(record) => record.kept_until_ms(),
            other => other.expires_ms(),
        }
    }

    /// Whether it takes back what earlier records said.
    pub fn withdraws(&self) -> bool {
        match self {
            Record::Provider(record) => record.withdraws(),
            Record::Name(record) => record.withdraws(),
            Record::Peer(_) | Record::Ipns(_) => false,
        }
    }

    /// Number by which a later record of the same thing is told from an earlier one.
    pub fn sequence(&self) -> u64 {
        match self {
            Record::Provider(record) => record.sequence,
            Record::Name(record) => record.sequence,
            Record::Peer(record) => record.sequence,
            Record::Ipns(record) => record.sequence(),
        }
    }

    /// Whether this record takes the place of `other`, which is about the same thing by the same signer: the higher
    /// sequence wins, then the later end, then the greater bytes, so that all nodes come to the same.
    pub fn supersedes(&self, other: &Record) -> bool {
        let ours = (self.sequence(), self.expires_ms());
        let theirs = (other.sequence(), other.expires_ms());
        ours > theirs || (ours == theirs && self.encode() > other.encode())
    }

    /// Binary form: a byte for the kind, then the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind() as u8];
        match self {
            Record::Provider(record) => record.encode_into(&mut bytes),
            Record::Name(record) => record.encode_into(&mut bytes),
            Record::Peer(record) => record.encode_into(&mut bytes),
            Record::Ipns(record) => record.encode_into(&mut bytes),
        }
        bytes
    }

    /// The record of this binary form; whether its signature holds is for [`Record::verify`] to say.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let (kind, rest) = bytes.split_first().ok_or(RecordError::Malformed)?;
        match *kind {
            1 => ProviderRecord::decode(rest).map(Record::Provider),
            2 => NameRecord::decode(rest).map(Record::Name),
            3 => PeerRecord::decode(rest).map(Record::Peer),
            4 => IpnsRecord::decode(rest).map(Record::Ipns),
            _ => Err(RecordError::Malformed),
        }
    }

    /// Whether the record keeps its bounds, is signed by whom it must be, and is valid at `now_ms`.
    pub fn verify(&self, now_ms: u64) -> Result<(), RecordError> {
        // Times first: they cost nothing, and a signature costs fifty microseconds.
        if self.kept_until_ms() <= now_ms {
            return Err(RecordError::Expired);
        }
        match self {
            Record::Provider(record) => not_from_the_future(record.issued_ms, now_ms).and_then(|()| record.verify()),
            Record::Name(record) => not_from_the_future(record.issued_ms, now_ms).and_then(|()| record.verify()),
            Record::Peer(record) if record.expires_ms > now_ms.saturating_add(TTL_MAX_MS + CLOCK_SKEW_MS) => {
                Err(RecordError::Lifetime)
            }
            Record::Peer(record) => record.verify(),
            Record::Ipns(record) => Ok(record.verify()?),
        }
    }
}

fn not_from_the_future(issued_ms: u64, now_ms: u64) -> Result<(), RecordError> {
    if issued_ms > now_ms.saturating_add(CLOCK_SKEW_MS) { Err(RecordError::NotYet) } else { Ok(()) }
}

/// Milliseconds from `issued_ms` to `expires_ms`, if a record may last so long.
fn lifetime_ms(issued_ms: u64, expires_ms: u64) -> Result<u64, RecordError> {
    let ttl_ms = expires_ms.checked_sub(issued_ms).ok_or(RecordError::Lifetime)?;
    if ttl_ms <= TTL_MAX_MS { Ok(ttl_ms) } else { Err(RecordError::Lifetime) }
}

pub(crate) fn check_addrs(addrs: &[Multiaddr]) -> Result<(), RecordError> {
    let is_allowed = |addr: &Multiaddr| (1..=ADDR_BYTES_MAX).contains(&addr.len());
    if addrs.len() <= ADDRS_MAX && addrs.iter().all(is_allowed) { Ok(()) } else { Err(RecordError::Addresses) }
}

fn check_protocols(protocols: &[String]) -> Result<(), RecordError> {
    let is_allowed = |name: &String| {
        (1..=PROTOCOL_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let is_allowed = protocols.len() <= PROTOCOLS_MAX && protocols.iter().all(is_allowed);
    if is_allowed { Ok(()) } else { Err(RecordError::Protocols) }
}

pub(crate) fn put_addrs(out: &mut Vec<u8>, addrs: &[Multiaddr]) {
    put_number(out, addrs.len() as u64);
    addrs.iter().for_each(|addr| put_bytes(out, addr.as_ref()));
}

pub(crate) fn take_addrs(reader: &mut Reader<'_>) -> Result<Vec<Multiaddr>, RecordError> {
    let count = reader.count(ADDRS_MAX)?;
    let mut addrs = Vec::with_capacity(count);
    for _ in 0..count {
        let bytes = reader.bytes(ADDR_BYTES_MAX)?;
        if bytes.is_empty() {
            return Err(RecordError::Malformed);
        }
        addrs.push(Multiaddr::try_from(bytes.to_vec()).map_err(|_| RecordError::Malformed)?);
    }
    Ok(addrs)
}

pub(crate) fn put_protocols(out: &mut Vec<u8>, protocols: &[String]) {
    put_number(out, protocols.len() as u64);
    protocols.iter().for_each(|name| put_bytes(out, name.as_bytes()));
}

pub(crate) fn take_protocols(reader: &mut Reader<'_>) -> Result<Vec<String>, RecordError> {
    let count = reader.count(PROTOCOLS_MAX)?;
    let mut protocols = Vec::with_capacity(count);
    for _ in 0..count {
        protocols.push(reader.text(PROTOCOL_BYTES_MAX)?.to_owned());
    }
    check_protocols(&protocols)?;
    Ok(protocols)
}

/// The bytes that are signed: what kind of record it is, then the record without its signature. The kind keeps a
/// signature over one thing from being one over another.
fn signed_bytes(domain: &[u8], put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = domain.to_vec();
    put(&mut bytes);
    bytes
}
