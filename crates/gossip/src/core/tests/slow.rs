//! Peers that take too little: credit, places in the ring, and what each lane's policy does.

use super::*;
use crate::budget::Rate;
use crate::shell::SlowConsumer;

fn with(policy: SlowConsumer) -> (Core, World) {
    core_with(CoreConfig { slow_consumer: policy, ..CoreConfig::default() }, 2)
}

fn publish(core: &mut Core, world: &mut World, now: Micros) -> Outcomes {
    core.publish(now, &lane(), &Bytes::from(vec![1; 1000]), world).unwrap().outcomes
}

use crate::shell::Outcomes;

fn outcome_of(outcomes: &Outcomes, of: Peer) -> SendOutcome {
    outcomes.iter().find(|(peer, _)| *peer == of).unwrap().1
}

fn data_seqs(bodies: &[Body]) -> Vec<u64> {
    bodies.iter().filter_map(|body| if let Body::Data(data) = body { Some(data.key.seq) } else { None }).collect()
}

#[test]
fn a_busy_peer_is_told_at_once_and_goes_on_where_it_was() {
    let (mut core, mut world) = with(SlowConsumer::Busy);
    publish(&mut core, &mut world, 0);
    world.full = Some(peer(1));
    let outcomes = publish(&mut core, &mut world, 0);
    assert_eq!(outcome_of(&outcomes, peer(1)), SendOutcome::Busy { retry_after_ms: 7 });
    assert_eq!((outcome_of(&outcomes, peer(2)), outcomes.retry_after_ms()), (SendOutcome::Sent, Some(7)));
    publish(&mut core, &mut world, 0);
    assert_eq!(data_seqs(&world.take(peer(2))), [1, 2, 3], "the other does not notice");
    world.full = None;
    core.wait_until(7 * MS, &mut world);
    assert_eq!(data_seqs(&world.take(peer(1))), [1, 2, 3]);
    publish(&mut core, &mut world, 8 * MS);
    assert_eq!(data_seqs(&world.take(peer(1))), [4]);
}

#[test]
fn the_other_policies_do_what_they_say() {
    let (mut core, mut world) = with(SlowConsumer::DropNewest);
    world.full = Some(peer(1));
    publish(&mut core, &mut world, 0);
    world.full = None;
    publish(&mut core, &mut world, 0);
    core.wait_until(100 * MS, &mut world);
    assert_eq!(data_seqs(&world.take(peer(1))), [2]);

    let (mut core, mut world) = with(SlowConsumer::DropOldest);
    world.full = Some(peer(1));
    let outcomes = publish(&mut core, &mut world, 0);
    assert_eq!(outcome_of(&outcomes, peer(1)), SendOutcome::Sent);
    assert_eq!(data_seqs(&world.take(peer(1))), [1]);
    assert!(world.shed > 1000);

    let (mut core, mut world) = with(SlowConsumer::Disconnect);
    world.full = Some(peer(1));
    publish(&mut core, &mut world, 0);
    assert_eq!(world.disconnected, [(peer(1), DisconnectReason::Slow)]);
    assert_eq!(core.lanes_of(&peer(1)), []);
    assert_eq!(core.lanes_of(&peer(2)), [(lane(), Link::Eager)]);
}

#[test]
fn a_lane_may_have_its_own_policy() {
    let mut config = CoreConfig::default();
    config.slow_consumer_of.insert(lane(), SlowConsumer::Disconnect);
    let (mut core, mut world) = core_with(config, 1);
    world.full = Some(peer(1));
    core.publish(0, &LaneName::new("other").unwrap(), &Bytes::new(), &mut world).unwrap();
    assert_eq!(world.disconnected.len(), 0);
    publish(&mut core, &mut world, 0);
    assert_eq!(world.disconnected.len(), 1);
}

#[test]
fn without_credit_nothing_more_leaves_and_credit_brings_the_rest() {
    let config = CoreConfig { credit_bytes: 10_000, ..CoreConfig::default() };
    let (mut core, mut world) = core_with(config, 1);
    for _ in 0..20 {
        publish(&mut core, &mut world, 0);
    }
    let sent = data_seqs(&world.take(peer(1)));
    assert_eq!(sent, (1..=9).collect::<Vec<u64>>());
    core.wait_until(100 * MS, &mut world);
    assert_eq!(data_seqs(&world.take(peer(1))), Vec::<u64>::new());
    core.hear(100 * MS, peer(1), Body::Credit { consumed: u64::MAX }, &mut world).unwrap();
    assert_eq!(data_seqs(&world.take(peer(1))), (10..=18).collect::<Vec<u64>>());
    core.wait_until(3000 * MS, &mut world);
    assert_eq!(data_seqs(&world.take(peer(1))), [19, 20], "silence is not waited for for ever");
}

#[test]
fn consumed_data_gives_credit_back() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 1);
    for seq in 1..=10 {
        let payload = Bytes::from(vec![0; 60_000]);
        let body = Body::Data(Data { key: key(9, seq), hops: 1, seal: None, payload });
        core.hear(0, peer(1), body, &mut world).unwrap();
    }
    let credits = world.sent.iter().filter(|(_, flow, message)| {
        *flow == crate::CONTROL_FLOW && matches!(message.body, Body::Credit { consumed } if consumed > 60_000)
    });
    assert_eq!(credits.count(), 3, "one for each 128 KiB");
}

#[test]
fn a_lane_over_its_budget_says_so() {
    let config = CoreConfig { lane_frames: Rate { per_second: 1000, burst: 2 }, ..CoreConfig::default() };
    let (mut core, mut world) = core_with(config, 2);
    publish(&mut core, &mut world, 0);
    publish(&mut core, &mut world, 0);
    let refused = core.publish(0, &lane(), &Bytes::new(), &mut world);
    assert_eq!(refused, Err(PublishError::Busy { retry_after_ms: 1 }));
    core.hear(0, peer(1), data(9, 1), &mut world).unwrap();
    assert_eq!(data_seqs(&world.take(peer(2))), [1, 2], "what is relayed waits");
    core.wait_until(2 * MS, &mut world);
    assert_eq!(data_seqs(&world.take(peer(2))), [1]);
}

#[test]
fn a_link_far_behind_goes_on_with_what_the_ring_still_holds() {
    let (mut core, mut world) = core_with(CoreConfig { ring_messages_per_lane: 5, ..CoreConfig::default() }, 1);
    world.full = Some(peer(1));
    for _ in 0..20 {
        publish(&mut core, &mut world, 0);
    }
    world.full = None;
    core.wait_until(10 * MS, &mut world);
    assert_eq!(data_seqs(&world.take(peer(1))), [16, 17, 18, 19, 20]);
}

/// A sender, and a receiver that may be made anew while the session stands.
struct Session {
    sender: Core,
    receiver: Core,
    here: World,
    there: World,
    now: Micros,
    published: u64,
}

const CREDIT: u64 = 512 << 10;

impl Session {
    fn new() -> Self {
        let config = CoreConfig { credit_bytes: CREDIT, ..CoreConfig::default() };
        let (sender, here) = core_with(config, 1);
        let (receiver, there) = Self::receiver(0);
        Session { sender, receiver, here, there, now: 0, published: 0 }
    }

    fn receiver(now: Micros) -> (Core, World) {
        let (mut receiver, mut there) = (Core::new(now, CoreConfig::default(), origin(1), EPOCH, 2), World::default());
        assert!(receiver.peer_up(now, peer(0xee), &mut there));
        (receiver, there)
    }

    /// Publishes so much, five milliseconds apart, and counts the publications that were told to wait.
    fn talk(&mut self, messages: usize) -> usize {
        let mut busy = 0;
        for _ in 0..messages {
            self.now += 5 * MS;
            self.sender.wait_until(self.now, &mut self.here);
            let payload = Bytes::from(vec![1; 60_000]);
            let outcomes = self.sender.publish(self.now, &lane(), &payload, &mut self.here).unwrap().outcomes;
            busy += outcomes.iter().filter(|(_, outcome)| matches!(outcome, SendOutcome::Busy { .. })).count();
            self.published += 1;
            self.exchange();
        }
        busy
    }

    fn exchange(&mut self) {
        for body in self.here.take(peer(1)) {
            self.receiver.hear(self.now, peer(0xee), body, &mut self.there).unwrap();
        }
        self.receiver.wait_until(self.now, &mut self.there);
        for body in self.there.take(peer(0xee)) {
            self.sender.hear(self.now, peer(1), body, &mut self.here).unwrap();
        }
    }
}

#[test]
fn credit_goes_on_when_the_receiver_begins_anew_in_the_middle_of_a_session() {
    for lost in [0, 5, 8] {
        let mut session = Session::new();
        assert_eq!(session.talk(100), 0, "a receiver that takes everything");
        // What was on its way is lost with the receiver's engine.
        for _ in 0..lost {
            let payload = Bytes::from(vec![1; 60_000]);
            session.sender.publish(session.now, &lane(), &payload, &mut session.here).unwrap();
        }
        session.here.take(peer(1));
        (session.receiver, session.there) = Session::receiver(session.now);
        // A window that was lost as a whole is waited for once, for as long as a lease lasts.
        session.talk(500);
        assert_eq!(session.talk(500), 0, "{lost} were lost");
        let last = session.there.seqs().last().copied();
        assert_eq!(last, Some(1100 + lost), "everything arrives");
        assert_eq!((session.here.disconnected, session.there.disconnected), (vec![], vec![]));
    }
}

#[test]
fn credit_goes_on_when_the_receiver_forgot_the_lane() {
    let mut session = Session::new();
    session.talk(100);
    session.receiver.forget_lane(session.now, &lane());
    session.talk(100);
    assert_eq!(session.talk(100), 0);
}

#[test]
fn a_receiver_that_lies_about_its_total_gets_a_window_for_each_word_at_most() {
    let config = CoreConfig { credit_bytes: CREDIT, ..CoreConfig::default() };
    let (mut core, mut world) = core_with(config, 1);
    let mut rng = Rng::new(7);
    for word in 0..1000u64 {
        for _ in 0..20 {
            core.publish(0, &lane(), &Bytes::from(vec![1; 60_000]), &mut world).unwrap();
        }
        let sent = data_seqs(&world.take(peer(1))).len() as u64 * 60_000;
        assert!(sent <= CREDIT, "word {word} brought {sent} bytes");
        let consumed = [0, u64::MAX, CREDIT, 1, u64::from(word as u32)][rng.below(5)];
        core.hear(0, peer(1), Body::Credit { consumed }, &mut world).unwrap();
        // What the word itself set free belongs to it.
        let freed = data_seqs(&world.take(peer(1))).len() as u64 * 60_000;
        assert!(freed <= CREDIT, "word {word} freed {freed} bytes");
    }
}
