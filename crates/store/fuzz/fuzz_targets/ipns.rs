//! Any bytes are an IPNS record of a name or refused, and what is taken is handed on as it came.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ron_store::{IpnsRecord, PeerId, Record};

fuzz_target!(|bytes: &[u8]| {
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
});
