//! Any bytes are a body of the index's HTTP surface, an id, a filter, or a clear refusal.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ron_api::read_any_index_body(bytes));
