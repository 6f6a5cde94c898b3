//! Runs `fuzz::mailbox::envelope` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::mailbox::envelope(bytes));
