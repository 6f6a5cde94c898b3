//! Lives of origins: clocks that differ, clocks that were set back, and peers that make lives up.

use super::*;

const HOUR_MS: u64 = 3600 * 1000;
const HOUR: Micros = HOUR_MS * MS;

fn message(of: u8, epoch: u64, seq: u64) -> Body {
    Body::Data(Data { key: Key { origin: origin(of), epoch, seq }, hops: 1, seal: None, payload: Bytes::new() })
}

#[test]
fn time_passes_before_the_first_event_too() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 0);
    let now = 25 * HOUR;
    core.peer_up(now, peer(1), &mut world);
    let taken = core.hear(now, peer(1), message(1, EPOCH + 25 * HOUR_MS, 1), &mut world);
    assert_eq!((taken, world.seqs()), (Ok(()), vec![1]), "a life that began just now");
    let published = core.publish(now, &LaneName::new("own").unwrap(), &Bytes::new(), &mut world).unwrap();
    assert_eq!(published.epoch, EPOCH + 25 * HOUR_MS);
}

#[test]
fn a_clock_that_is_set_while_the_node_runs_is_followed() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 1);
    let publish = |core: &mut Core, world: &mut World, now, lane: &str| {
        core.publish(now, &LaneName::new(lane).unwrap(), &Bytes::new(), world).unwrap().epoch
    };
    assert_eq!(publish(&mut core, &mut world, MS, "before"), EPOCH + 1);
    // Two days ahead, as after a sleep, or of a machine that learned the time late.
    let late = EPOCH + 48 * HOUR_MS;
    assert_eq!(core.hear(MS, peer(1), message(1, late, 1), &mut world), Err(Misbehaviour::EpochAhead));
    core.set_wall_clock(2 * MS, late);
    assert_eq!(core.hear(2 * MS, peer(1), message(1, late, 1), &mut world), Ok(()));
    assert_eq!(publish(&mut core, &mut world, 3 * MS, "ahead"), late + 1);
    // And back: lives go on all the same.
    core.set_wall_clock(4 * MS, EPOCH);
    assert_eq!(core.hear(4 * MS, peer(1), message(9, late, 1), &mut world), Err(Misbehaviour::EpochAhead));
    world.sent.clear();
    assert_eq!(publish(&mut core, &mut world, 5 * MS, "back"), late + 2);
    let [Body::Data(Data { key, .. })] = &world.take(peer(1))[..] else { panic!("own messages go out") };
    assert_eq!(key.epoch, late + 2);
}

/// Two cores that are joined, the second with a clock that is so much behind; the first has another peer besides.
fn joined(behind_ms: u64) -> [(Core, World); 2] {
    let node = |number, epoch| (Core::new(0, CoreConfig::default(), origin(number), epoch, 1), World::default());
    let [mut first, mut second] = [node(1, EPOCH), node(2, EPOCH - behind_ms)];
    assert!(first.0.peer_up(0, peer(2), &mut first.1) && first.0.peer_up(0, peer(3), &mut first.1));
    assert!(second.0.peer_up(0, peer(1), &mut second.1));
    [first, second]
}

/// Lets time pass; what the two say to each other arrives at once. What each was refused.
fn exchange([first, second]: &mut [(Core, World); 2], from: Micros, until: Micros) -> Vec<Misbehaviour> {
    let mut refused = Vec::new();
    for now in (from..=until).step_by(10 * MS as usize) {
        for (core, world) in [&mut *first, &mut *second] {
            core.wait_until(now, world);
        }
        let (there, back) = (first.1.take(peer(2)), second.1.take(peer(1)));
        refused.extend(there.into_iter().filter_map(|body| second.0.hear(now, peer(1), body, &mut second.1).err()));
        refused.extend(back.into_iter().filter_map(|body| first.0.hear(now, peer(2), body, &mut first.1).err()));
    }
    refused
}

#[test]
fn nobody_is_struck_for_relaying_lives_at_the_edge_of_what_clocks_allow() {
    for behind_ms in [0, 20_000, HOUR_MS / 2] {
        let mut nodes = joined(behind_ms);
        // Made-up origins, each at another distance to the edge.
        for of in 0..40 {
            let epoch = EPOCH + 24 * HOUR_MS - u64::from(of) * 4000;
            nodes[0].0.hear(0, peer(3), message(100 + of, epoch, 1), &mut nodes[0].1).unwrap();
        }
        let refused = exchange(&mut nodes, 0, 40_000 * MS);
        assert_eq!((refused, nodes[1].1.seqs()), (vec![], vec![]), "{behind_ms} ms behind");
        assert_eq!((nodes[0].0.counts().strikes, nodes[1].0.counts().strikes), (0, 0));
        assert_eq!(nodes[1].1.disconnected, []);
        assert_eq!(nodes[0].1.seqs().len(), 40, "they were taken, all the same");
    }
    let mut nodes = joined(HOUR_MS / 2);
    nodes[0].0.hear(0, peer(3), message(100, EPOCH + 22 * HOUR_MS, 1), &mut nodes[0].1).unwrap();
    assert_eq!(exchange(&mut nodes, 0, 100 * MS), []);
    assert_eq!(nodes[1].1.seqs(), [1], "what is not at the edge is passed on");
}

#[test]
fn a_life_too_far_ahead_counts_against_the_origin_itself_and_nobody_else() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    for _ in 0..10 {
        let refused = core.hear(0, peer(1), message(9, EPOCH + 25 * HOUR_MS, 1), &mut world);
        assert_eq!(refused, Err(Misbehaviour::EpochAhead));
        let entries = [9, 8].map(|of| Entry { origin: origin(of), epoch: EPOCH + 25 * HOUR_MS, first: 1, last: 1 });
        let claim = Entry { origin: origin(7), epoch: EPOCH + 1, first: 1, last: 1 };
        let entries = Entries::pack(entries.into_iter().chain([claim]));
        let refused = core.hear(0, peer(1), Body::Digest { no_push: true, entries }, &mut world);
        assert_eq!(refused, Err(Misbehaviour::EpochAhead));
    }
    core.wait_until(MS, &mut world);
    assert!(world.take(peer(1)).iter().any(|body| matches!(body, Body::Pull(want) if want.origin == origin(7))));
    assert_eq!(world.disconnected, []);
    for _ in 0..4 {
        let refused = core.hear(0, peer(2), message(2, EPOCH + 25 * HOUR_MS, 1), &mut world);
        assert_eq!(refused, Err(Misbehaviour::EpochAhead));
    }
    assert_eq!(world.disconnected, [(peer(2), DisconnectReason::Misbehaved)]);
}

fn own_past(epoch: u64) -> Body {
    let entry = Entry { origin: origin(0xee), epoch, first: 1, last: 9 };
    Body::Summary { reply: false, entries: Entries::pack([entry]) }
}

#[test]
fn peers_make_a_node_begin_anew_once_in_ten_seconds_and_what_it_published_stays() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    let first = core.publish(MS, &lane(), &Bytes::from_static(b"first"), &mut world).unwrap();
    for round in 0..300u64 {
        core.hear((2 + 100 * round) * MS, peer(1), own_past(EPOCH + 5000 * (round + 1)), &mut world).unwrap();
    }
    assert_eq!(world.epochs.len(), 3, "thirty seconds of it: {:?}", world.epochs);
    assert_eq!(world.disconnected, []);
    let now = 30_000 * MS;
    let again = core.publish(now, &lane(), &Bytes::from_static(b"again"), &mut world).unwrap();
    assert_eq!((Some(&again.epoch), again.seq), (world.epochs.last(), 1));
    world.sent.clear();
    for published in [&first, &again] {
        let want = crate::wire::Want { origin: origin(0xee), epoch: published.epoch, from: 1, to: 1, chunk: 0 };
        core.hear(now, peer(2), Body::Pull(want), &mut world).unwrap();
    }
    core.wait_until(now, &mut world);
    let served = world.take(peer(2)).into_iter().filter_map(|body| match body {
        Body::Data(data) => Some((data.key.epoch, data.payload)),
        _ => None,
    });
    let expected = [(first.epoch, Bytes::from_static(b"first")), (again.epoch, Bytes::from_static(b"again"))];
    assert_eq!(served.collect::<Vec<_>>(), expected);
}

#[test]
fn a_past_that_no_clock_explains_is_not_believed_and_costs_the_session() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.publish(MS, &lane(), &Bytes::new(), &mut world).unwrap();
    // Others would not pass on what comes after it.
    core.hear(MS, peer(1), own_past(EPOCH + 23 * HOUR_MS), &mut world).unwrap();
    assert_eq!((&world.epochs[..], core.counts().strikes), (&[][..], 0));
    for _ in 0..4 {
        let refused = core.hear(2 * MS, peer(1), own_past(EPOCH + 25 * HOUR_MS), &mut world);
        assert_eq!(refused, Err(Misbehaviour::EpochAhead));
    }
    assert_eq!(world.disconnected, [(peer(1), DisconnectReason::Misbehaved)]);
    assert_eq!(world.epochs, []);
}

#[test]
fn the_life_before_leaves_with_the_ring() {
    let (mut core, mut world) = core_with(CoreConfig { ring_messages_per_lane: 3, ..CoreConfig::default() }, 1);
    for seq in 1..=3 {
        core.hear(0, peer(1), message(9, EPOCH + 1, seq), &mut world).unwrap();
    }
    let former = |core: &Core| {
        let lane = core.lane(&lane()).unwrap();
        lane.origins_for_test().next().and_then(|(_, origin)| origin.held_of(EPOCH + 1)).map(|held| held.len())
    };
    for (seq, left) in [(1, Some(2)), (2, Some(1)), (3, None), (4, None)] {
        core.hear(0, peer(1), message(9, EPOCH + 2, seq), &mut world).unwrap();
        assert_eq!(former(&core), left);
    }
}
