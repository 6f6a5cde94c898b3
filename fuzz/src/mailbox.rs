//! The mailbox: bodies of its HTTP surface and payloads over OAP, envelopes, receipts and records of its log.

use bytes::Bytes;
use svc_mailbox::envelope::Envelope;
use svc_mailbox::record::Record;
use svc_mailbox::types::MessageId;
use svc_mailbox::{Receipt, Secret};

use crate::Target;

mod bodies;
mod stored;

/// Targets of the crate and of its surface.
pub const TARGETS: [Target; 4] = [
    Target { name: "mailbox_record", body: record, is_read: is_record, seeds: stored::records },
    Target { name: "mailbox_envelope", body: envelope, is_read: is_envelope, seeds: stored::envelopes },
    Target { name: "mailbox_receipt", body: receipt, is_read: is_receipt_or_id, seeds: stored::receipts },
    Target { name: "mailbox_dto", body: dto, is_read: ron_api::read_any_mailbox_body, seeds: bodies::seeds },
];

/// Any bytes give a record or an error, and a record survives being written and read again.
pub fn record(bytes: &[u8]) {
    if let Ok(record) = Record::decode(bytes) {
        let mut written = Vec::new();
        record.encode(&mut written);
        assert_eq!(Record::decode(&written).as_ref(), Ok(&record));
    }
}

fn is_record(bytes: &[u8]) -> bool {
    Record::decode(bytes).is_ok()
}

/// Any bytes give an envelope or an error, and an envelope survives being written and read again.
pub fn envelope(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    if let Ok(envelope) = Envelope::decode(&body) {
        let written = envelope.encode();
        assert_eq!(written, body);
        assert_eq!(Envelope::decode(&written).as_ref(), Ok(&envelope));
    }
}

fn is_envelope(bytes: &[u8]) -> bool {
    Envelope::decode(&Bytes::copy_from_slice(bytes)).is_ok()
}

/// Any text gives a receipt or an error, a receipt survives being written, and none is accepted that was not given.
pub fn receipt(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(receipt) = text.parse::<Receipt>() {
        assert_eq!(receipt.to_string().parse::<Receipt>(), Ok(receipt));
        assert!(Secret::new([7; 32]).check(&receipt).is_err());
    }
    if let Ok(id) = text.parse::<MessageId>() {
        assert_eq!(id.to_string().parse::<MessageId>(), Ok(id));
    }
}

fn is_receipt_or_id(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.parse::<Receipt>().is_ok() || text.parse::<MessageId>().is_ok()
}

/// Any bytes are a body of the HTTP surface or a clear refusal, whatever route they are sent to.
pub fn dto(bytes: &[u8]) {
    ron_api::read_any_mailbox_body(bytes);
}
