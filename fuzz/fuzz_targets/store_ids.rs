//! Runs `fuzz::store::ids` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::store::ids(bytes));
