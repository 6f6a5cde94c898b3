//! Ids of content, keys and names, signed records, IPNS records, and messages of the index protocol.

use multibase::Base;
use ron_store::wire::{ANSWER_BYTES_MAX, Answer, Request};
use ron_store::{ContentId, IpnsRecord, Key, Name, PeerId, PublicKey, Record, RecordKind, Subject};

use crate::Target;

mod ipns_entry;
mod seeds;

/// Targets of the crate.
pub const TARGETS: [Target; 4] = [
    Target { name: "store_ids", body: ids, is_read: is_id, seeds: seeds::ids },
    Target { name: "store_records", body: records, is_read: is_record, seeds: seeds::records },
    Target { name: "store_wire", body: wire, is_read: is_message, seeds: seeds::wire },
    Target { name: "store_ipns", body: ipns, is_read: is_ipns, seeds: seeds::ipns },
];

const BASES: [Base; 6] =
    [Base::Base2, Base::Base10, Base::Base16Upper, Base::Base32PadLower, Base::Base36Lower, Base::Base64Url];

/// Any text in a path is an id that is written as it is read, or none; a CID is the same in every base.
pub fn ids(bytes: &[u8]) {
    if let Ok(id) = ContentId::from_cid_bytes(bytes) {
        check_content(&id);
    }
    if let Ok(peer) = PeerId::from_bytes(bytes) {
        check_peer(&peer);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(subject) = text.parse::<Subject>() {
        assert_eq!(subject.to_string().parse(), Ok(subject.clone()));
        if let Subject::Content(id) = subject {
            check_content(&id);
        }
    }
    if let Ok(name) = text.parse::<Name>() {
        assert_eq!(name.to_string(), text);
    }
    if let Ok(peer) = text.parse::<PeerId>() {
        check_peer(&peer);
    }
    if let Ok(key) = text.parse::<Key>() {
        assert_eq!(key.to_string(), text);
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.peer_id().public_key(), Some(key));
    }
}

fn check_content(id: &ContentId) {
    assert_eq!(ContentId::from_cid_bytes(&id.cid_bytes()), Ok(*id));
    assert_eq!(id.to_string().parse(), Ok(*id));
    for base in BASES {
        assert_eq!(multibase::encode(base, id.cid_bytes()).parse(), Ok(*id));
    }
    if let Some(b3) = id.b3_text() {
        assert!(b3.len() == 67 && b3.parse() == Ok(*id));
    }
}

fn check_peer(peer: &PeerId) {
    assert_eq!(PeerId::from_bytes(peer.as_bytes()), Ok(*peer));
    assert_eq!(peer.cid_text().parse(), Ok(*peer));
    assert_eq!(peer.ed25519().map(|key| PeerId::of_ed25519(&key)).unwrap_or(*peer), *peer);
}

fn is_id(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let is_name = text.parse::<Subject>().is_ok() || text.parse::<PeerId>().is_ok() || text.parse::<Key>().is_ok();
    is_name || ContentId::from_cid_bytes(bytes).is_ok() || PeerId::from_bytes(bytes).is_ok()
}

/// Any bytes are a record in its one form, or none; and none that nobody signed verifies.
pub fn records(bytes: &[u8]) {
    let Ok(record) = Record::decode(bytes) else { return };
    assert_eq!(record.encode(), bytes);
    assert_eq!(bytes[0], record.kind() as u8);
    assert!(!record.supersedes(&record));
    // A signature is not found by chance, but for keys with which anything is one, and those are refused.
    if record.kind() != RecordKind::Ipns {
        assert!(record.verify(record.kept_until_ms().saturating_sub(1)).is_err());
    }
}

fn is_record(bytes: &[u8]) -> bool {
    Record::decode(bytes).is_ok()
}

/// Any bytes are a message of the index protocol that survives being written, or none; neither takes more memory than
/// its bounds.
pub fn wire(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode().as_deref(), Ok(bytes));
        if let Request::Keep { records } = request {
            let split = Request::to_keep(records.clone());
            let joined = split.into_iter().flat_map(|request| match request {
                Request::Keep { records } => records,
                Request::Ask { .. } | Request::Prove { .. } => Vec::new(),
            });
            assert!(joined.eq(records));
        }
    }
    if let Ok(answer) = Answer::decode(bytes) {
        let written = answer.encode();
        assert!(written.len() <= ANSWER_BYTES_MAX);
        assert_eq!(written, bytes);
    }
}

fn is_message(bytes: &[u8]) -> bool {
    Request::decode(bytes).is_ok() || Answer::decode(bytes).is_ok()
}

/// Any bytes behind a key are an IPNS record of its name or refused, and what is taken is handed on as it came.
pub fn ipns(bytes: &[u8]) {
    let Some((key, rest)) = bytes.split_first_chunk::<32>() else { return };
    let name = PeerId::of_ed25519(key);
    if let Ok(record) = IpnsRecord::parse(&name, rest) {
        assert_eq!(record.bytes().as_ref(), rest);
    }
    // The same without the signature, which noise does not come by: everything behind it is reached this way.
    let length = |count: usize| [(count & 0x7f) as u8 | 0x80, (count >> 7) as u8];
    if !(128..10 * 1024).contains(&rest.len()) {
        return;
    }
    let encoded = [&[4, 38], name.as_bytes(), &length(rest.len()), rest].concat();
    if let Ok(record) = Record::decode(&encoded) {
        assert_eq!(record.encode(), encoded);
        assert!(!record.supersedes(&record));
    }
}

fn is_ipns(bytes: &[u8]) -> bool {
    let parsed = bytes.split_first_chunk().map(|(key, rest)| IpnsRecord::parse(&PeerId::of_ed25519(key), rest));
    parsed.is_some_and(|record| record.is_ok())
}
