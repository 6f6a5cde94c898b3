//! Any bytes are a message of the index protocol that survives being written, or none; neither takes more memory than
//! its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ron_store::wire::{ANSWER_BYTES_MAX, Answer, Request};

fuzz_target!(|bytes: &[u8]| {
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
});
