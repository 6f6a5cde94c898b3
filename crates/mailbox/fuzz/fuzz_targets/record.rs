//! Any bytes give a record or an error, and a record survives being written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_mailbox::record::Record;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::decode(bytes) {
        let mut written = Vec::new();
        record.encode(&mut written);
        assert_eq!(Record::decode(&written).as_ref(), Ok(&record));
    }
});
