//! Runs `fuzz::mailbox::record` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::mailbox::record(bytes));
