//! Any bytes are a body of the HTTP surface or a clear refusal, whatever route they are sent to.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ron_api::read_any_mailbox_body(bytes));
