//! Provider records: a peer has the content at a key, and can be reached at these addresses.

use multiaddr::Multiaddr;
use ron_types::limits::records::REGION_BYTES_MAX;

use super::{
    RecordError, SIGNATURE_BYTES, TTL_MAX_MS, check_addrs, check_protocols, lifetime_ms, put_addrs, put_protocols,
    signed_bytes, take_addrs, take_protocols,
};
use crate::bytes_io::{Reader, put_bytes, put_number};
use crate::peer::PEER_ID_BYTES_MAX;
use crate::{Key, PeerId, PublicKey, Signer};

const DOMAIN: &[u8] = b"macronode/provider/1\0";
/// Bits of the byte that says what stands in a record; a record without a region has the form it always had.
const VOUCHED_FOR: u8 = 1;
const HAS_REGION: u8 = 2;

/// A peer has the content at a key, says the signer: the peer itself, or somebody who vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRecord {
    /// Position of the content.
    pub key: Key,
    /// Who has it.
    pub peer: PeerId,
    /// Where the peer is reached.
    pub addrs: Vec<Multiaddr>,
    /// Protocols by which the content can be had from it.
    pub protocols: Vec<String>,
    /// Where in the world the provider says it is; none where it does not say.
    pub region: Option<String>,
    /// Later records of the signer about the peer and the key have higher numbers.
    pub sequence: u64,
    /// Unix milliseconds at which it was signed.
    pub issued_ms: u64,
    /// Unix milliseconds at which it is over.
    pub expires_ms: u64,
    /// Key of whoever says so.
    pub signer: PublicKey,
    /// Ed25519 signature over all of the above.
    pub signature: [u8; SIGNATURE_BYTES],
}

/// What a provider record says, before it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderFields {
    /// Position of the content.
    pub key: Key,
    /// Who has it.
    pub peer: PeerId,
    /// Where the peer is reached.
    pub addrs: Vec<Multiaddr>,
    /// Protocols by which the content can be had from it.
    pub protocols: Vec<String>,
    /// Where in the world the provider is; none to say nothing.
    pub region: Option<String>,
    /// Higher than that of any earlier record of the signer about the peer and the key.
    pub sequence: u64,
    /// Unix milliseconds of now.
    pub issued_ms: u64,
    /// Unix milliseconds at which it is over; that of now, without addresses, withdraws what was said before.
    pub expires_ms: u64,
}

impl ProviderRecord {
    /// Signs a record.
    pub fn sign(fields: ProviderFields, signer: &dyn Signer) -> Result<Self, RecordError> {
        let ProviderFields { key, peer, addrs, protocols, region, sequence, issued_ms, expires_ms } = fields;
        let (signer_key, signature) = (signer.public_key(), [0; SIGNATURE_BYTES]);
        let mut record = ProviderRecord {
            key,
            peer,
            addrs,
            protocols,
            region,
            sequence,
            issued_ms,
            expires_ms,
            signer: signer_key,
            signature,
        };
        record.check_bounds()?;
        record.signature = signer.sign(&record.signed_bytes());
        Ok(record)
    }

    /// Whether the peer itself says so.
    pub fn is_self_signed(&self) -> bool {
        self.peer.public_key() == Some(self.signer)
    }

    /// Whether it takes back what earlier records of the signer said about the peer and the key.
    pub fn withdraws(&self) -> bool {
        self.addrs.is_empty() && self.expires_ms == self.issued_ms
    }

    /// Unix milliseconds until which a node keeps it: a withdrawal outlasts all that it can withdraw.
    pub fn kept_until_ms(&self) -> u64 {
        if self.withdraws() { self.issued_ms.saturating_add(TTL_MAX_MS) } else { self.expires_ms }
    }

    /// Whether it keeps its bounds and is signed by its signer. Time is for [`crate::Record::verify`] to judge.
    pub fn verify(&self) -> Result<(), RecordError> {
        self.check_bounds()?;
        let is_signed = self.signer.verifies(&self.signed_bytes(), &self.signature);
        if is_signed { Ok(()) } else { Err(RecordError::Signature) }
    }

    /// Binary form.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        self.encode_into(&mut bytes);
        bytes
    }

    /// The record of this binary form.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let (key, rest) = bytes.split_first_chunk().ok_or(RecordError::Malformed)?;
        ProviderRecord::decode_at(Key(*key), rest)
    }

    /// The record at `key` of what [`ProviderRecord::encode_at_key`] wrote.
    pub(crate) fn decode_at(key: Key, bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        let signer = PublicKey(reader.array()?);
        let form = reader.byte()?;
        if form & !(VOUCHED_FOR | HAS_REGION) != 0 {
            return Err(RecordError::Malformed);
        }
        let is_vouched = form & VOUCHED_FOR != 0;
        let peer = match is_vouched {
            true => PeerId::from_bytes(reader.bytes(PEER_ID_BYTES_MAX)?).map_err(|_| RecordError::Malformed)?,
            false => signer.peer_id(),
        };
        let addrs = take_addrs(&mut reader)?;
        let protocols = take_protocols(&mut reader)?;
        let region = match form & HAS_REGION != 0 {
            true => Some(reader.text(REGION_BYTES_MAX)?.to_owned()),
            false => None,
        };
        let (sequence, issued_ms, ttl_ms) = (reader.number()?, reader.number()?, reader.number()?);
        let expires_ms = issued_ms.checked_add(ttl_ms).ok_or(RecordError::Lifetime)?;
        let signature = reader.array()?;
        reader.end()?;
        let record =
            ProviderRecord { key, peer, addrs, protocols, region, sequence, issued_ms, expires_ms, signer, signature };
        // A record has one binary form: nobody vouches for himself.
        if is_vouched == record.is_self_signed() {
            return Err(RecordError::Malformed);
        }
        record.check_bounds()?;
        Ok(record)
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.0);
        self.encode_at_key(out);
    }

    /// All but the key, for the store, whose rows begin with it.
    pub(crate) fn encode_at_key(&self, out: &mut Vec<u8>) {
        self.put_said(out);
        out.extend_from_slice(&self.signature);
    }

    /// What is said about the key. The peer of a self-signed record is the signer, so it is not written twice.
    fn put_said(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.signer.0);
        let is_vouched = !self.is_self_signed();
        let region_form = if self.region.is_some() { HAS_REGION } else { 0 };
        out.push(region_form | if is_vouched { VOUCHED_FOR } else { 0 });
        if is_vouched {
            put_bytes(out, self.peer.as_bytes());
        }
        put_addrs(out, &self.addrs);
        put_protocols(out, &self.protocols);
        self.region.iter().for_each(|region| put_bytes(out, region.as_bytes()));
        put_number(out, self.sequence);
        put_number(out, self.issued_ms);
        put_number(out, self.expires_ms.saturating_sub(self.issued_ms));
    }

    fn signed_bytes(&self) -> Vec<u8> {
        signed_bytes(DOMAIN, |bytes| {
            bytes.extend_from_slice(&self.key.0);
            self.put_said(bytes);
        })
    }

    fn check_bounds(&self) -> Result<(), RecordError> {
        check_addrs(&self.addrs)?;
        check_protocols(&self.protocols)?;
        if !self.region.as_deref().is_none_or(is_region) {
            return Err(RecordError::Region);
        }
        lifetime_ms(self.issued_ms, self.expires_ms).map(|_| ())
    }
}

/// Whether a text names a region: a word that people chose, of lower-case letters, digits and hyphens.
fn is_region(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=REGION_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}
