//! Runs `fuzz::rewarder::envelope` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::rewarder::envelope(bytes));
