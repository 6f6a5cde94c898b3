//! Runs `fuzz::usage::parquet` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::usage::silence_panics(), |bytes: &[u8]| fuzz::usage::parquet(bytes));
