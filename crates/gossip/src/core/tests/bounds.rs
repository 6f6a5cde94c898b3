//! What hostile peers can make of a core: nothing beyond its bounds.

use super::*;
use crate::budget::Rate;
use crate::wire::{Chunk, ChunkHead, Want};
use crate::{CHUNKS_MAX, SEQ_MAX};

/// A small core, so that a test fills it.
pub(super) fn small() -> CoreConfig {
    CoreConfig {
        peers_max: 4,
        lanes_max: 8,
        origins_per_lane_max: 16,
        origins_max: 40,
        ring_bytes_per_lane: 200_000,
        ring_messages_per_lane: 500,
        ring_bytes_max: 600_000,
        waiting_per_origin_max: 50,
        waiting_bytes_max: 300_000,
        partial_bytes_max: 1 << 20,
        remembered_max: 32,
        ..CoreConfig::default()
    }
}

fn random_body(rng: &mut Rng, seq: u64) -> Body {
    let key = Key { origin: origin(rng.below(60) as u8), epoch: EPOCH + 1 + rng.below(2) as u64, seq };
    let entry = Entry { origin: key.origin, epoch: key.epoch, first: seq, last: seq + rng.below(1000) as u64 };
    match rng.below(8) {
        0..4 => Body::Data(Data { key, hops: 1, seal: None, payload: Bytes::from(vec![1; rng.below(3000)]) }),
        4 => {
            let size = (CHUNK_BYTES + 1 + rng.below(500_000)) as u32;
            let hashes = vec![0; (size as usize).div_ceil(CHUNK_BYTES) * 32];
            Body::ChunkHead(ChunkHead { key, hops: 1, seal: None, size, hashes: Bytes::from(hashes) })
        }
        5 => Body::Digest { no_push: rng.below(2) == 0, entries: Entries::pack([entry; 5]) },
        6 => Body::Pull(Want { origin: key.origin, epoch: key.epoch, from: 1, to: SEQ_MAX, chunk: 0 }),
        _ => Body::Summary { reply: true, entries: Entries::pack([entry; 5]) },
    }
}

#[test]
fn a_flood_of_everything_stays_under_the_formula() {
    let config = CoreConfig { strikes_disconnect: u32::MAX, ..small() };
    let max = config.memory_bytes_max();
    let (mut core, mut world) = core_with(config, 4);
    let mut rng = Rng::new(7);
    let mut most = 0;
    for step in 0..30_000u64 {
        let now = step * MS / 2;
        let name = LaneName::new(&format!("lane-{}", rng.below(20))).unwrap();
        let seq = 1 + step / 50 + rng.below(200) as u64;
        let message = Message { lane: name, body: random_body(&mut rng, seq) };
        let _refused = core.receive(now, &peer(1 + rng.below(4) as u8), message, &mut world);
        if rng.below(10) == 0 {
            let _refused = core.publish(now, &name, &Bytes::from(vec![0; rng.below(5000)]), &mut world);
        }
        core.tick(now, &mut world);
        if step % 1000 == 0 {
            core.peer_down(now, &peer(1), &mut world);
            core.peer_up(now, peer(1), &mut world);
            world.sent.clear();
            world.delivered.clear();
        }
        most = most.max(core.memory_bytes());
        assert!(most <= max, "{most} of {max} at step {step}");
        let totals = core.shared.totals;
        assert!(totals.ring_bytes <= core.shared.config.ring_bytes_max, "{totals:?}");
        assert!(totals.waiting_bytes <= core.shared.config.waiting_bytes_max, "{totals:?}");
        assert!(totals.partial_bytes <= core.shared.config.partial_bytes_max, "{totals:?}");
        assert!(core.by_name.len() <= 8 && totals.origins <= 40 + 8, "{totals:?}");
    }
    let config = &core.shared.config;
    assert!(most > config.ring_bytes_max + config.waiting_bytes_max / 2, "the flood reached the bounds: {most}");
    for number in 0..20 {
        core.forget_lane(20_000_000, &LaneName::new(&format!("lane-{number}")).unwrap());
    }
    let Totals { ring_bytes, waiting_bytes, partial_bytes, origins, serves } = core.shared.totals;
    assert_eq!([ring_bytes, waiting_bytes, partial_bytes, origins, serves], [0; 5], "nothing is left behind");
}

#[test]
fn the_default_formula_is_what_the_document_says() {
    let mib = CoreConfig::default().memory_bytes_max() >> 20;
    assert!((112..160).contains(&mib), "{mib} MiB");
}

#[test]
fn who_opens_too_much_is_refused_and_crowds_out_only_itself() {
    let (mut core, mut world) = core_with(small(), 2);
    core.hear(0, peer(2), data(200, 1), &mut world).unwrap();
    for of in 0..100 {
        core.hear(u64::from(of) * MS, peer(1), data(of, 1), &mut world).unwrap();
    }
    assert_eq!(core.lanes[0].as_ref().unwrap().replay(&origin(200), 1).count(), 1, "the other's origin is there");
    let config = CoreConfig { openings: Rate { per_second: 10, burst: 20 }, ..CoreConfig::default() };
    let (mut core, mut world) = core_with(config, 1);
    let refused = (0..100).filter(|of| core.hear(0, peer(1), data(*of, 1), &mut world).is_err()).count();
    assert_eq!(refused, 100 - 19, "the lane is an opening too");
    assert_eq!(world.disconnected, [], "it may only have relayed them");
}

#[test]
fn lanes_are_bounded_and_quiet_ones_go_first() {
    let (mut core, mut world) = core_with(small(), 1);
    let name = |number: u64| LaneName::new(&format!("lane-{number}")).unwrap();
    for number in 0..8 {
        core.publish(number, &name(number), &Bytes::new(), &mut world).unwrap();
    }
    let later = 10 * MS;
    let again = core.publish(later, &name(0), &Bytes::new(), &mut world).unwrap();
    assert_eq!(again.seq, 2);
    core.publish(later, &name(8), &Bytes::new(), &mut world).unwrap();
    assert_eq!(core.by_name.len(), 8);
    let anew = core.publish(later + MS, &name(1), &Bytes::new(), &mut world).unwrap();
    assert_eq!(anew.seq, 1, "forgotten");
    assert!(anew.epoch > EPOCH, "and so begun anew, in an epoch of its own");
}

#[test]
fn messages_of_a_forgotten_origin_are_not_taken_twice() {
    let (mut core, mut world) = core_with(small(), 1);
    core.hear(0, peer(1), data(200, 1), &mut world).unwrap();
    for of in 0..20 {
        core.hear(MS + u64::from(of), peer(1), data(of, 1), &mut world).unwrap();
    }
    world.delivered.clear();
    core.hear(2 * MS, peer(1), data(200, 1), &mut world).unwrap();
    assert_eq!(world.delivered.len(), 0);
    core.hear(2 * MS, peer(1), data(200, 2), &mut world).unwrap();
    assert_eq!(world.seqs(), [2]);
}

#[test]
fn huge_numbers_change_nothing() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    let ahead = Key { origin: origin(9), epoch: EPOCH + 25 * 3600 * 1000, seq: 1 };
    let far = Body::Data(Data { key: ahead, hops: 255, seal: None, payload: Bytes::new() });
    assert_eq!(core.hear(0, peer(1), far, &mut world), Err(Misbehaviour::EpochAhead));
    let zero = Body::Data(Data { key: Key { epoch: 0, ..ahead }, hops: 1, seal: None, payload: Bytes::new() });
    core.hear(0, peer(1), zero, &mut world).unwrap();
    core.hear(0, peer(1), digest(9, SEQ_MAX, SEQ_MAX), &mut world).unwrap();
    core.hear(0, peer(1), Body::Credit { consumed: u64::MAX }, &mut world).unwrap();
    core.wait_until(5000 * MS, &mut world);
    core.hear(5000 * MS, peer(2), data(9, 2), &mut world).unwrap();
    assert_eq!((world.seqs(), world.gaps.len(), world.epochs.len()), (vec![1, 2], 0, 0));
    let stranger = core.hear(0, peer(99), data(9, 3), &mut world);
    assert_eq!(stranger, Err(Misbehaviour::UnknownPeer));
}

#[test]
fn false_chunks_cost_the_session() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    let hashes = Bytes::from(vec![0; CHUNKS_MAX * 32]);
    let head = ChunkHead { key: key(9, 1), hops: 1, seal: None, size: MESSAGE_BYTES_MAX as u32, hashes };
    core.hear(0, peer(1), Body::ChunkHead(head), &mut world).unwrap();
    let chunk = Chunk { key: key(9, 1), index: 0, bytes: Bytes::from(vec![1; CHUNK_BYTES]) };
    for _ in 0..4 {
        let refused = core.hear(0, peer(1), Body::Chunk(chunk.clone()), &mut world);
        assert_eq!(refused, Err(Misbehaviour::WrongChunk));
    }
    assert_eq!(world.disconnected, [(peer(1), DisconnectReason::Misbehaved)]);
    core.wait_until(10_000 * MS, &mut world);
    assert_eq!(core.shared.totals.partial_bytes, 0, "given up in time");
}

#[test]
fn a_liar_is_asked_last_and_then_left() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(2), data(9, 1), &mut world).unwrap();
    let mut now = 0;
    let mut first_bad = None;
    while world.disconnected.is_empty() {
        now += 600 * MS;
        assert!(now < 200_000 * MS, "never left");
        core.hear(now, peer(1), digest(9, 5, 9), &mut world).unwrap();
        core.wait_until(now + 599 * MS, &mut world);
        if first_bad.is_none() && !core.shared.is_in_good_standing(now, core.shared.peers.session(&peer(1)).unwrap()) {
            first_bad = Some(now);
            assert_eq!(core.lanes_of(&peer(1)), [(lane(), Link::Lazy)]);
        }
    }
    assert_eq!(world.disconnected, [(peer(1), DisconnectReason::Misbehaved)]);
    assert!(first_bad.unwrap() < 20_000 * MS);
    assert_eq!((world.seqs(), world.gaps.len()), (vec![1], 0));
}
