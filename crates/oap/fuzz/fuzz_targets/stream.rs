//! Any order of frames and answers is taken as by the reference, and what is remembered stays bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use oap::{AppId, Flags, Frame, Streams};

#[path = "../../tests/protocol/reference.rs"]
mod reference;

fuzz_target!(|input: &[u8]| {
    let Some((&max, happenings)) = input.split_first() else { return };
    let max = usize::from(max % 8) + 1;
    let mut streams = Streams::new(max);
    let mut reference = reference::Reference::new(max);
    for pair in happenings.chunks_exact(2) {
        let (bits, corr) = (u16::from(pair[0] & 0x3f), u64::from(pair[1] % 16));
        if pair[0] & 0x80 != 0 {
            streams.finished(corr);
            reference.finished(corr);
        } else {
            let flags = Flags::from_bits(bits).expect("six bits are known flags");
            let frame = Frame { flags, ..Frame::event(AppId(u16::from(pair[1] >> 7)), corr, "") };
            assert_eq!(streams.accept(&frame), reference.accept(&frame));
        }
        assert_eq!(streams.inflight(), reference.inflight());
        assert!(streams.inflight() <= max);
    }
});
