//! Any bytes inflate within their bounds or are refused; what was deflated inflates to what it was, and what was then
//! changed on its way keeps to the bounds too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use oap::compress::{RATIO_MAX, deflate, inflate};
use oap::{FRAME_BYTES_MAX, HEADER_BYTES};

/// The first bytes of a zstd frame: noise does not come to them by itself, because the library is not instrumented.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[&MAGIC, bytes].concat());
    // The first three bytes say where and how the rest, deflated, is changed.
    let Some((&[high, low, change], content)) = bytes.split_first_chunk::<3>() else { return };
    // Repeated, so that there is something to deflate.
    let content = content.repeat(1 + usize::from(change % 8));
    if let Some(deflated) = deflate(&content, 1) {
        assert_eq!(inflate(&deflated, FRAME_BYTES_MAX).as_deref(), Ok(&content[..]));
        let mut changed = deflated.to_vec();
        let at = usize::from(u16::from_be_bytes([high, low])) % changed.len();
        changed[at] ^= change;
        check(&changed);
        check(&changed[..at]);
    }
});

fn check(bytes: &[u8]) {
    for max in [1024, FRAME_BYTES_MAX] {
        if let Ok(inflated) = inflate(bytes, max) {
            assert!(inflated.len() <= bytes.len() * RATIO_MAX && inflated.len() <= max - HEADER_BYTES);
        }
    }
}
