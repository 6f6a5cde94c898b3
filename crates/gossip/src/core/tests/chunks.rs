//! Messages in chunks: on before they are whole, and no way around the order.

use super::*;
use crate::wire::{Answer, Want};

#[test]
fn a_large_message_goes_on_before_it_is_whole() {
    let payload: Vec<u8> = (0..2 * CHUNK_BYTES + 5).map(|at| at as u8).collect();
    let (head, chunks) = parts(key(9, 1), &payload);
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), Body::ChunkHead(head.clone()), &mut world).unwrap();
    core.hear(0, peer(1), Body::Chunk(chunks[0].clone()), &mut world).unwrap();
    let onwards = world.take(peer(2));
    assert!(matches!(&onwards[..], [Body::ChunkHead(ChunkHead { hops: 2, .. }), Body::Chunk(_)]), "{onwards:?}");
    assert_eq!(world.delivered.len(), 0);
    core.hear(0, peer(1), Body::Chunk(chunks[2].clone()), &mut world).unwrap();
    core.hear(0, peer(1), Body::Chunk(chunks[1].clone()), &mut world).unwrap();
    assert_eq!(world.take(peer(2)), [Body::Chunk(chunks[1].clone()), Body::Chunk(chunks[2].clone())]);
    let (_, _, _, _, id, delivered) = &world.delivered[0];
    assert_eq!(delivered, &payload);
    assert_eq!(*id, crate::names::msg_id_of_chunks(&origin(9), EPOCH + 1, &lane(), 1, &head.hashes));
    assert_eq!(core.shared.totals.partial_bytes, 0);
}

#[test]
fn a_large_message_whose_sender_dies_goes_on_from_another() {
    let payload = vec![7; 3 * CHUNK_BYTES];
    let (head, chunks) = parts(key(9, 1), &payload);
    let (mut core, mut world) = core_with(CoreConfig::default(), 3);
    core.hear(0, peer(1), Body::ChunkHead(head), &mut world).unwrap();
    core.hear(0, peer(1), Body::Chunk(chunks[0].clone()), &mut world).unwrap();
    core.hear(0, peer(2), digest(9, 1, 1), &mut world).unwrap();
    core.peer_down(MS, &peer(1), &mut world);
    world.sent.clear();
    core.wait_until(1000 * MS, &mut world);
    let asked = world.take(peer(2));
    let want = Want { origin: origin(9), epoch: EPOCH + 1, from: 1, to: 1, chunk: 1 };
    assert!(asked.contains(&Body::Graft(want)) || asked.contains(&Body::Pull(want)), "{asked:?}");
    for chunk in &chunks[1..] {
        core.hear(1001 * MS, peer(2), Body::Chunk(chunk.clone()), &mut world).unwrap();
    }
    assert_eq!(world.delivered.len(), 1);
    assert_eq!(world.delivered[0].5, payload);
}

#[test]
fn a_last_chunk_that_comes_late_changes_nothing() {
    let (head, chunks) = parts(key(9, 2), &vec![7; 2 * CHUNK_BYTES]);
    let (mut core, mut world) = core_with(CoreConfig::default(), 4);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(2), Body::ChunkHead(head), &mut world).unwrap();
    core.hear(0, peer(2), Body::Chunk(chunks[0].clone()), &mut world).unwrap();
    for seq in 2..=5 {
        core.hear(MS, peer(1), data(9, seq), &mut world).unwrap();
    }
    assert_eq!(core.shared.totals.partial_bytes, 0, "it came another way");
    let before = core.counts().duplicates;
    core.hear(2 * MS, peer(2), Body::Chunk(chunks[1].clone()), &mut world).unwrap();
    assert_eq!(core.counts().duplicates, before + 1);
    core.wait_until(10_000 * MS, &mut world);
    core.check();
    assert_eq!((world.seqs(), world.gaps.len(), core.counts().asked), (vec![1, 2, 3, 4, 5], 0, 0));
}

#[test]
fn a_message_in_chunks_that_waits_already_is_not_taken_again() {
    let (head, chunks) = parts(key(9, 3), &vec![7; 2 * CHUNK_BYTES]);
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(2), Body::ChunkHead(head), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 3), &mut world).unwrap();
    let waiting = core.shared.totals.waiting_bytes;
    for chunk in chunks {
        core.hear(0, peer(2), Body::Chunk(chunk), &mut world).unwrap();
    }
    core.check();
    assert_eq!(core.shared.totals.waiting_bytes, waiting);
    core.hear(MS, peer(1), data(9, 2), &mut world).unwrap();
    assert_eq!(world.seqs(), [1, 2, 3]);
    assert_eq!(world.delivered[2].5, Bytes::from("3"), "the first that came");
    core.check();
}

#[test]
fn an_order_that_begins_later_leaves_nothing_behind() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    let old = |seq| Key { origin: origin(9), epoch: EPOCH - 9, seq };
    let message = |seq| Body::Data(Data { key: old(seq), hops: 1, seal: None, payload: Bytes::from_static(b"old") });
    let entry = Entry { origin: origin(9), epoch: EPOCH - 9, first: 50, last: 51 };
    core.hear(0, peer(1), Body::Summary { reply: false, entries: Entries::pack([entry]) }, &mut world).unwrap();
    core.wait_until(100 * MS, &mut world);
    assert!(matches!(world.take(peer(1))[..], [Body::Pull(Want { from: 50, .. })]));
    // While the answer is on its way, older ones come: one that waits, and one in chunks that is not whole.
    core.hear(100 * MS, peer(2), message(20), &mut world).unwrap();
    let (head, _) = parts(old(30), &vec![7; 2 * CHUNK_BYTES]);
    core.hear(100 * MS, peer(2), Body::ChunkHead(head), &mut world).unwrap();
    core.hear(101 * MS, peer(1), message(50), &mut world).unwrap();
    core.check();
    let Totals { waiting_bytes, partial_bytes, .. } = core.shared.totals;
    assert_eq!((world.seqs(), waiting_bytes, partial_bytes), (vec![50], 0, 0));
    core.wait_until(10_000 * MS, &mut world);
    core.hear(10_000 * MS, peer(1), message(51), &mut world).unwrap();
    core.check();
    assert_eq!((world.seqs(), world.gaps.len()), (vec![50, 51], 0));
}

#[test]
fn a_false_head_does_not_make_true_chunks_an_offence() {
    let (head, chunks) = parts(key(9, 1), &vec![7; 3 * CHUNK_BYTES]);
    let (lie, _) = parts(key(9, 1), &vec![8; 3 * CHUNK_BYTES]);
    let (mut core, mut world) = core_with(CoreConfig::default(), 3);
    core.hear(0, peer(1), Body::ChunkHead(lie), &mut world).unwrap();
    // Pushed by an honest peer at the same time: refused, not judged.
    core.hear(0, peer(2), Body::ChunkHead(head.clone()), &mut world).unwrap();
    for chunk in &chunks {
        core.hear(0, peer(2), Body::Chunk(chunk.clone()), &mut world).unwrap();
    }
    assert_eq!((core.counts().strikes, world.delivered.len()), (0, 0));
    // The liar goes silent; the honest one is asked, and answers with its own head.
    core.hear(MS, peer(2), digest(9, 1, 1), &mut world).unwrap();
    let now = 1500 * MS;
    core.wait_until(now, &mut world);
    core.hear(now, peer(2), Body::ChunkHead(head), &mut world).unwrap();
    for chunk in chunks {
        core.hear(now, peer(2), Body::Chunk(chunk), &mut world).unwrap();
    }
    assert_eq!(world.delivered[0].5, vec![7; 3 * CHUNK_BYTES]);
    core.check();
}

#[test]
fn whoever_was_asked_for_the_rest_of_a_lie_is_not_blamed() {
    let (_, chunks) = parts(key(9, 1), &vec![7; 3 * CHUNK_BYTES]);
    let (lie, false_chunks) = parts(key(9, 1), &vec![8; 3 * CHUNK_BYTES]);
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), Body::ChunkHead(lie), &mut world).unwrap();
    core.hear(0, peer(1), Body::Chunk(false_chunks[0].clone()), &mut world).unwrap();
    core.hear(0, peer(2), digest(9, 1, 1), &mut world).unwrap();
    core.peer_down(MS, &peer(1), &mut world);
    core.wait_until(100 * MS, &mut world);
    for chunk in &chunks[1..] {
        core.hear(101 * MS, peer(2), Body::Chunk(chunk.clone()), &mut world).unwrap();
    }
    assert_eq!(core.shared.totals.partial_bytes, 0, "begun again, from a head of the one that is asked");
    assert_eq!((core.counts().strikes, world.delivered.len()), (0, 0));
}

/// The head of the largest message, of some origin, and all its chunks.
fn largest(of: u8) -> (ChunkHead, Vec<Chunk>) {
    parts(key(of, 1), &vec![of; MESSAGE_BYTES_MAX])
}

#[test]
fn a_peer_that_completes_nothing_leaves_room_for_others() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    for of in 10..17 {
        let (head, chunks) = largest(of);
        core.hear(0, peer(1), Body::ChunkHead(head), &mut world).unwrap();
        core.hear(0, peer(1), Body::Chunk(chunks[0].clone()), &mut world).unwrap();
        // A new session is no new share.
        core.peer_down(0, &peer(1), &mut world);
        core.peer_up(0, peer(1), &mut world);
    }
    assert!(core.shared.totals.partial_bytes < CoreConfig::default().partial_bytes_max / 3);
    for of in [20, 21] {
        let (head, _) = largest(of);
        core.hear(0, peer(2), Body::ChunkHead(head), &mut world).unwrap();
    }
    for chunk in [20, 21].into_iter().flat_map(|of| largest(of).1) {
        core.hear(0, peer(2), Body::Chunk(chunk), &mut world).unwrap();
    }
    assert_eq!(world.delivered.len(), 2);
    core.wait_until(20_000 * MS, &mut world);
    assert_eq!((core.shared.totals.partial_bytes, core.shared.partial_shares.len()), (0, 0));
}

#[test]
fn a_peer_whose_answer_finds_no_room_is_not_blamed() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 1);
    for of in [10, 11, 12] {
        core.hear(0, peer(1), Body::ChunkHead(largest(of).0), &mut world).unwrap();
    }
    let mut now = 0;
    let mut asked = 0;
    while now < 20_000 * MS {
        now += 100 * MS;
        // Two large messages come slowly, and a third is asked for meanwhile.
        let place = (now / (400 * MS)) as usize;
        for of in [10, 11] {
            core.hear(now, peer(1), Body::Chunk(largest(of).1[place].clone()), &mut world).unwrap();
        }
        core.wait_until(now, &mut world);
        for body in world.take(peer(1)) {
            let (Body::Pull(want) | Body::Graft(want)) = body else { continue };
            assert_eq!(want.origin, origin(12));
            asked += 1;
            let (head, chunks) = largest(12);
            core.hear(now, peer(1), Body::ChunkHead(head), &mut world).unwrap();
            core.hear(now, peer(1), Body::Chunk(chunks[0].clone()), &mut world).unwrap();
            let answer = Answer { origin: want.origin, epoch: want.epoch, from: 1, through: 1, missing_to: 0 };
            core.hear(now, peer(1), Body::Answer(answer), &mut world).unwrap();
        }
    }
    assert_eq!((core.counts().strikes, asked), (0, 0), "it was known that there is no room");
    for of in [10, 11] {
        for chunk in largest(of).1 {
            core.hear(now, peer(1), Body::Chunk(chunk), &mut world).unwrap();
        }
    }
    assert_eq!(world.delivered.len(), 2);
    core.wait_until(now + 1000 * MS, &mut world);
    let asked = world.take(peer(1)).into_iter().any(|body| matches!(body, Body::Pull(_) | Body::Graft(_)));
    assert!(asked, "now there is room");
}

#[test]
fn an_answer_that_there_was_no_room_for_is_no_silence() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), digest(12, 1, 1), &mut world).unwrap();
    core.wait_until(100 * MS, &mut world);
    assert!(world.take(peer(1)).iter().any(|body| matches!(body, Body::Graft(_))));
    for of in [10, 11, 12] {
        core.hear(101 * MS, peer(1), Body::ChunkHead(largest(of).0), &mut world).unwrap();
    }
    let answer = Answer { origin: origin(12), epoch: EPOCH + 1, from: 1, through: 1, missing_to: 0 };
    core.hear(102 * MS, peer(1), Body::Answer(answer), &mut world).unwrap();
    assert_eq!(core.counts().strikes, 0);
    // Another who says so without having sent anything is struck as before.
    core.hear(103 * MS, peer(2), digest(13, 1, 1), &mut world).unwrap();
    core.wait_until(300 * MS, &mut world);
    let answer = Answer { origin: origin(13), ..answer };
    core.hear(300 * MS, peer(2), Body::Answer(answer), &mut world).unwrap();
    assert_eq!(core.counts().strikes, 1);
}
