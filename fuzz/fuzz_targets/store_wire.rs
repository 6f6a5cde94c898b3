//! Runs `fuzz::store::wire` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::store::wire(bytes));
