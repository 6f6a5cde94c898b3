//! Any bytes, cut anywhere, are the frames that the naive decoder finds, and refused where it refuses them.

#![no_main]

use bytes::BufMut as _;
use libfuzzer_sys::fuzz_target;
use oap::{Decoder, READ_BYTES};

#[path = "../../tests/protocol/naive.rs"]
mod naive;

const FRAME_BYTES_MAX: usize = 4096;

fuzz_target!(|input: &[u8]| {
    // The first byte says how long the pieces are that the rest arrives in.
    let Some((&piece, bytes)) = input.split_first() else { return };
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    let mut refused = None;
    for part in bytes.chunks(usize::from(piece).max(1)) {
        decoder.buffer().put_slice(part);
        assert!(decoder.capacity() <= 2 * bytes.len() + 2 * READ_BYTES);
        while refused.is_none() {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => refused = Some(error.name()),
            }
        }
    }
    let (expected, end) = naive::decode(bytes, FRAME_BYTES_MAX);
    assert_eq!(frames, expected);
    assert_eq!(refused, end.err());
    if let Ok(left) = end {
        assert_eq!(decoder.is_inside_frame(), left > 0);
    }
    let mut written = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut written));
    assert!(bytes.starts_with(&written));
});
