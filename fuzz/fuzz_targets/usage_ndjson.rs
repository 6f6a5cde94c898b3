//! Runs `fuzz::usage::ndjson` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::usage::ndjson(bytes));
