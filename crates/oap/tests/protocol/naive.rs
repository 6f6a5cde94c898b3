//! A decoder as one would write it in an afternoon: all bytes at hand, copies everywhere. The real one must agree.

use oap::{AppId, Flags, Frame};

/// What bytes are: frames, and then the name of the rule that was broken, if one was, or how many bytes are left over.
pub fn decode(mut bytes: &[u8], frame_bytes_max: usize) -> (Vec<Frame>, Result<usize, &'static str>) {
    let mut frames = Vec::new();
    loop {
        match decode_one(bytes, frame_bytes_max) {
            Ok(Some((frame, len))) => {
                frames.push(frame);
                bytes = &bytes[len..];
            }
            Ok(None) => return (frames, Ok(bytes.len())),
            Err(rule) => return (frames, Err(rule)),
        }
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn decode_one(bytes: &[u8], frame_bytes_max: usize) -> Result<Option<(Frame, usize)>, &'static str> {
    if bytes.len() < 4 {
        return Ok(None);
    }
    let len = number(&bytes[0..4]) as usize;
    if len < 38 {
        return Err("too_small");
    }
    if len > frame_bytes_max {
        return Err("too_large");
    }
    if bytes.len() < 38 {
        return Ok(None);
    }
    if number(&bytes[4..6]) != 1 {
        return Err("version");
    }
    let bits = number(&bytes[6..8]) as u16;
    if bits >= 256 {
        return Err("unknown_flags");
    }
    let (is_request, is_response, is_event) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
    let code = number(&bytes[8..10]) as u16;
    match (is_request, is_response, is_event) {
        (true, false, false) | (false, false, true) if code != 0 => return Err("code_without_response"),
        (false, true, false) if !(100..=599).contains(&code) => return Err("response_code"),
        (true, false, false) | (false, true, false) | (false, false, true) => {}
        _ => return Err("direction"),
    }
    let cap_len = number(&bytes[28..30]) as usize;
    if cap_len > 0 && bits & 8 == 0 {
        return Err("cap_without_start");
    }
    if 38 + cap_len > len {
        return Err("cap_beyond_frame");
    }
    if bytes.len() < len {
        return Ok(None);
    }
    let frame = Frame {
        flags: Flags::from_bits(bits).expect("only known bits get here"),
        code,
        app: AppId(number(&bytes[10..12]) as u16),
        tenant: number(&bytes[12..28]),
        corr: number(&bytes[30..38]) as u64,
        cap: bytes[38..38 + cap_len].to_vec().into(),
        payload: bytes[38 + cap_len..len].to_vec().into(),
        tail: None,
    };
    Ok(Some((frame, len)))
}
