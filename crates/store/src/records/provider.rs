//! Provider records: a peer has the content at a key, and can be reached at these addresses.

use multiaddr::Multiaddr;

use super::{
    RecordError, SIGNATURE_BYTES, TTL_MAX_MS, check_addrs, check_protocols, lifetime_ms, put_addrs, put_protocols,
    signed_bytes, take_addrs, take_protocols,
};
use crate::bytes_io::{Reader, put_bytes, put_number};
use crate::peer::PEER_ID_BYTES_MAX;
use crate::{Key, PeerId, PublicKey, Signer};

const DOMAIN: &[u8] = b"macronode/provider/1\0";
const BY_THE_PEER: u8 = 0;
const VOUCHED_FOR: u8 = 1;

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
        let ProviderFields { key, peer, addrs, protocols, sequence, issued_ms, expires_ms } = fields;
        let (signer_key, signature) = (signer.public_key(), [0; SIGNATURE_BYTES]);
        let mut record = ProviderRecord {
            key,
            peer,
            addrs,
            protocols,
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
        let peer = match reader.byte()? {
            BY_THE_PEER => signer.peer_id(),
            VOUCHED_FOR => PeerId::from_bytes(reader.bytes(PEER_ID_BYTES_MAX)?).map_err(|_| RecordError::Malformed)?,
            _ => return Err(RecordError::Malformed),
        };
        let is_vouched = bytes[32] == VOUCHED_FOR;
        let addrs = take_addrs(&mut reader)?;
        let protocols = take_protocols(&mut reader)?;
        let (sequence, issued_ms, ttl_ms) = (reader.number()?, reader.number()?, reader.number()?);
        let expires_ms = issued_ms.checked_add(ttl_ms).ok_or(RecordError::Lifetime)?;
        let signature = reader.array()?;
        reader.end()?;
        let record = ProviderRecord { key, peer, addrs, protocols, sequence, issued_ms, expires_ms, signer, signature };
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
        if self.is_self_signed() {
            out.push(BY_THE_PEER);
        } else {
            out.push(VOUCHED_FOR);
            put_bytes(out, self.peer.as_bytes());
        }
        put_addrs(out, &self.addrs);
        put_protocols(out, &self.protocols);
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
        lifetime_ms(self.issued_ms, self.expires_ms).map(|_| ())
    }
}
