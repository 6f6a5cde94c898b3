//! Runs `fuzz::oap::zstd` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::oap::zstd(bytes));
