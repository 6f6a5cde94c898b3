//! Runs `fuzz::transport::scheduler` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::transport::scheduler(bytes));
