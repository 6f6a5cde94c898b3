//! Runs `fuzz::oap::hello` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::oap::hello(bytes));
