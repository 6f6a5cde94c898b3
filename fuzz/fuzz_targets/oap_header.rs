//! Runs `fuzz::oap::header` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::oap::header(bytes));
