//! Runs `fuzz::rewarder::paid` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::rewarder::paid(bytes));
