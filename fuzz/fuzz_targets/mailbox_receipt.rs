//! Runs `fuzz::mailbox::receipt` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::mailbox::receipt(bytes));
