//! Runs `fuzz::oap::stream` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::oap::stream(bytes));
