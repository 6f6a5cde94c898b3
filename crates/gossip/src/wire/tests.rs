//! Round trips, and what a hostile peer may send.

use super::*;
use proptest::prelude::*;

fn lane() -> LaneName {
    LaneName::new("presence").unwrap()
}

#[test]
fn the_largest_message_has_the_largest_size() {
    let lane = LaneName::new(&"x".repeat(LANE_NAME_BYTES_MAX)).unwrap();
    let payload = vec![0; CHUNK_BYTES];
    let mut seal = Bytes::from(vec![6; SEAL_BYTES_MAX]);
    let (data, _) = encode_data(&lane, &key(1), 1, Some(&Seal::decode(&mut seal).unwrap()), &payload);
    let (chunk, _) = encode_chunk(&lane, &key(1), 0, &payload);
    assert_eq!(data.len().max(chunk.len()), ENCODED_BYTES_MAX);
}

fn key(seq: u64) -> Key {
    Key { origin: Origin([9; 32]), epoch: 5, seq }
}

fn raw(kind: u8, rest: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(kind);
    put_lane(&mut out, &lane());
    out.put_slice(rest);
    out.freeze()
}

fn any_origin() -> impl Strategy<Value = Origin> {
    any::<u8>().prop_map(|byte| Origin([byte; 32]))
}

fn any_seq() -> impl Strategy<Value = u64> {
    prop_oneof![1..100u64, 1..=SEQ_MAX]
}

fn any_key() -> impl Strategy<Value = Key> {
    (any_origin(), any::<u64>(), any_seq()).prop_map(|(origin, epoch, seq)| Key { origin, epoch, seq })
}

fn any_content() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 1..200).prop_map(Bytes::from)
}

fn any_range() -> impl Strategy<Value = (u64, u64)> {
    (any_seq(), any_seq()).prop_map(|(one, other)| (one.min(other), one.max(other)))
}

fn any_entries() -> impl Strategy<Value = Entries> {
    let entry = (any_origin(), any::<u64>(), any_range());
    proptest::collection::vec(entry, 1..20).prop_map(|entries| {
        Entries::pack(entries.into_iter().map(|(origin, epoch, (first, last))| Entry { origin, epoch, first, last }))
    })
}

fn any_want() -> impl Strategy<Value = Want> {
    (any_origin(), any::<u64>(), any_range(), 0..64u16).prop_map(|(origin, epoch, (from, to), chunk)| Want {
        origin,
        epoch,
        from,
        to,
        chunk,
    })
}

fn any_seal() -> impl Strategy<Value = Option<Seal>> {
    let seal = |(depth, byte): (u8, u8)| {
        let mut bytes = vec![byte; SEAL_BYTES_MAX];
        (bytes[0], bytes[1]) = (depth, byte % (1 << depth));
        Seal::decode(&mut Bytes::from(bytes)).unwrap()
    };
    proptest::option::of((0..=6u8, any::<u8>()).prop_map(seal))
}

fn any_head() -> impl Strategy<Value = ChunkHead> {
    let size = CHUNK_BYTES as u32 + 1..=MESSAGE_BYTES_MAX as u32;
    (any_key(), any::<u8>(), any_seal(), size).prop_map(|(key, hops, seal, size)| {
        let hashes = Bytes::from(vec![3; (size as usize).div_ceil(CHUNK_BYTES) * HASH_BYTES]);
        ChunkHead { key, hops, seal, size, hashes }
    })
}

fn any_body() -> impl Strategy<Value = Body> {
    prop_oneof![
        (any_key(), any::<u8>(), any_seal(), any_content()).prop_map(|(key, hops, seal, payload)| Body::Data(Data {
            key,
            hops,
            seal,
            payload
        })),
        any_head().prop_map(Body::ChunkHead),
        (any_key(), 0..64u16, any_content()).prop_map(|(key, index, bytes)| Body::Chunk(Chunk { key, index, bytes })),
        (any::<bool>(), any_entries()).prop_map(|(no_push, entries)| Body::Digest { no_push, entries }),
        (any::<bool>(), any_entries()).prop_map(|(reply, entries)| Body::Summary { reply, entries }),
        any_want().prop_map(Body::Graft),
        any_want().prop_map(Body::Pull),
        any::<bool>().prop_map(|is_full| Body::Prune { is_full }),
        Just(Body::Join),
        Just(Body::Leave),
        any::<u64>().prop_map(|consumed| Body::Credit { consumed }),
        (any_key(), 0..=SEQ_MAX, 0..=SEQ_MAX).prop_map(|(key, through, missing_to)| Body::Answer(Answer {
            origin: key.origin,
            epoch: key.epoch,
            from: key.seq,
            through,
            missing_to
        })),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(body in any_body(), name in "[A-Za-z0-9._-]{1,80}") {
        let message = Message { lane: LaneName::new(&name).unwrap(), body };
        let bytes = message.encode();
        prop_assert_eq!(bytes.len(), message.encoded_len());
        prop_assert!(bytes.len() <= ENCODED_BYTES_MAX);
        prop_assert_eq!(peek_lane(&bytes), Ok(name.as_bytes()));
        prop_assert_eq!(Message::decode(bytes), Ok(message));
    }

    #[test]
    fn what_is_decoded_is_encoded(kind in 0..16u8, rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = raw(kind, &rest);
        if let Ok(message) = Message::decode(bytes.clone()) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }

    #[test]
    fn no_prefix_of_a_message_but_data_and_chunks_is_one(body in any_body(), cut in any::<proptest::sample::Index>()) {
        let open_ended = matches!(body, Body::Data(_) | Body::Chunk(_) | Body::Digest { .. } | Body::Summary { .. });
        let bytes = Message { lane: lane(), body }.encode();
        let shorter = bytes.slice(..cut.index(bytes.len()));
        prop_assert!(open_ended || Message::decode(shorter).is_err());
    }
}

#[test]
fn the_ring_encodes_as_the_message_does() {
    let payload = Bytes::from_static(b"content");
    let (bytes, head) = encode_data(&lane(), &key(3), 4, None, &payload);
    assert_eq!(&bytes[head..], b"content");
    let body = Body::Data(Data { key: key(3), hops: 4, seal: None, payload });
    assert_eq!(bytes, Message { lane: lane(), body }.encode());
    let content = Bytes::from_static(b"chunk");
    let (bytes, head) = encode_chunk(&lane(), &key(3), 2, &content);
    assert_eq!(&bytes[head..], b"chunk");
    let chunk = Chunk { key: key(3), index: 2, bytes: content };
    assert_eq!(bytes, Message { lane: lane(), body: Body::Chunk(chunk) }.encode());
}

#[test]
fn bounds_hold_for_every_number_and_list() {
    let reject = |bytes: Bytes, why: WireError| assert_eq!(Message::decode(bytes), Err(why));
    let of_key = |seq: u64| {
        let mut out = BytesMut::new();
        put_key(&mut out, &key(seq));
        out
    };
    let with = |seq: u64, rest: &[u8]| [&of_key(seq)[..], rest].concat();
    let numbers = |list: &[u64]| list.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();

    for seq in [0, SEQ_MAX + 1, u64::MAX] {
        reject(raw(1, &with(seq, &[0])), WireError::OutOfBounds("seq"));
    }
    reject(raw(1, &with(1, &vec![0; CHUNK_BYTES + 2])), WireError::OutOfBounds("content"));
    for size in [0, CHUNK_BYTES as u32, MESSAGE_BYTES_MAX as u32 + 1, u32::MAX] {
        let head = [&[0][..], &size.to_be_bytes()].concat();
        reject(raw(2, &with(1, &head)), WireError::OutOfBounds("size"));
    }
    let unhashed = [&[0][..], &(CHUNK_BYTES as u32 + 1).to_be_bytes(), &[0; 63]].concat();
    reject(raw(2, &with(1, &unhashed)), WireError::TooShort);
    reject(raw(3, &with(1, &[0, 64, 1])), WireError::OutOfBounds("index"));
    reject(raw(3, &with(1, &[0, 0])), WireError::OutOfBounds("content"));
    reject(raw(3, &with(1, &vec![0; CHUNK_BYTES + 3])), WireError::OutOfBounds("content"));
    let entry = |first, last| [&[9; 32][..], &numbers(&[5, first, last])].concat();
    for (first, last) in [(0, 1), (2, 1), (1, SEQ_MAX + 1), (u64::MAX, u64::MAX)] {
        for kind in [4, 8] {
            reject(raw(kind, &[&[0][..], &entry(first, last)].concat()), WireError::OutOfBounds("range"));
        }
    }
    reject(raw(4, &[&[2][..], &entry(1, 1)].concat()), WireError::OutOfBounds("flags"));
    reject(raw(4, &[0]), WireError::TooShort);
    reject(raw(4, &[&[0][..], &entry(1, 1).repeat(ENTRIES_MAX + 1)].concat()), WireError::OutOfBounds("entries"));
    for (from, to, chunk) in [(2, 1, 0u16), (1, SEQ_MAX + 1, 0)] {
        let rest = [&numbers(&[to])[..], &chunk.to_be_bytes()].concat();
        reject(raw(5, &with(from, &rest)), WireError::OutOfBounds("range"));
    }
    reject(raw(6, &with(1, &[&numbers(&[1])[..], &[0, 64]].concat())), WireError::OutOfBounds("chunk"));
    reject(raw(10, &with(1, &numbers(&[u64::MAX, 0]))), WireError::OutOfBounds("range"));
    reject(raw(7, &[0, 0]), WireError::TooLong);
    reject(raw(7, &[2]), WireError::OutOfBounds("flags"));
    reject(raw(9, &[0; 9]), WireError::TooLong);
    reject(raw(11, &[0]), WireError::TooLong);
    reject(raw(12, &[0]), WireError::TooLong);
    reject(raw(15, &[]), WireError::UnknownKind(15));
}

#[test]
fn a_lane_is_peeked_only_where_it_is_whole() {
    for (bytes, outcome) in [
        (&[][..], Err(WireError::TooShort)),
        (&[1], Err(WireError::TooShort)),
        (&[1, 0], Err(WireError::Lane)),
        (&[1, 81], Err(WireError::Lane)),
        (&[1, 2, b'a'], Err(WireError::TooShort)),
        (&[1, 2, b'a', b'b'], Ok(&b"ab"[..])),
    ] {
        assert_eq!(peek_lane(bytes), outcome);
    }
    assert_eq!(Message::decode(Bytes::from_static(&[7, 1, b'/'])), Err(WireError::Lane));
    assert_eq!(flow_of(b"/"), Err(WireError::Lane));
    assert_eq!(flow_of(b"presence"), Ok(lane().flow()));
}
