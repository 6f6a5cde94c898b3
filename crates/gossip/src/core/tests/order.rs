//! Once, in order, relayed, asked for, told as lost.

use super::*;
use crate::wire::{Answer, Want};

#[test]
fn a_lane_without_peers_is_a_lane() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 0);
    for seq in 1..=3u64 {
        let published = core.publish(MS, &lane(), &Bytes::from(format!("{seq}")), &mut world).unwrap();
        assert_eq!((published.seq, published.outcomes.iter().count()), (seq, 0));
    }
    assert_eq!(world.seqs(), [1, 2, 3]);
    let replayed: Vec<_> =
        core.replay(&lane(), &origin(0xee), 2).map(|held| held.read()).map(|held| (held.seq, held.payload)).collect();
    assert_eq!(replayed, [(2, Bytes::from("2")), (3, Bytes::from("3"))]);
    assert_eq!(core.replay(&lane(), &origin(1), 1).count(), 0);
    let too_large = core.publish(MS, &lane(), &Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]), &mut world);
    assert_eq!(too_large, Err(PublishError::TooLarge { max: MESSAGE_BYTES_MAX }));
}

#[test]
fn eight_peers_are_pushed_to_and_the_others_get_a_digest() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 11);
    let published = core.publish(0, &lane(), &Bytes::from_static(b"x"), &mut world).unwrap();
    assert_eq!(published.outcomes.iter().filter(|(_, outcome)| *outcome == SendOutcome::Sent).count(), 8);
    assert_eq!(world.sent.iter().filter(|(_, _, message)| matches!(message.body, Body::Data(_))).count(), 8);
    assert_eq!(world.sent.len(), 8, "digests gather first");
    core.wait_until(5 * MS, &mut world);
    let digests = world.sent.iter().filter(|(_, _, message)| matches!(message.body, Body::Digest { .. })).count();
    assert_eq!((digests, world.sent.len()), (3, 11));
    let links = |link| (1..=11).filter(|number| core.lanes_of(&peer(*number)) == [(lane(), link)]).count();
    assert_eq!((links(Link::Eager), links(Link::Lazy)), (8, 3));
}

#[test]
fn a_message_goes_on_once_to_all_but_its_bringer() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 3);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(2), data(9, 1), &mut world).unwrap();
    assert_eq!(world.seqs(), [1]);
    assert_eq!(world.take(peer(1)), [Body::Join], "the way to the leader");
    let to_second = world.take(peer(2));
    assert!(matches!(&to_second[0], Body::Data(Data { hops: 2, .. })), "{to_second:?}");
    assert_eq!(to_second[1..], [Body::Prune { is_full: false }], "it has it from elsewhere");
    assert!(matches!(world.take(peer(3))[..], [Body::Data(_)]));
    let id = world.delivered[0].4;
    let trace = core.trace(&id).unwrap();
    assert_eq!((trace.from, trace.hops, trace.duplicates), (Some(peer(1)), 1, 1));
    assert_eq!((trace.eager, trace.lazy), (vec![peer(1), peer(3)], vec![peer(2)]));
    assert_eq!(core.trace(&MsgId([0; 16])), None);
}

#[test]
fn what_comes_too_early_waits_and_the_hole_is_asked_for() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 4), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 3), &mut world).unwrap();
    assert_eq!(world.seqs(), [1]);
    world.sent.clear();
    core.wait_until(40 * MS, &mut world);
    let want = Want { origin: origin(9), epoch: EPOCH + 1, from: 2, to: 2, chunk: 0 };
    assert_eq!(world.take(peer(1)), [Body::Graft(want)]);
    core.hear(41 * MS, peer(1), data(9, 2), &mut world).unwrap();
    assert_eq!(world.seqs(), [1, 2, 3, 4]);
    assert_eq!((core.counts().repaired, world.gaps.len()), (1, 0));
}

#[test]
fn a_hole_that_nobody_can_fill_is_told() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 5), &mut world).unwrap();
    for now in [50 * MS, 60 * MS, 70 * MS] {
        core.wait_until(now, &mut world);
        for number in [1, 2] {
            if world.take(peer(number)).iter().any(|body| matches!(body, Body::Graft(_) | Body::Pull(_))) {
                let answer = Answer { origin: origin(9), epoch: EPOCH + 1, from: 2, through: 4, missing_to: 4 };
                core.hear(now, peer(number), Body::Answer(answer), &mut world).unwrap();
            }
        }
    }
    assert_eq!((world.seqs(), &world.gaps[..]), (vec![1, 5], &[(EPOCH + 1, 2, 4)][..]));
    assert_eq!(core.counts().lost, 3);
    core.hear(80 * MS, peer(1), data(9, 3), &mut world).unwrap();
    assert_eq!(world.seqs(), [1, 5], "what was told as lost does not come after all");
}

#[test]
fn a_hole_without_answers_is_told_in_time_and_claims_alone_tell_nothing() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 3), &mut world).unwrap();
    core.hear(0, peer(2), digest(9, 4, 1 << 40), &mut world).unwrap();
    core.wait_until(10_000 * MS, &mut world);
    assert_eq!((world.seqs(), &world.gaps[..]), (vec![1, 3], &[(EPOCH + 1, 2, 2)][..]));
}

#[test]
fn a_digest_is_followed_unless_the_push_comes() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    core.hear(0, peer(2), digest(9, 2, 2), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 2), &mut world).unwrap();
    core.wait_until(100 * MS, &mut world);
    assert_eq!(core.counts().asked, 0, "the push came");
    core.hear(100 * MS, peer(2), digest(9, 3, 4), &mut world).unwrap();
    world.sent.clear();
    core.wait_until(200 * MS, &mut world);
    let want = Want { origin: origin(9), epoch: EPOCH + 1, from: 3, to: 4, chunk: 0 };
    assert_eq!(world.take(peer(2)), [Body::Graft(want)]);
}

#[test]
fn a_new_life_of_an_origin_is_told_and_the_old_one_is_over() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 2);
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    let second = Key { origin: origin(9), epoch: EPOCH + 2, seq: 1 };
    let again = Data { key: second, hops: 1, seal: None, payload: Bytes::from_static(b"anew") };
    core.hear(0, peer(1), Body::Data(again), &mut world).unwrap();
    core.hear(0, peer(1), data(9, 2), &mut world).unwrap();
    assert_eq!((world.seqs(), &world.epochs[..]), (vec![1, 1], &[EPOCH + 2][..]));
    let held: Vec<_> = core.replay(&lane(), &origin(9), 1).map(|held| (held.epoch(), held.seq())).collect();
    assert_eq!(held, [(EPOCH + 2, 1)]);
}

#[test]
fn a_node_whose_clock_went_back_begins_anew_above_its_past() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 1);
    assert_eq!(core.publish(MS, &lane(), &Bytes::new(), &mut world).unwrap().epoch, EPOCH + 1);
    let past = Entry { origin: origin(0xee), epoch: EPOCH + 5000, first: 1, last: 9 };
    let summary = Body::Summary { reply: false, entries: Entries::pack([past]) };
    core.hear(2 * MS, peer(1), summary, &mut world).unwrap();
    let published = core.publish(3 * MS, &lane(), &Bytes::new(), &mut world).unwrap();
    assert_eq!((published.epoch, published.seq), (EPOCH + 5001, 1));
}

/// Summaries among what was sent: what each says of an origin.
fn summaries(bodies: &[Body]) -> Vec<Entry> {
    let entries = bodies.iter().filter_map(|body| match body {
        Body::Summary { entries, .. } => Some(entries.iter().collect::<Vec<_>>()),
        _ => None,
    });
    entries.flatten().collect()
}

#[test]
fn who_goes_on_with_a_life_that_is_over_is_told_so_now_and_then() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 9);
    let known = Key { origin: origin(9), epoch: EPOCH + 5000, seq: 1 };
    let message = Body::Data(Data { key: known, hops: 1, seal: None, payload: Bytes::new() });
    core.hear(0, peer(1), message, &mut world).unwrap();
    world.sent.clear();
    let entry = Entry { origin: origin(9), epoch: EPOCH + 5000, first: 1, last: 1 };
    for seq in 1..=5 {
        core.hear(MS, peer(9), data(9, seq), &mut world).unwrap();
        core.hear(MS, peer(2), digest(9, seq, seq), &mut world).unwrap();
    }
    assert_eq!(summaries(&world.take(peer(9))), [entry], "once, however much comes");
    assert_eq!(summaries(&world.take(peer(2))), [entry], "a digest is word of that life as well");
    core.hear(102 * MS, peer(9), data(9, 6), &mut world).unwrap();
    assert_eq!(summaries(&world.take(peer(9))), [entry]);
    assert_eq!(world.seqs(), [1]);
}

#[test]
fn a_clock_that_went_back_silences_nobody_even_if_its_past_is_held_nowhere() {
    // Peer 2 brought the last life of this node to the far one, then something else that took its place in the ring.
    let config = CoreConfig { ring_messages_per_lane: 1, ..CoreConfig::default() };
    let (mut far, mut there) = (Core::new(0, config, origin(1), EPOCH, 2), World::default());
    [2, 3, 0xee].iter().for_each(|number| assert!(far.peer_up(0, peer(*number), &mut there)));
    let past = Key { origin: origin(0xee), epoch: EPOCH + 5000, seq: 1 };
    let message = |key| Body::Data(Data { key, hops: 1, seal: None, payload: Bytes::new() });
    far.hear(0, peer(2), message(past), &mut there).unwrap();
    far.hear(0, peer(2), data(9, 1), &mut there).unwrap();
    assert_eq!(far.replay(&lane(), &origin(0xee), 1).count(), 0);
    there.sent.clear();

    let (mut core, mut world) = core_with(CoreConfig::default(), 1);
    let lost = core.publish(MS, &lane(), &Bytes::from_static(b"lost"), &mut world).unwrap();
    // To the far node, and what it says back.
    let mut exchange = |core: &mut Core, world: &mut World, now| {
        for body in world.take(peer(1)) {
            far.hear(now, peer(0xee), body, &mut there).unwrap();
        }
        for body in there.take(peer(0xee)) {
            core.hear(now, peer(1), body, world).unwrap();
        }
        there.delivered.last().map(|(_, epoch, _, _, _, payload)| (*epoch, payload.clone())).unwrap()
    };
    exchange(&mut core, &mut world, 2 * MS);
    let again = core.publish(3 * MS, &lane(), &Bytes::from_static(b"heard"), &mut world).unwrap();
    assert!(again.epoch > past.epoch && lost.epoch < past.epoch);
    assert_eq!(exchange(&mut core, &mut world, 4 * MS), (again.epoch, Bytes::from_static(b"heard")));
    // A peer in between, who would ask for it, is told of nothing that is not held.
    far.hear(5 * MS, peer(2), data(9, 2), &mut there).unwrap();
    there.sent.clear();
    far.hear(6 * MS, peer(3), message(past), &mut there).unwrap();
    assert_eq!(summaries(&there.take(peer(3))), []);
}

#[test]
fn the_id_of_a_large_publication_does_not_read_it_again() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 0);
    let me = origin(0xee);
    for size in [10, CHUNK_BYTES, CHUNK_BYTES + 1, MESSAGE_BYTES_MAX] {
        let payload = Bytes::from(vec![3; size]);
        let published = core.publish(MS, &lane(), &payload, &mut world).unwrap();
        let id = crate::msg_id(&me, published.epoch, &lane(), published.seq, &payload);
        assert_eq!(published.msg_id(&me, &lane(), &payload), id, "{size}");
        let is_unread = published.msg_id(&me, &lane(), &[]) == id;
        assert_eq!(is_unread, size > CHUNK_BYTES, "{size}");
    }
}

#[test]
fn peers_exchange_what_they_hold_and_answer_questions() {
    let (mut core, mut world) = core_with(CoreConfig { ring_messages_per_lane: 4, ..CoreConfig::default() }, 0);
    for number in 1..=6u64 {
        core.publish(MS, &lane(), &Bytes::from(vec![0; number as usize]), &mut world).unwrap();
    }
    core.peer_up(MS, peer(1), &mut world);
    core.wait_until(MS, &mut world);
    let entry = Entry { origin: origin(0xee), epoch: EPOCH + 1, first: 3, last: 6 };
    assert_eq!(world.take(peer(1)), [Body::Summary { reply: false, entries: Entries::pack([entry]) }]);
    let want = Want { origin: origin(0xee), epoch: EPOCH + 1, from: 1, to: 5, chunk: 0 };
    core.hear(2 * MS, peer(1), Body::Pull(want), &mut world).unwrap();
    core.wait_until(2 * MS, &mut world);
    let sent = world.take(peer(1));
    let seqs = sent.iter().filter_map(|body| if let Body::Data(data) = body { Some(data.key.seq) } else { None });
    assert_eq!(seqs.collect::<Vec<_>>(), [3, 4, 5]);
    let answer = Answer { origin: origin(0xee), epoch: EPOCH + 1, from: 1, through: 5, missing_to: 2 };
    assert_eq!(sent.last(), Some(&Body::Answer(answer)));
}

#[test]
fn a_joiner_begins_with_what_is_held_and_is_told_no_gap() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 1);
    let old = |seq| Key { origin: origin(9), epoch: EPOCH - 9, seq };
    let entry = Entry { origin: origin(9), epoch: EPOCH - 9, first: 50, last: 51 };
    core.hear(0, peer(1), Body::Summary { reply: false, entries: Entries::pack([entry]) }, &mut world).unwrap();
    core.wait_until(100 * MS, &mut world);
    let want = Want { origin: origin(9), epoch: EPOCH - 9, from: 50, to: 51, chunk: 0 };
    assert_eq!(world.take(peer(1)), [Body::Pull(want)]);
    for seq in [50, 51] {
        let data = Data { key: old(seq), hops: 1, seal: None, payload: Bytes::new() };
        core.hear(100 * MS, peer(1), Body::Data(data), &mut world).unwrap();
    }
    assert_eq!((world.seqs(), world.gaps.len()), (vec![50, 51], 0));
}

#[test]
fn own_large_messages_arrive_whole_at_another_core() {
    let payload = Bytes::from((0..2_500_000).map(|at| (at / 7) as u8).collect::<Vec<u8>>());
    let config = CoreConfig { credit_bytes: 8 << 20, ..CoreConfig::default() };
    let (mut sender, mut world) = core_with(config, 1);
    let published = sender.publish(0, &lane(), &payload, &mut world).unwrap();
    let (mut receiver, mut far) = (Core::new(0, CoreConfig::default(), origin(1), EPOCH, 2), World::default());
    receiver.peer_up(0, peer(0xee), &mut far);
    for (_, _, message) in world.sent {
        receiver.receive(0, &peer(0xee), message, &mut far).unwrap();
    }
    let msg_id = crate::msg_id(&origin(0xee), published.epoch, &lane(), published.seq, &payload);
    assert_eq!((far.delivered[0].4, &far.delivered[0].5), (msg_id, &payload));
    let held: Vec<_> = receiver.replay(&lane(), &origin(0xee), 1).map(|held| held.read()).collect();
    assert_eq!((held[0].seq, &held[0].payload), (published.seq, &payload));
}
