//! Frames survive the wire, however it cuts them; noise is refused as by the naive decoder; memory follows bytes.

use bytes::{BufMut as _, Bytes, BytesMut};
use oap::{AppId, Decoder, FRAME_BYTES_MAX, Flags, Frame, FrameError, HEADER_BYTES, READ_BYTES, READ_BYTES_MIN};
use proptest::prelude::*;

use crate::naive;

/// Puts bytes into a decoder as reads from a socket would: never more than the room it offers.
pub fn read(decoder: &mut Decoder, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let buffer = decoder.buffer();
        let room = buffer.capacity() - buffer.len();
        assert!(room > 0);
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        buffer.put_slice(now);
        bytes = later;
    }
}

/// Decodes bytes that arrive in pieces of these sizes, over and over.
fn decode(bytes: &[u8], pieces: &[usize], frame_bytes_max: usize) -> (Vec<Frame>, Result<bool, &'static str>) {
    let mut decoder = Decoder::new(frame_bytes_max);
    let (mut frames, mut rest, mut sizes) = (Vec::new(), bytes, pieces.iter().cycle());
    loop {
        match decoder.next() {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) if rest.is_empty() => return (frames, Ok(decoder.is_inside_frame())),
            Ok(None) => {
                let size = sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len());
                read(&mut decoder, &rest[..size]);
                rest = &rest[size..];
            }
            Err(error) => {
                assert_eq!(decoder.next(), Err(error), "an error stays");
                return (frames, Err(error.name()));
            }
        }
    }
}

fn wire(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut out));
    out
}

prop_compose! {
    fn any_frame()(
        way in 0_u16..3,
        others in 0_u16..32,
        code in 100_u16..600,
        app: u16,
        tenant: u128,
        corr: u64,
        cap in proptest::collection::vec(any::<u8>(), 0..40),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) -> Frame {
        let flags = Flags::from_bits(1 << way | others << 3).expect("known bits");
        let cap = if flags.contains(Flags::START) { cap } else { Vec::new() };
        let code = if flags.contains(Flags::RESP) { code } else { 0 };
        let (cap, payload) = (cap.into(), payload.into());
        Frame { flags, code, app: AppId(app), tenant, corr, cap, payload, tail: None }
    }
}

/// Bytes that are nearly frames: some of them changed.
fn near_frames() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_usize..HEADER_BYTES), 0..4);
    (proptest::collection::vec(any_frame(), 1..5), changes).prop_map(|(frames, changes)| {
        let mut bytes = wire(&frames);
        for (place, byte, in_header) in changes {
            // Half of the changes hit the first header, where the rules are.
            let at = if byte % 2 == 0 { in_header } else { place.index(bytes.len()) };
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn frames_survive_any_cuts(
        frames in proptest::collection::vec(any_frame(), 0..6),
        pieces in proptest::collection::vec(1_usize..120, 0..8),
    ) {
        let bytes = wire(&frames);
        prop_assert_eq!(bytes.len(), frames.iter().map(Frame::encoded_len).sum::<usize>());
        prop_assert_eq!(decode(&bytes, &pieces, FRAME_BYTES_MAX), (frames, Ok(false)));
    }

    #[test]
    fn near_frames_are_judged_as_by_the_naive_decoder(
        bytes in near_frames(),
        pieces in proptest::collection::vec(1_usize..60, 0..8),
        frame_bytes_max in prop::sample::select(vec![64, 150, 1024, FRAME_BYTES_MAX]),
    ) {
        let (frames, end) = decode(&bytes, &pieces, frame_bytes_max);
        let (expected, expected_end) = naive::decode(&bytes, frame_bytes_max);
        prop_assert_eq!(&frames, &expected);
        prop_assert_eq!(end, expected_end.map(|left| left > 0));
        // What was decoded is what was there, to the byte, and would be accepted again.
        prop_assert!(bytes.starts_with(&wire(&frames)));
        prop_assert!(frames.iter().all(|frame| frame.check(frame_bytes_max).is_ok()));
    }

    #[test]
    fn noise_is_judged_as_by_the_naive_decoder(
        noise in proptest::collection::vec(any::<u8>(), 0..100),
        pieces in proptest::collection::vec(1_usize..20, 0..4),
    ) {
        let (frames, end) = decode(&noise, &pieces, FRAME_BYTES_MAX);
        let (expected, expected_end) = naive::decode(&noise, FRAME_BYTES_MAX);
        prop_assert_eq!((frames, end), (expected, expected_end.map(|left| left > 0)));
    }
}

#[test]
fn every_byte_boundary_gives_the_same_frames() {
    let frames = [
        Frame::request(AppId::ECHO, 1, "hi").with_cap("token"),
        Frame::event(AppId::GOSSIP, 2, vec![7; 300]),
        Frame::response(AppId::MAILBOX, u64::MAX, 429, ""),
    ];
    let bytes = wire(&frames);
    let expected = (frames.to_vec(), Ok(false));
    for first in 1..bytes.len() {
        assert_eq!(decode(&bytes, &[first, bytes.len()], FRAME_BYTES_MAX), expected, "cut after {first}");
    }
    assert_eq!(decode(&bytes, &[1], FRAME_BYTES_MAX), expected, "byte by byte");
}

#[test]
fn a_length_is_refused_with_its_fourth_byte() {
    for (first, expected) in [
        ([0, 0, 0, 37], FrameError::TooSmall { len: 37 }),
        ([0, 16, 0, 1], FrameError::TooLarge { len: FRAME_BYTES_MAX + 1, max: FRAME_BYTES_MAX }),
    ] {
        let mut decoder = Decoder::new(FRAME_BYTES_MAX);
        read(&mut decoder, &first[..3]);
        assert_eq!(decoder.next(), Ok(None));
        read(&mut decoder, &first[3..]);
        assert_eq!(decoder.next(), Err(expected));
    }
}

#[test]
fn a_flood_of_promises_costs_next_to_nothing() {
    let promise = (FRAME_BYTES_MAX as u32).to_be_bytes();
    let capacity = |_| {
        let mut decoder = Decoder::new(FRAME_BYTES_MAX);
        for byte in promise {
            read(&mut decoder, &[byte]);
            assert_eq!(decoder.next(), Ok(None));
        }
        decoder.buffer();
        decoder.capacity()
    };
    let bytes: usize = (0..1024).map(capacity).sum();
    assert!(bytes <= 1024 * 2 * READ_BYTES_MIN, "{bytes} bytes for 1,024 connections that sent four each");
}

#[test]
fn memory_follows_what_has_arrived() {
    let frame = Frame::event(AppId::ECHO, 1, vec![1; FRAME_BYTES_MAX - HEADER_BYTES]);
    let bytes = frame.to_bytes();
    for piece in [1_000, 16_384, 300_000] {
        let mut decoder = Decoder::new(FRAME_BYTES_MAX);
        let mut arrived = 0;
        let mut decoded = None;
        for part in bytes.chunks(piece) {
            read(&mut decoder, part);
            arrived += part.len();
            decoder.buffer();
            assert!(decoder.capacity() <= 2 * arrived + 2 * READ_BYTES, "{} after {arrived}", decoder.capacity());
            decoded = decoder.next().expect("a good frame");
        }
        assert_eq!(decoded.as_ref(), Some(&frame));
        drop(decoded);
        decoder.shrink();
        assert_eq!(decoder.capacity(), 0);
    }
}

#[test]
fn a_quiet_connection_goes_back_to_little_room() {
    let small = Frame::event(AppId::ECHO, 1, "x");
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    let burst = wire(&vec![Frame::event(AppId::ECHO, 1, vec![0; 1000]); 500]);
    read(&mut decoder, &burst);
    while decoder.next().expect("good frames").is_some() {}
    assert!(decoder.capacity() >= READ_BYTES, "{}", decoder.capacity());
    // A handful of small reads, such as the PINGs of an idle connection, is enough.
    for _ in 0..5 {
        read(&mut decoder, &small.to_bytes());
        assert_eq!(decoder.next(), Ok(Some(small.clone())));
    }
    decoder.buffer();
    assert!(decoder.capacity() <= 4 * READ_BYTES_MIN, "{}", decoder.capacity());
}

#[test]
fn payloads_are_slices_of_what_was_read() {
    let frames = [Frame::event(AppId::ECHO, 1, "first"), Frame::event(AppId::ECHO, 2, "second")];
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    read(&mut decoder, &wire(&frames));
    let mut next = || decoder.next().expect("good frames").expect("two frames").payload;
    let (first, second) = (next(), next());
    let distance = second.as_ptr() as usize - first.as_ptr() as usize;
    assert_eq!(distance, "first".len() + HEADER_BYTES);
}

#[test]
fn a_bound_changes_with_the_next_header() {
    let frame = Frame::event(AppId::ECHO, 1, vec![0; 2_000]);
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    read(&mut decoder, &wire(&[frame.clone(), frame.clone()]));
    assert_eq!(decoder.next(), Ok(Some(frame.clone())));
    decoder.set_frame_bytes_max(1024);
    assert_eq!(decoder.next(), Err(FrameError::TooLarge { len: frame.encoded_len(), max: 1024 }));
}

#[test]
fn what_this_side_would_send_is_held_to_the_same_rules() {
    let cap = Bytes::from(vec![0; 70_000]);
    let check = |frame: &Frame| frame.check(FRAME_BYTES_MAX).map_err(|error| error.name());
    assert_eq!(check(&Frame::request(AppId::ECHO, 1, "").with_cap(cap)), Err("cap_beyond_frame"));
    assert_eq!(check(&Frame::part(AppId::ECHO, 1, "").with_cap("c")), Err("cap_without_start"));
    assert_eq!(check(&Frame::event(AppId::ECHO, 1, vec![0; FRAME_BYTES_MAX])), Err("too_large"));
    assert_eq!(check(&Frame::response(AppId::ECHO, 1, 0, "")), Err("response_code"));
    assert_eq!(check(&Frame::event(AppId::ECHO, 1, vec![0; FRAME_BYTES_MAX - HEADER_BYTES])), Ok(()));
    let mut head = BytesMut::new();
    let frame = Frame::open(AppId::LANES, 1, "payload").with_cap("cap");
    frame.put_head(&mut head);
    head.put_slice(&frame.payload);
    assert_eq!(head, frame.to_bytes());
}

#[test]
fn what_lies_in_two_places_is_one_payload_on_the_wire() {
    let whole = Frame::open(AppId::LANES, 1, "head and body").with_cap("cap");
    let apart = Frame::open(AppId::LANES, 1, "head ").with_cap("cap").followed_by(Bytes::from_static(b"and body"));
    assert_eq!((apart.to_bytes(), apart.encoded_len()), (whole.to_bytes(), whole.encoded_len()));
    let mut head = BytesMut::new();
    apart.put_head(&mut head);
    head.put_slice(apart.last_piece());
    assert_eq!(head, whole.to_bytes());
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    read(&mut decoder, &apart.to_bytes());
    assert_eq!(decoder.next(), Ok(Some(whole)));
    let max = FRAME_BYTES_MAX - HEADER_BYTES;
    let of_two = |tail: usize| Frame::event(AppId::ECHO, 1, "ab").followed_by(vec![0; tail].into());
    assert_eq!(of_two(max - 2).check(FRAME_BYTES_MAX), Ok(()));
    assert_eq!(of_two(max - 1).check(FRAME_BYTES_MAX).map_err(|error| error.name()), Err("too_large"));
}

#[test]
fn what_has_arrived_elsewhere_finds_room_in_one_step() {
    for arrived in [1, READ_BYTES / 2, 2 * READ_BYTES, 5 * READ_BYTES] {
        let mut decoder = Decoder::new(FRAME_BYTES_MAX);
        let buffer = decoder.buffer_for(arrived);
        let (room, place) = (buffer.capacity(), buffer.as_ptr());
        assert!((arrived..=arrived.max(READ_BYTES_MIN)).contains(&room), "{room} for {arrived}");
        buffer.put_bytes(0, arrived);
        assert_eq!(buffer.as_ptr(), place, "it is not moved");
    }
}
