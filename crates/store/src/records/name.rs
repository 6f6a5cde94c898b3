//! Name records: the owner of a namespace says what content a label stands for.

use ron_types::limits::records::LABEL_BYTES_MAX;

use super::{RecordError, SIGNATURE_BYTES, TTL_MAX_MS, lifetime_ms, signed_bytes};
use crate::bytes_io::{Reader, put_bytes, put_number};
use crate::content_id::CID_BYTES_MAX;
use crate::name::is_label;
use crate::{ContentId, Key, Name, PublicKey, Signer};

const DOMAIN: &[u8] = b"macronode/name/1\0";

/// A label in the namespace of a key stands for content, says the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRecord {
    /// Label in the namespace.
    pub label: String,
    /// Key whose namespace it is, and which signed.
    pub owner: PublicKey,
    /// What the name stands for.
    pub value: ContentId,
    /// The highest valid sequence wins.
    pub sequence: u64,
    /// Unix milliseconds at which it was signed.
    pub issued_ms: u64,
    /// Unix milliseconds at which it is over; that of `issued_ms` takes the name back.
    pub expires_ms: u64,
    /// Ed25519 signature over all of the above.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl NameRecord {
    /// Signs a record about `label` in the namespace of the signer.
    pub fn sign(
        label: &str,
        value: ContentId,
        sequence: u64,
        issued_ms: u64,
        expires_ms: u64,
        signer: &dyn Signer,
    ) -> Result<Self, RecordError> {
        let (label, owner, signature) = (label.to_owned(), signer.public_key(), [0; SIGNATURE_BYTES]);
        let mut record = NameRecord { label, owner, value, sequence, issued_ms, expires_ms, signature };
        record.check_bounds()?;
        record.signature = signer.sign(&record.signed_bytes());
        Ok(record)
    }

    /// The name that it is about.
    pub fn name(&self) -> Result<Name, RecordError> {
        Name::new(&self.label, Some(self.owner)).map_err(|_| RecordError::Label)
    }

    /// Position of the name in the key space.
    pub fn key(&self) -> Key {
        Key::of_owned_label(&self.owner, &self.label)
    }

    /// Whether it takes back what earlier records said: the name stands for nothing from then on.
    pub fn withdraws(&self) -> bool {
        self.expires_ms == self.issued_ms
    }

    /// Unix milliseconds until which a node keeps it: a withdrawal outlasts all that it can withdraw.
    pub fn kept_until_ms(&self) -> u64 {
        if self.withdraws() { self.issued_ms.saturating_add(TTL_MAX_MS) } else { self.expires_ms }
    }

    /// Whether it keeps its bounds and is signed by its owner. Time is for [`crate::Record::verify`] to judge.
    pub fn verify(&self) -> Result<(), RecordError> {
        self.check_bounds()?;
        let is_signed = self.owner.verifies(&self.signed_bytes(), &self.signature);
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
        let mut reader = Reader::new(bytes);
        let owner = PublicKey(reader.array()?);
        let label = reader.text(LABEL_BYTES_MAX)?.to_owned();
        let value = take_content_id(&mut reader)?;
        let (sequence, issued_ms, ttl_ms) = (reader.number()?, reader.number()?, reader.number()?);
        let expires_ms = issued_ms.checked_add(ttl_ms).ok_or(RecordError::Lifetime)?;
        let signature = reader.array()?;
        reader.end()?;
        let record = NameRecord { label, owner, value, sequence, issued_ms, expires_ms, signature };
        record.check_bounds()?;
        Ok(record)
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        self.put_said(out);
        out.extend_from_slice(&self.signature);
    }

    fn put_said(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.owner.0);
        put_bytes(out, self.label.as_bytes());
        put_bytes(out, &self.value.cid_bytes());
        put_number(out, self.sequence);
        put_number(out, self.issued_ms);
        put_number(out, self.expires_ms.saturating_sub(self.issued_ms));
    }

    fn signed_bytes(&self) -> Vec<u8> {
        signed_bytes(DOMAIN, |bytes| self.put_said(bytes))
    }

    fn check_bounds(&self) -> Result<(), RecordError> {
        if !is_label(&self.label) {
            return Err(RecordError::Label);
        }
        lifetime_ms(self.issued_ms, self.expires_ms).map(|_| ())
    }
}

/// An id as a CID of version 1; version 0 is refused, as it would be a second form of the same id.
pub(crate) fn take_content_id(reader: &mut Reader<'_>) -> Result<ContentId, RecordError> {
    let bytes = reader.bytes(CID_BYTES_MAX)?;
    let id = ContentId::from_cid_bytes(bytes).map_err(|_| RecordError::Malformed)?;
    if bytes.first() == Some(&1) { Ok(id) } else { Err(RecordError::Malformed) }
}
