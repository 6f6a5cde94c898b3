//! Peer records: a node says where it is reached.

use multiaddr::Multiaddr;

use super::{RecordError, SIGNATURE_BYTES, check_addrs, put_addrs, signed_bytes, take_addrs};
use crate::bytes_io::{Reader, put_number};
use crate::{PeerId, PublicKey, Signer};

const DOMAIN: &[u8] = b"macronode/peer/1\0";

/// A node is reached at these addresses, says the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// The node, whose id contains the key that signed.
    pub peer: PeerId,
    /// Where it is reached.
    pub addrs: Vec<Multiaddr>,
    /// Later records of the node have higher numbers.
    pub sequence: u64,
    /// Unix milliseconds at which it is over.
    pub expires_ms: u64,
    /// Ed25519 signature over all of the above.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl PeerRecord {
    /// Signs a record about the signer itself.
    pub fn sign(
        addrs: Vec<Multiaddr>,
        sequence: u64,
        expires_ms: u64,
        signer: &dyn Signer,
    ) -> Result<Self, RecordError> {
        let (peer, signature) = (signer.public_key().peer_id(), [0; SIGNATURE_BYTES]);
        let mut record = PeerRecord { peer, addrs, sequence, expires_ms, signature };
        check_addrs(&record.addrs)?;
        record.signature = signer.sign(&record.signed_bytes());
        Ok(record)
    }

    /// Whether it keeps its bounds and is signed by the node. Time is for [`crate::Record::verify`] to judge.
    pub fn verify(&self) -> Result<(), RecordError> {
        check_addrs(&self.addrs)?;
        let signer = self.peer.public_key().ok_or(RecordError::Signer)?;
        let is_signed = signer.verifies(&self.signed_bytes(), &self.signature);
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
        let peer = PublicKey(reader.array()?).peer_id();
        let addrs = take_addrs(&mut reader)?;
        let (sequence, expires_ms) = (reader.number()?, reader.number()?);
        let signature = reader.array()?;
        reader.end()?;
        Ok(PeerRecord { peer, addrs, sequence, expires_ms, signature })
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        self.put_said(out);
        out.extend_from_slice(&self.signature);
    }

    fn put_said(&self, out: &mut Vec<u8>) {
        // A peer without an Ed25519 key cannot have signed; zeros make its record one that verifies with no key.
        out.extend_from_slice(&self.peer.ed25519().unwrap_or_default());
        put_addrs(out, &self.addrs);
        put_number(out, self.sequence);
        put_number(out, self.expires_ms);
    }

    fn signed_bytes(&self) -> Vec<u8> {
        signed_bytes(DOMAIN, |bytes| self.put_said(bytes))
    }
}
