//! Runs `fuzz::store::records` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::store::records(bytes));
