//! Runs `fuzz::calculus::policy` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::calculus::policy(bytes));
