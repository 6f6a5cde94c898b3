//! Runs `fuzz::rewarder::manifest` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::rewarder::manifest(bytes));
