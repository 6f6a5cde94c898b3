//! Any bytes are a record in its one form, or none; and none that nobody signed verifies.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ron_store::{Record, RecordKind};

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = Record::decode(bytes) else { return };
    assert_eq!(record.encode(), bytes);
    assert_eq!(bytes[0], record.kind() as u8);
    assert!(!record.supersedes(&record));
    // A signature is not found by chance, but for keys with which anything is one, and those are refused.
    if record.kind() != RecordKind::Ipns {
        assert!(record.verify(record.kept_until_ms().saturating_sub(1)).is_err());
    }
});
