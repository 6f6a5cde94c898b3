//! Subscribers that take items at their own speed, against a real core.

use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use ron_gossip::{CoreConfig, Delivered, DisconnectReason, Peer, SendOutcome, Shell};
use ron_types::limits::overlay::SUBSCRIBER_ITEMS_MAX;

use super::*;
use crate::engine::lane_table::LaneTable;
use crate::subscription::{SubscriberPool, Subscription, inbox};

fn me() -> NodeId {
    NodeId::from_bytes([7; 32])
}

fn lane() -> LaneName {
    "lane".parse().expect("a name")
}

fn other() -> NodeId {
    NodeId::from_bytes([8; 32])
}

/// A core whose only listeners are those of a table.
struct Rig {
    core: Core,
    table: LaneTable,
    now: u64,
}

struct Table<'a>(&'a mut LaneTable);

impl Shell for Table<'_> {
    fn send(&mut self, _: &Peer, _: &LaneName, _: u64, _: Bytes) -> SendOutcome {
        SendOutcome::NotReady
    }

    fn shed_oldest(&mut self, _: &Peer, _: u64, _: usize) -> usize {
        0
    }

    fn disconnect(&mut self, _: &Peer, _: DisconnectReason) {}

    fn deliver(&mut self, lane: &LaneName, delivered: Delivered<'_>) {
        let Delivered { epoch, seq, hops, arrival, .. } = delivered;
        let origin = NodeId::from_bytes(delivered.origin.0);
        let message = Message { origin, epoch, seq, hops, payload: delivered.payload() };
        self.0.give_message(lane, message, origin == me(), arrival);
    }

    fn gap(&mut self, lane: &LaneName, origin: &Origin, epoch: u64, from: u64, to: u64) {
        self.0.give_notice(lane, &Item::Gap { origin: NodeId::from_bytes(origin.0), epoch, from, to });
    }

    fn new_epoch(&mut self, lane: &LaneName, origin: &Origin, epoch: u64) {
        self.0.give_notice(lane, &Item::Epoch { origin: NodeId::from_bytes(origin.0), epoch });
    }
}

impl Rig {
    fn new(config: CoreConfig) -> Rig {
        Rig { core: Core::new(0, config, Origin(*me().as_bytes()), 1, 1), table: LaneTable::default(), now: 0 }
    }

    fn publish(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            self.now += 1_000;
            let payload = Bytes::from(vec![1; bytes]);
            self.core.publish(self.now, &lane(), &payload, &mut Table(&mut self.table)).expect("taken");
        }
        self.table.flush();
    }

    fn subscribe(&mut self, from: u64, own: bool) -> Subscription {
        self.subscribe_to(me(), from, own)
    }

    fn subscribe_to(&mut self, origin: NodeId, from: u64, own: bool) -> Subscription {
        let (pool, (writer, reader)) = (Arc::<SubscriberPool>::default(), inbox(&Arc::default()));
        let catching_up = CatchUp::new(&self.core, &lane(), vec![(origin, from)]);
        self.table.add(
            lane(),
            own,
            Box::new(writer),
            Some(Box::new(catching_up)),
            pool.take(&ron_auth::Subject::operator("test")).expect("a place"),
        );
        reader
    }

    /// Messages of another node arrive, of a life of it.
    fn hear(&mut self, epoch: u64, seqs: std::ops::RangeInclusive<u64>) {
        let (peer, shell) = (Peer(*other().as_bytes()), &mut Table(&mut self.table));
        self.core.peer_up(self.now, peer, shell);
        for seq in seqs {
            let key = ron_gossip::wire::Key { origin: Origin(*other().as_bytes()), epoch, seq };
            let body = ron_gossip::wire::Body::Data(ron_gossip::wire::Data {
                key,
                hops: 1,
                seal: None,
                payload: Bytes::new(),
            });
            let message = ron_gossip::wire::Message { lane: lane(), body };
            self.core.receive(self.now, &peer, message, shell).expect("taken");
        }
        self.table.flush();
    }

    /// One turn of the engine.
    fn turn(&mut self) -> Poll<()> {
        self.table.poll_catch_up(&self.core, me(), &mut Context::from_waker(Waker::noop()))
    }

    /// Turns until the reader has everything; it reads whenever the engine cannot go on.
    fn read_all(&mut self, reader: &mut Subscription) -> Vec<Item> {
        let mut items = Vec::new();
        loop {
            while self.turn().is_ready() {}
            let before = items.len();
            items.extend(std::iter::from_fn(|| reader.try_next()));
            if items.len() == before {
                return items;
            }
        }
    }
}

/// Numbers of messages, and everything else as text.
fn words(items: &[Item]) -> Vec<String> {
    let word = |item: &Item| match item {
        Item::Message(message) => message.seq.to_string(),
        Item::Gap { from, to, .. } => format!("gap {from}-{to}"),
        Item::Epoch { epoch, .. } => format!("epoch {epoch}"),
        Item::Lagged { dropped } => format!("lagged {dropped}"),
    };
    items.iter().map(word).collect()
}

fn numbers(range: std::ops::RangeInclusive<usize>) -> Vec<String> {
    range.map(|seq| seq.to_string()).collect()
}

#[test]
fn all_that_the_ring_holds_arrives_however_much_it_is() {
    let (many, large) = (3 * SUBSCRIBER_ITEMS_MAX, 40);
    for (count, bytes) in [(many, 8), (large, 1 << 20)] {
        let mut rig = Rig::new(CoreConfig { ring_bytes_per_lane: 64 << 20, ..CoreConfig::default() });
        rig.publish(count, bytes);
        let mut reader = rig.subscribe(1, true);
        assert!(rig.turn().is_ready());
        rig.publish(1, bytes);
        assert_eq!(words(&rig.read_all(&mut reader)), numbers(1..=count + 1), "{count} of {bytes} bytes");
        rig.publish(1, bytes);
        assert_eq!(words(&[reader.try_next().expect("it hears what arrives")]), [(count + 2).to_string()]);
    }
}

#[test]
fn a_subscriber_in_the_middle_of_a_replay_misses_nothing_that_arrives() {
    let mut rig = Rig::new(CoreConfig::default());
    let half = SUBSCRIBER_ITEMS_MAX / 2;
    rig.publish(half + 10, 8);
    let mut reader = rig.subscribe(5, true);
    while rig.turn().is_ready() {}
    // It has no room: what arrives meanwhile, with what is told, waits in the ring.
    let notice = |epoch| Item::Epoch { origin: me(), epoch };
    rig.publish(3, 8);
    rig.table.give_notice(&lane(), &notice(2));
    rig.publish(2, 8);
    rig.table.give_notice(&lane(), &notice(3));
    let mut expected = numbers(5..=half + 13);
    expected.push("epoch 2".to_owned());
    expected.extend(numbers(half + 14..=half + 15));
    expected.push("epoch 3".to_owned());
    assert_eq!(words(&rig.read_all(&mut reader)), expected);
}

#[test]
fn what_the_ring_lets_go_before_it_was_taken_is_told() {
    let half = SUBSCRIBER_ITEMS_MAX / 2;
    let ring = half + 100;
    let mut rig = Rig::new(CoreConfig { ring_messages_per_lane: ring, ..CoreConfig::default() });
    rig.publish(ring + 10, 8);
    let mut reader = rig.subscribe(0, true);
    while rig.turn().is_ready() {}
    // The first ten were gone before; of what it asked for a hundred and one still wait, and the ring lets some go.
    rig.publish(half + 51, 8);
    let mut expected = vec!["gap 1-10".to_owned()];
    expected.extend(numbers(11..=half + 9));
    expected.push(format!("gap {}-{}", half + 10, half + 61));
    expected.extend(numbers(half + 62..=half + ring + 61));
    let read = words(&rig.read_all(&mut reader));
    assert_eq!((read.len(), read.first()), (expected.len(), expected.first()));
    assert_eq!(read, expected);

    // What arrived after the subscription is known by its place alone.
    let mut reader = rig.subscribe(1, true);
    while rig.turn().is_ready() {}
    let last = half + ring + 61;
    rig.publish(2 * ring, 8);
    let read = words(&rig.read_all(&mut reader));
    let lagged = read.iter().position(|word| *word == format!("lagged {ring}")).expect("told as lagged");
    assert_eq!(read[lagged - 1], format!("gap {}-{last}", last - ring + half), "{:?}", &read[lagged - 2..=lagged]);
    assert_eq!(read[lagged + 1..], numbers(last + ring + 1..=last + 2 * ring));
}

#[test]
fn numbers_that_the_ring_let_go_as_a_whole_are_told_too() {
    let mut rig = Rig::new(CoreConfig { ring_messages_per_lane: 4, ..CoreConfig::default() });
    rig.hear(1, 1..=10);
    rig.publish(4, 8);
    let mut reader = rig.subscribe_to(other(), 5, true);
    assert_eq!(words(&rig.read_all(&mut reader)), ["gap 5-10"]);
    rig.hear(1, 11..=11);
    assert_eq!(words(&rig.read_all(&mut reader)), ["11"], "and it goes on behind them");
    let mut reader = rig.subscribe_to(other(), 12, true);
    assert_eq!(words(&rig.read_all(&mut reader)), [""; 0], "who has everything is told nothing");
}

#[test]
fn a_number_of_an_earlier_life_is_answered_with_the_new_one() {
    let mut rig = Rig::new(CoreConfig { ring_messages_per_lane: 3, ..CoreConfig::default() });
    rig.hear(2, 1..=10);
    rig.hear(5, 1..=3);
    let mut reader = rig.subscribe_to(other(), 11, true);
    assert_eq!(words(&rig.read_all(&mut reader)), ["epoch 5", "1", "2", "3"]);
    rig.hear(5, 4..=6);
    assert_eq!(words(&rig.read_all(&mut reader)), ["4", "5", "6"]);
    // The ring holds the last three of them.
    let mut reader = rig.subscribe_to(other(), 11, true);
    assert_eq!(words(&rig.read_all(&mut reader)), ["epoch 5", "gap 1-3", "4", "5", "6"]);
    let mut reader = rig.subscribe_to(other(), 5, true);
    assert_eq!(words(&rig.read_all(&mut reader)), ["epoch 5", "5", "6"], "it may be of either life");
}

#[test]
fn a_node_that_began_anew_says_so_to_who_knew_its_former_life() {
    let mut rig = Rig::new(CoreConfig::default());
    let mut early = rig.subscribe(11, true);
    let mut of_another = rig.subscribe_to(other(), 3, true);
    assert_eq!(words(&rig.read_all(&mut early)), [""; 0], "nothing is published yet");
    rig.publish(2, 8);
    let mut late = rig.subscribe(11, true);
    rig.publish(1, 8);
    let told = ["epoch 2", "1", "2", "3"];
    assert_eq!((words(&rig.read_all(&mut early)), words(&rig.read_all(&mut late))), (words_of(told), words_of(told)));
    rig.hear(2, 1..=1);
    let last = ["epoch 2", "1"];
    assert_eq!(words(&rig.read_all(&mut of_another))[3..], last, "a node that is heard of later");
    assert_eq!(words(&rig.read_all(&mut late)), ["1"], "whoever did not ask for it");
}

fn words_of<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[test]
fn own_messages_are_left_out_of_what_arrives_too() {
    let mut rig = Rig::new(CoreConfig::default());
    let mut reader = rig.subscribe(1, false);
    rig.publish(3, 8);
    assert_eq!(words(&rig.read_all(&mut reader)), [""; 0]);
    rig.publish(3, 8);
    assert_eq!(reader.try_next(), None);
}

#[test]
fn a_reader_that_took_its_share_wakes_the_engine() {
    let mut rig = Rig::new(CoreConfig::default());
    rig.publish(SUBSCRIBER_ITEMS_MAX, 8);
    let mut reader = rig.subscribe(1, true);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let turn = |rig: &mut Rig| rig.table.poll_catch_up(&rig.core, me(), &mut Context::from_waker(&waker));
    while turn(&mut rig).is_ready() {}
    let is_woken = || woken.0.load(std::sync::atomic::Ordering::Relaxed);
    let taken = std::iter::from_fn(|| (!is_woken()).then(|| reader.try_next())?).count();
    assert_eq!(taken, SUBSCRIBER_ITEMS_MAX / 4, "half was given, and a quarter is left when it is woken");
    assert!(turn(&mut rig).is_ready(), "there is room again");
}

#[test]
fn an_engine_that_turns_only_when_it_is_woken_gets_to_the_end() {
    let mut rig = Rig::new(CoreConfig { ring_bytes_per_lane: 64 << 20, ..CoreConfig::default() });
    rig.publish(SUBSCRIBER_ITEMS_MAX, 8);
    rig.publish(14, 1_000_000);
    let mut reader = rig.subscribe(1, true);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let turn = |rig: &mut Rig| rig.table.poll_catch_up(&rig.core, me(), &mut Context::from_waker(&waker));
    let mut taken = 0;
    while turn(&mut rig).is_ready() {}
    while taken < SUBSCRIBER_ITEMS_MAX + 14 {
        assert!(reader.try_next().is_some(), "{taken} were taken, and nobody goes on");
        taken += 1;
        if woken.0.swap(false, std::sync::atomic::Ordering::Relaxed) {
            while turn(&mut rig).is_ready() {}
        }
    }
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
