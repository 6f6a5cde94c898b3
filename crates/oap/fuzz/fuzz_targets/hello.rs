//! Any payload is a control frame or refused; one that is taken survives being written; a HELLO agrees within bounds.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use oap::{AppId, Control, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame, Hello, INFLIGHT_MAX, negotiate};

fuzz_target!(|bytes: &[u8]| {
    let ours = Hello { features: vec!["zstd".to_owned()], ..Hello::new(FRAME_BYTES_MAX as u32, 64) };
    let payload = Bytes::copy_from_slice(bytes);
    // The bytes as a control frame, and as the JSON of a HELLO, which noise seldom comes to.
    let parsed = Control::parse(&Frame::event(AppId::CONTROL, 0, payload));
    for control in [parsed.ok(), Hello::parse(bytes).ok().map(Control::Hello)].into_iter().flatten() {
        assert_eq!(Control::parse(&control.to_frame()).as_ref(), Ok(&control));
        let Control::Hello(theirs) = control else { continue };
        let agreed = negotiate(&ours, &theirs);
        assert_eq!(agreed, negotiate(&theirs, &ours));
        if let Ok(agreed) = agreed {
            assert!((FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&agreed.max_frame));
            assert!((1..=INFLIGHT_MAX as usize).contains(&agreed.max_inflight));
            assert!(agreed.version == 1 && agreed.features.len() <= 1);
        }
    }
});
