//! Runs `fuzz::usage::csv` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::usage::csv(bytes));
