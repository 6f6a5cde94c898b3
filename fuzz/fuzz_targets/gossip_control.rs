//! Runs `fuzz::gossip::control` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::gossip::control(bytes));
