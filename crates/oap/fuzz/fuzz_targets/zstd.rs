//! Any bytes inflate within their bounds or are refused; what was deflated inflates to what it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use oap::compress::{RATIO_MAX, deflate, inflate};
use oap::{FRAME_BYTES_MAX, HEADER_BYTES};

fuzz_target!(|bytes: &[u8]| {
    for max in [1024, FRAME_BYTES_MAX] {
        if let Ok(inflated) = inflate(bytes, max) {
            assert!(inflated.len() <= bytes.len() * RATIO_MAX && inflated.len() <= max - HEADER_BYTES);
        }
    }
    if let Some(deflated) = deflate(bytes, 1) {
        assert_eq!(inflate(&deflated, FRAME_BYTES_MAX).as_deref(), Ok(bytes));
    }
});
