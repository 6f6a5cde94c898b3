//! What only this node can make: receipts of leases and tags of message ids, both with a key of its own.

use std::fmt;
use std::str::FromStr;

use ron_types::{Error, Kind};

use crate::types::{MessageId, Millis, PartKey, Seq, TopicId};

const FIELDS_BYTES: usize = 26;
const MAC_BYTES: usize = 16;
const RECEIPT_BYTES: usize = FIELDS_BYTES + MAC_BYTES;

/// The node's key for receipts and ids.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// Proof of a lease, handed to a consumer as opaque text. Its fields are only to be trusted after [`Secret::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The partition of the message.
    pub part: PartKey,
    /// Number of the message.
    pub seq: Seq,
    /// Number of the lease, rising for each message.
    pub fence: u32,
    /// When it was taken.
    pub leased_ms: Millis,
    mac: [u8; MAC_BYTES],
}

impl Secret {
    /// A key from stored or random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Secret(bytes)
    }

    /// A receipt for this lease.
    pub fn receipt(&self, part: PartKey, seq: Seq, fence: u32, leased_ms: Millis) -> Receipt {
        let mut receipt = Receipt { part, seq, fence, leased_ms, mac: [0; MAC_BYTES] };
        receipt.mac = self.mac(&receipt);
        receipt
    }

    /// Whether this node gave the receipt.
    pub fn check(&self, receipt: &Receipt) -> Result<(), Error> {
        // The hashes are compared in constant time by their type.
        if blake3::Hash::from_bytes(widen(self.mac(receipt))) == blake3::Hash::from_bytes(widen(receipt.mac)) {
            Ok(())
        } else {
            Err(Error::schema("receipt: not one that this node gave"))
        }
    }

    /// The id of a message.
    pub fn message_id(&self, sent_ms: Millis, seq: Seq) -> MessageId {
        let mut fields = [0_u8; 16];
        fields[..8].copy_from_slice(&sent_ms.to_le_bytes());
        fields[8..].copy_from_slice(&seq.to_le_bytes());
        let hash = blake3::keyed_hash(&self.0, &fields);
        let [a, b, c, d, ..] = *hash.as_bytes();
        MessageId { sent_ms, seq, tag: u32::from_le_bytes([a, b, c, d]) }
    }

    /// Whether this node gave the id.
    pub fn check_id(&self, id: MessageId) -> Result<(), Error> {
        match self.message_id(id.sent_ms, id.seq) == id {
            true => Ok(()),
            false => Err(Error::new(Kind::NotFound, format!("message {id} is not one of this node"))),
        }
    }

    fn mac(&self, receipt: &Receipt) -> [u8; MAC_BYTES] {
        let hash = blake3::keyed_hash(&self.0, &receipt.fields());
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
        mac
    }
}

fn widen(mac: [u8; MAC_BYTES]) -> [u8; 32] {
    let mut wide = [0; 32];
    wide[..MAC_BYTES].copy_from_slice(&mac);
    wide
}

impl Receipt {
    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut fields = [0; FIELDS_BYTES];
        fields[0..4].copy_from_slice(&self.part.topic.0.to_le_bytes());
        fields[4..6].copy_from_slice(&self.part.partition.to_le_bytes());
        fields[6..14].copy_from_slice(&self.seq.to_le_bytes());
        fields[14..18].copy_from_slice(&self.fence.to_le_bytes());
        fields[18..26].copy_from_slice(&self.leased_ms.to_le_bytes());
        fields
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; RECEIPT_BYTES];
        bytes[..FIELDS_BYTES].copy_from_slice(&self.fields());
        bytes[FIELDS_BYTES..].copy_from_slice(&self.mac);
        base64::display::Base64Display::new(&bytes, &base64::engine::general_purpose::URL_SAFE_NO_PAD).fmt(formatter)
    }
}

impl FromStr for Receipt {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        use base64::Engine as _;
        let malformed = || Error::schema("receipt: not one that this node gave");
        let mut bytes = [0; RECEIPT_BYTES + 1];
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let length = engine.decode_slice(text, &mut bytes).map_err(|_| malformed())?;
        if length != RECEIPT_BYTES {
            return Err(malformed());
        }
        let part = PartKey {
            topic: TopicId(u32::from_le_bytes(take(&bytes, 0))),
            partition: u16::from_le_bytes(take(&bytes, 4)),
        };
        Ok(Receipt {
            part,
            seq: u64::from_le_bytes(take(&bytes, 6)),
            fence: u32::from_le_bytes(take(&bytes, 14)),
            leased_ms: u64::from_le_bytes(take(&bytes, 18)),
            mac: take(&bytes, FIELDS_BYTES),
        })
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> (Secret, Receipt) {
        let secret = Secret::new([7; 32]);
        let part = PartKey { topic: TopicId(3), partition: 1 };
        let receipt = secret.receipt(part, 42, 2, 1_700_000_000_000);
        (secret, receipt)
    }

    #[test]
    fn a_receipt_survives_as_text_and_is_known_again() {
        let (secret, receipt) = receipt();
        let back: Receipt = receipt.to_string().parse().expect("its own text");
        assert_eq!(back, receipt);
        assert!(secret.check(&back).is_ok());
    }

    #[test]
    fn a_receipt_changed_anywhere_or_of_another_node_is_refused() {
        let (secret, receipt) = receipt();
        let text = receipt.to_string();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ascii");
            let accepted = changed.parse::<Receipt>().is_ok_and(|receipt| secret.check(&receipt).is_ok());
            assert!(!accepted, "changed at {at}");
        }
        assert!(Secret::new([8; 32]).check(&receipt).is_err());
        for text in ["", "AAAA", "not base64!", &"A".repeat(500)] {
            assert!(text.parse::<Receipt>().is_err(), "{text}");
        }
    }

    #[test]
    fn message_ids_sort_by_time_and_cannot_be_made_up() {
        let (secret, _) = receipt();
        let id = secret.message_id(1_700_000_000_000, 5);
        assert_eq!(id.to_string().parse::<MessageId>().expect("its own text"), id);
        let uuid = id.as_uuid();
        for text in [&uuid, &uuid.to_uppercase()] {
            assert_eq!(text.parse::<MessageId>().expect("the same bits"), id, "{text}");
        }
        let simple = uuid.replace('-', "");
        for text in [&simple, &uuid[1..], &format!("{uuid}-"), &uuid.replacen('-', "+", 1), &uuid.replacen('0', "g", 1)]
        {
            assert!(text.parse::<MessageId>().is_err(), "{text}");
        }
        assert!(secret.check_id(id).is_ok());
        assert!(secret.check_id(MessageId { seq: 6, ..id }).is_err());
        assert!(secret.message_id(1_700_000_000_001, 1).to_string() > id.to_string());
    }
}
