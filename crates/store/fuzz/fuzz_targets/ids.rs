//! Any text in a path is an id that is written as it is read, or none; a CID is the same in every base.

#![no_main]

use libfuzzer_sys::fuzz_target;
use multibase::Base;
use ron_store::{ContentId, Key, Name, PeerId, PublicKey, Subject};

const BASES: [Base; 6] =
    [Base::Base2, Base::Base10, Base::Base16Upper, Base::Base32PadLower, Base::Base36Lower, Base::Base64Url];

fuzz_target!(|bytes: &[u8]| {
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
});

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
