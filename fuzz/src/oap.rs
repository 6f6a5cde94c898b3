//! OAP/1: frames, control frames, streams and compressed payloads.

use bytes::{BufMut as _, Bytes};
use oap::compress::{RATIO_MAX, deflate, inflate};
use oap::{
    AppId, Control, Decoder, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Flags, Frame, HEADER_BYTES, Hello, INFLIGHT_MAX,
    READ_BYTES, Streams, negotiate, status,
};

use crate::{Seed, Target};

// The references are those of the crate's own tests.
#[path = "../../crates/oap/tests/protocol/naive.rs"]
mod naive;
#[path = "../../crates/oap/tests/protocol/reference.rs"]
mod reference;

/// Targets of the crate.
pub const TARGETS: [Target; 4] = [
    Target { name: "oap_header", body: header, is_read: begins_with_frame, seeds: header_seeds },
    Target { name: "oap_stream", body: stream, is_read: begins_stream, seeds: stream_seeds },
    Target { name: "oap_hello", body: hello, is_read: is_control, seeds: hello_seeds },
    Target { name: "oap_zstd", body: zstd, is_read: is_inflated_or_deflated, seeds: zstd_seeds },
];

const DECODED_FRAME_BYTES_MAX: usize = 4096;

/// Any bytes, cut anywhere, are the frames that the naive decoder finds, and refused where it refuses them.
pub fn header(input: &[u8]) {
    // The first byte says how long the pieces are that the rest arrives in.
    let Some((&piece, bytes)) = input.split_first() else { return };
    let mut decoder = Decoder::new(DECODED_FRAME_BYTES_MAX);
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
    let (expected, end) = naive::decode(bytes, DECODED_FRAME_BYTES_MAX);
    assert_eq!(frames, expected);
    assert_eq!(refused, end.err());
    if let Ok(left) = end {
        assert_eq!(decoder.is_inside_frame(), left > 0);
    }
    let mut written = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut written));
    assert!(bytes.starts_with(&written));
}

fn begins_with_frame(input: &[u8]) -> bool {
    input.split_first().is_some_and(|(_, bytes)| !naive::decode(bytes, DECODED_FRAME_BYTES_MAX).0.is_empty())
}

fn header_seeds() -> Vec<Seed> {
    let arriving = |piece: u8, frames: &[Frame]| {
        let mut out = vec![piece];
        frames.iter().for_each(|frame| frame.encode(&mut out));
        out
    };
    let app = AppId::MAILBOX;
    let request = Frame::request(app, 1, "a question");
    let streamed = [Frame::open(app, 2, "first").with_cap("token"), Frame::part(app, 2, ""), Frame::close(app, 2, "z")];
    let answered = [Frame::partial_response(app, 1, 200, "half"), Frame::response(app, 1, 503, "busy")];
    vec![
        ("request.seed", arriving(255, &[request])),
        ("streamed.seed", arriving(7, &streamed)),
        ("answered.seed", arriving(38, &answered)),
        ("event.seed", arriving(1, &[Frame::event(AppId::GOSSIP, 3, vec![7; 300])])),
    ]
}

/// Any order of frames and answers is taken as by the reference, and what is remembered stays bounded.
pub fn stream(input: &[u8]) {
    let Some((&max, happenings)) = input.split_first() else { return };
    let max = usize::from(max % 8) + 1;
    let mut streams = Streams::new(max);
    let mut reference = reference::Reference::new(max);
    for pair in happenings.chunks_exact(2) {
        let (frame, corr) = happening(pair);
        match frame {
            None => {
                streams.finished(corr);
                reference.finished(corr);
            }
            Some(frame) => assert_eq!(streams.accept(&frame), reference.accept(&frame)),
        }
        assert_eq!(streams.inflight(), reference.inflight());
        assert!(streams.inflight() <= max);
    }
}

/// A frame that arrives, or the end of the answer to a number.
fn happening(pair: &[u8]) -> (Option<Frame>, u64) {
    let (bits, corr) = (u16::from(pair[0] & 0x3f), u64::from(pair[1] % 16));
    if pair[0] & 0x80 != 0 {
        return (None, corr);
    }
    let flags = Flags::from_bits(bits).expect("six bits are known flags");
    (Some(Frame { flags, ..Frame::event(AppId(u16::from(pair[1] >> 7)), corr, "") }), corr)
}

fn begins_stream(input: &[u8]) -> bool {
    let first = input.get(1..3).and_then(|pair| happening(pair).0);
    first.is_some_and(|frame| Streams::new(1).accept(&frame).is_ok())
}

fn stream_seeds() -> Vec<Seed> {
    const FINISHED: u8 = 0x80;
    let bits = |flags: Flags| flags.bits() as u8;
    let empty = |make: fn(AppId, u64, &'static str) -> Frame| bits(make(AppId(0), 0, "").flags);
    let (request, open) = (empty(Frame::request), empty(Frame::open));
    let (part, close) = (empty(Frame::part), empty(Frame::close));
    vec![
        ("whole-requests.seed", vec![2, request, 1, request, 2, request, 3, FINISHED, 1, request, 3]),
        ("one-stream.seed", vec![3, open, 5, part, 5, close, 5, FINISHED, 5]),
        ("answered-early.seed", vec![0, open, 1, FINISHED, 1, part, 1, open, 2, close, 1, request, 2]),
    ]
}

/// Any payload is a control frame or refused; one that is taken survives being written; a HELLO agrees within bounds.
pub fn hello(bytes: &[u8]) {
    let ours = Hello { features: vec!["zstd".to_owned()], ..Hello::new(FRAME_BYTES_MAX as u32, 64) };
    for control in controls(bytes) {
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
}

/// The bytes as a control frame, and as the JSON of a HELLO, which noise seldom comes to.
fn controls(bytes: &[u8]) -> impl Iterator<Item = Control> {
    let parsed = Control::parse(&Frame::event(AppId::CONTROL, 0, Bytes::copy_from_slice(bytes)));
    [parsed.ok(), Hello::parse(bytes).ok().map(Control::Hello)].into_iter().flatten()
}

fn is_control(bytes: &[u8]) -> bool {
    controls(bytes).next().is_some()
}

fn hello_seeds() -> Vec<Seed> {
    let hello = Hello {
        features: vec!["zstd".to_owned(), "later".to_owned()],
        node_id: Some("0a".repeat(32)),
        agent: Some("macronode/0.1".to_owned()),
        ..Hello::new(65_536, 32)
    };
    let payload = |control: Control| control.to_frame().payload.to_vec();
    let farewell = Control::GoAway { code: status::OK, last_corr: 7, reason: "restart".to_owned() };
    vec![
        ("json.seed", hello.to_json()),
        ("hello.seed", payload(Control::Hello(hello))),
        ("ping.seed", payload(Control::Ping { nonce: 1 << 40 })),
        ("credit.seed", payload(Control::Credit { flow: 3, bytes: 65_536 })),
        ("farewell.seed", payload(farewell)),
    ]
}

/// First bytes of a zstd frame: noise does not come to them by itself, because the library is not instrumented.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Any bytes inflate within their bounds or are refused; what was deflated inflates to what it was, and what was then
/// changed on its way keeps to the bounds too.
pub fn zstd(bytes: &[u8]) {
    check_inflated(bytes);
    check_inflated(&[&ZSTD_MAGIC, bytes].concat());
    let Some((&[high, low, change], content)) = bytes.split_first_chunk::<3>() else { return };
    let content = repeated(content, change);
    if let Some(deflated) = deflate(&content, 1) {
        assert_eq!(inflate(&deflated, FRAME_BYTES_MAX).as_deref(), Ok(&content[..]));
        let mut changed = deflated.to_vec();
        let at = usize::from(u16::from_be_bytes([high, low])) % changed.len();
        changed[at] ^= change;
        check_inflated(&changed);
        check_inflated(&changed[..at]);
    }
}

/// Repeated, so that there is something to deflate. The three bytes before the content say where and how it is changed
/// once deflated; the change also says how often it is repeated.
fn repeated(content: &[u8], change: u8) -> Vec<u8> {
    content.repeat(1 + usize::from(change % 8))
}

fn check_inflated(bytes: &[u8]) {
    for max in [1024, FRAME_BYTES_MAX] {
        if let Ok(inflated) = inflate(bytes, max) {
            assert!(inflated.len() <= bytes.len() * RATIO_MAX && inflated.len() <= max - HEADER_BYTES);
        }
    }
}

fn is_inflated_or_deflated(bytes: &[u8]) -> bool {
    let content = bytes.split_first_chunk::<3>();
    let is_deflated = content.is_some_and(|(head, content)| deflate(&repeated(content, head[2]), 1).is_some());
    is_deflated || inflate(bytes, FRAME_BYTES_MAX).is_ok_and(|inflated| !inflated.is_empty())
}

fn zstd_seeds() -> Vec<Seed> {
    let text = b"a payload that says the same again and again, ".repeat(6);
    let deflated = deflate(&text, 3).expect("repeated text gets smaller");
    vec![("deflated.seed", deflated.to_vec()), ("to-deflate.seed", [&[0, 9, 8], text.as_slice()].concat())]
}
