//! Compression survives, and no payload inflates beyond its bounds.

use oap::FRAME_BYTES_MAX;
use oap::compress::{InflateError, RATIO_MAX, deflate, inflate};
use proptest::prelude::*;

/// Text-like bytes, which compress by about a half.
fn letters(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"etaoinsh"[(state >> 61) as usize]
    };
    (0..len).map(|_| letter()).collect()
}

proptest! {
    #[test]
    fn what_was_deflated_inflates(len in 0_usize..20_000, seed: u64, level in 1..4) {
        let payload = letters(len, seed);
        if let Some(deflated) = deflate(&payload, level) {
            prop_assert!(deflated.len() < payload.len());
            prop_assert_eq!(inflate(&deflated, FRAME_BYTES_MAX), Ok(payload.into()));
        } else {
            prop_assert!(len < 100, "{} letters compress", len);
        }
    }

    #[test]
    fn noise_stays_within_its_bounds(
        noise in proptest::collection::vec(any::<u8>(), 0..64),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut deflated = deflate(&letters(3_000, 1), 1).expect("letters compress").to_vec();
        for (place, byte) in changes {
            let at = place.index(deflated.len());
            deflated[at] = byte;
        }
        for bytes in [noise, deflated] {
            if let Ok(inflated) = inflate(&bytes, 4096) {
                prop_assert!(inflated.len() <= bytes.len() * RATIO_MAX && inflated.len() <= 4096 - 38);
            }
        }
    }
}

#[test]
fn the_largest_payload_survives() {
    let payload = letters(FRAME_BYTES_MAX - oap::HEADER_BYTES, 7);
    let deflated = deflate(&payload, 1).expect("letters compress");
    assert_eq!(inflate(&deflated, FRAME_BYTES_MAX).expect("within bounds"), payload);
    let max = 65_536 - oap::HEADER_BYTES;
    assert_eq!(inflate(&deflated, 65_536), Err(InflateError::TooLarge { max }));
}

#[test]
fn what_gains_nothing_or_too_much_is_sent_plain() {
    assert_eq!(deflate(b"", 1), None);
    assert_eq!(deflate(b"hi", 1), None);
    // A mebibyte of zeros shrinks to about fifty bytes, and the other side would take it for a bomb.
    assert_eq!(deflate(&vec![0; 1 << 20], 1), None);
}

#[test]
fn a_real_bomb_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).expect("compresses");
    assert_eq!(inflate(&bomb, FRAME_BYTES_MAX).map_err(|error| error.code()), Err(400), "its window is too large");
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(20).expect("a window of 1 MiB");
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 64 << 20), &mut encoder).expect("compresses");
    let bomb = encoder.finish().expect("compresses");
    assert_eq!(inflate(&bomb, FRAME_BYTES_MAX).map_err(|error| error.code()), Err(413));
}
