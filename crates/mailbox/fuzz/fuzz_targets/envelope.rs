//! Any bytes give an envelope or an error, and an envelope survives being written and read again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use svc_mailbox::envelope::Envelope;

fuzz_target!(|bytes: &[u8]| {
    let body = Bytes::copy_from_slice(bytes);
    if let Ok(envelope) = Envelope::decode(&body) {
        let written = envelope.encode();
        assert_eq!(written, body);
        assert_eq!(Envelope::decode(&written).as_ref(), Ok(&envelope));
    }
});
