//! Runs `fuzz::index::dto` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::index::dto(bytes));
