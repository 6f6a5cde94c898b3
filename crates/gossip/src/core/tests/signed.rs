//! Messages that their origins sign: what is taken, what is refused, and what it costs.

use super::*;
use crate::config::Signatures;
use crate::seal::SEAL_BATCH_MAX;

fn config(signatures: Signatures) -> CoreConfig {
    CoreConfig { signatures, ..CoreConfig::default() }
}

/// A node that signs, with one peer.
fn signer(number: u8, signatures: Signatures) -> (Core, World) {
    let mut core = Core::new(0, config(signatures), origin(number), EPOCH, 1);
    let mut world = World { signer: Some(origin(number)), ..World::default() };
    assert!(core.peer_up(0, peer(0xaa), &mut world));
    (core, world)
}

/// What a node that signs sends when it publishes these.
fn published(number: u8, payloads: &[Bytes]) -> Vec<Body> {
    let (mut core, mut world) = signer(number, Signatures::Sign);
    for outcome in core.publish_batch(0, &lane(), payloads, &mut world) {
        outcome.unwrap();
    }
    let is_data = |body: &Body| matches!(body, Body::Data(_) | Body::ChunkHead(_) | Body::Chunk(_));
    world.take(peer(0xaa)).into_iter().filter(is_data).collect()
}

fn small(count: usize) -> Vec<Bytes> {
    (0..count).map(|number| Bytes::from(number.to_string())).collect()
}

fn without_seal(body: &Body) -> Body {
    match body.clone() {
        Body::Data(data) => Body::Data(Data { seal: None, ..data }),
        Body::ChunkHead(head) => Body::ChunkHead(ChunkHead { seal: None, ..head }),
        other => other,
    }
}

#[test]
fn a_batch_costs_one_signature_there_and_one_check_here() {
    let count = SEAL_BATCH_MAX + 5;
    let (mut there, mut sent) = signer(9, Signatures::Sign);
    there.publish_batch(0, &lane(), &small(count), &mut sent);
    assert_eq!(sent.signed, 2);
    let (mut core, mut world) = core_with(config(Signatures::Require), 2);
    for body in sent.take(peer(0xaa)) {
        core.hear(0, peer(1), body, &mut world).unwrap();
    }
    assert_eq!(world.seqs(), (1..=count as u64).collect::<Vec<_>>());
    assert_eq!(world.verified, 2);
}

#[test]
fn what_a_relay_passes_on_is_believed_by_the_next() {
    let large = Bytes::from(vec![5; 2 * CHUNK_BYTES + 1]);
    let bodies = published(9, &[Bytes::from_static(b"small"), large.clone(), Bytes::new()]);
    let (mut relay, mut between) = core_with(config(Signatures::Off), 2);
    for body in bodies {
        relay.hear(0, peer(1), body, &mut between).unwrap();
    }
    let (mut core, mut world) = core_with(config(Signatures::Require), 1);
    for body in between.take(peer(2)) {
        core.hear(0, peer(1), body, &mut world).unwrap();
    }
    let heard: Vec<usize> = world.delivered.iter().map(|(.., payload)| payload.len()).collect();
    assert_eq!((heard, between.verified), (vec![5, large.len(), 0], 0));
    // The ring proves it, too: what is asked for later comes with its seal.
    let want = crate::wire::Want { origin: origin(9), epoch: EPOCH, from: 1, to: 3, chunk: 0 };
    core.peer_up(0, peer(3), &mut world);
    world.sent.clear();
    core.hear(0, peer(3), Body::Pull(want), &mut world).unwrap();
    core.wait_until(MS, &mut world);
    let is_sealed = |body: &Body| match body {
        Body::Data(data) => Some(data.seal.is_some()),
        Body::ChunkHead(head) => Some(head.seal.is_some()),
        _ => None,
    };
    assert_eq!(world.take(peer(3)).iter().filter_map(is_sealed).collect::<Vec<_>>(), [true; 3]);
}

#[test]
fn without_a_signature_nothing_is_taken_where_one_is_required_and_nobody_is_struck() {
    let bodies = published(9, &[Bytes::from_static(b"x"), Bytes::from(vec![1; CHUNK_BYTES + 1])]);
    for (signatures, taken) in [(Signatures::Off, 2), (Signatures::Sign, 2), (Signatures::Require, 0)] {
        let (mut core, mut world) = core_with(config(signatures), 1);
        for body in bodies.iter().map(without_seal) {
            let heard = core.hear(0, peer(1), body.clone(), &mut world);
            let is_refused = taken == 0 && !matches!(body, Body::Chunk(_));
            assert_eq!(heard.err(), is_refused.then_some(Misbehaviour::Unsigned));
        }
        assert_eq!((world.delivered.len(), core.counts().strikes), (taken, 0), "{signatures:?}");
    }
}

#[test]
fn nothing_of_a_signed_message_can_be_changed() {
    let sealed = published(9, &small(3));
    let Body::Data(first) = &sealed[0] else { panic!("data") };
    let Body::Data(second) = &sealed[1] else { panic!("data") };
    let of = |change: &dyn Fn(&mut Data)| {
        let mut data = first.clone();
        change(&mut data);
        Body::Data(data)
    };
    let forged = [
        of(&|data| data.payload = Bytes::from_static(b"another")),
        of(&|data| data.key.seq = 7),
        of(&|data| data.key.epoch += 1),
        of(&|data| data.key.origin = origin(8)),
        of(&|data| data.seal = second.seal.clone()),
    ];
    for (at, body) in forged.into_iter().enumerate() {
        for signatures in [Signatures::Sign, Signatures::Require] {
            let (mut core, mut world) = core_with(config(signatures), 1);
            let heard = core.hear(0, peer(1), body.clone(), &mut world);
            assert_eq!((heard, world.seqs()), (Err(Misbehaviour::Forged), vec![]), "{at}");
            // It changed nothing: the true one is the next, of the life that it is of.
            core.hear(0, peer(1), sealed[0].clone(), &mut world).unwrap();
            assert_eq!((world.seqs(), world.epochs.len()), (vec![1], 0), "{at}");
        }
    }
    let (mut core, mut world) = core_with(config(Signatures::Require), 1);
    let message = Message { lane: LaneName::new("other").unwrap(), body: sealed[0].clone() };
    assert_eq!(core.receive(0, &peer(1), message, &mut world), Err(Misbehaviour::Forged), "another lane");
}

#[test]
fn who_keeps_sending_false_signatures_loses_the_session() {
    let (mut core, mut world) = core_with(config(Signatures::Require), 1);
    let Body::Data(data) = published(9, &small(1)).remove(0) else { panic!("data") };
    for seq in 2..6 {
        let forged = Data { key: Key { seq, ..data.key }, ..data.clone() };
        assert_eq!(core.hear(0, peer(1), Body::Data(forged), &mut world), Err(Misbehaviour::Forged));
    }
    assert_eq!(world.disconnected, [(peer(1), DisconnectReason::Misbehaved)]);
}

#[test]
fn copies_are_not_checked_again() {
    let (mut core, mut world) = core_with(config(Signatures::Require), 2);
    let bodies = published(9, &small(1));
    core.hear(0, peer(1), bodies[0].clone(), &mut world).unwrap();
    let forged_copy = match &bodies[0] {
        Body::Data(data) => Body::Data(Data { payload: Bytes::from_static(b"other"), ..data.clone() }),
        _ => panic!("data"),
    };
    core.hear(0, peer(2), forged_copy, &mut world).unwrap();
    assert_eq!((world.verified, world.seqs()), (1, vec![1]));
}

#[test]
fn a_made_up_later_life_of_this_node_changes_nothing_without_its_signature() {
    let (mut core, mut world) = signer(0xee, Signatures::Require);
    let first = core.publish(0, &lane(), &Bytes::from_static(b"own"), &mut world).unwrap();
    let key = Key { origin: origin(0xee), epoch: EPOCH + 1000, seq: 1 };
    let made_up = Body::Data(Data { key, hops: 1, seal: None, payload: Bytes::new() });
    assert_eq!(core.hear(0, peer(0xaa), made_up, &mut world), Err(Misbehaviour::Unsigned));
    let second = core.publish(0, &lane(), &Bytes::new(), &mut world).unwrap();
    assert_eq!((first.epoch, second.seq, world.epochs.len()), (second.epoch, 2, 0));
}

#[test]
fn what_is_refused_in_a_batch_leaves_the_seals_of_the_others_true() {
    let too_large = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    let burst = crate::budget::Rate { per_second: 1, burst: 3 };
    let mut there = Core::new(0, CoreConfig { lane_frames: burst, ..config(Signatures::Sign) }, origin(9), EPOCH, 1);
    let mut sent = World { signer: Some(origin(9)), ..World::default() };
    there.peer_up(0, peer(0xaa), &mut sent);
    let mut batch = small(6);
    batch.insert(1, too_large);
    let outcomes = there.publish_batch(0, &lane(), &batch, &mut sent);
    let seqs: Vec<Option<u64>> = outcomes.iter().map(|it| it.as_ref().ok().map(|it| it.seq)).collect();
    assert_eq!(seqs, [Some(1), None, Some(2), Some(3), None, None, None]);
    assert!(matches!(outcomes[1], Err(PublishError::TooLarge { .. })));
    // Those that found no room come again later, under numbers of their own.
    there.publish_batch(5_000_000, &lane(), &batch[4..6], &mut sent);
    let (mut core, mut world) = core_with(config(Signatures::Require), 1);
    for body in sent.take(peer(0xaa)).into_iter().filter(|body| matches!(body, Body::Data(_))) {
        core.hear(0, peer(1), body, &mut world).unwrap();
    }
    assert_eq!(world.seqs(), [1, 2, 3, 4, 5]);
}
