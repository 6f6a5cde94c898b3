//! Peers that break the rules: each costs its own questions, is counted, and nobody else notices.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ron_kernel::clock;
use ron_store::wire::{Answer, AskError, Question, Reply, Request};
use ron_store::{Key, PeerId, PeerRecord, Record};
use ron_transport::NodeKey;
use ron_types::limits::dht::{ASKS_PER_PEER_AT_ONCE_MAX, UNMET_ONE_IN};
use svc_dht::config::LiveOptions;

use crate::hostile::{Hostile, framed};
use crate::node::{Bus, Setup, TestNode, eventually, provider_record};

const KEY: Key = Key([5; 32]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_questions_ends_them_and_frees_their_places() {
    let node = TestNode::start(Setup::default()).await;
    let silent = Hostile::join(&[&node], None).await;
    // The node has asked it who it is, and asks as much more as one peer is asked at once.
    eventually(|| silent.asked(), |asked| *asked == 1).await;
    let dropped = ASKS_PER_PEER_AT_ONCE_MAX - 1;
    {
        let mut asking = join_all((0..dropped + 5).map(|_| node.ask(&silent.peer, KEY)));
        let asked = eventually(|| silent.asked(), |asked| *asked == 1 + dropped);
        tokio::select! {
            biased;
            answers = &mut asking => panic!("it never answers: {answers:?}"),
            _ = asked => {}
        }
    }
    let cancelled = || node.metric("dht_asks_total{outcome=\"cancelled\"}") as usize;
    eventually(cancelled, |count| *count == dropped).await;
    let mut asking = Box::pin(node.ask(&silent.peer, KEY));
    let asked = eventually(|| silent.asked(), |asked| *asked == 2 + dropped);
    tokio::select! {
        biased;
        answer = &mut asking => panic!("it never answers: {answer:?}"),
        _ = asked => {}
    }
    // What comes late is nobody's answer.
    drop(asking);
    eventually(cancelled, |count| *count == dropped + 1).await;
    silent.answer_all();
    eventually(|| node.refused("garbage"), |count| *count == 1.0).await;
    assert_eq!(node.metric("dht_asks_total{outcome=\"answered\"}"), 0.0);
}

/// What a node that is not there would announce.
fn made_up() -> (PeerId, Bytes) {
    let key = NodeKey::generate().expect("randomness");
    let (addrs, now_ms) = (vec!["/ip4/127.0.0.1/tcp/9".parse().expect("an address")], clock::unix_millis());
    let record = PeerRecord::sign(addrs, now_ms, now_ms + 3_600_000, &key).expect("within bounds");
    (PeerId::from(key.node_id()), Record::Peer(record).encode().into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announcements_for_others_are_refused_and_made_up_nodes_are_few() {
    let bus = Bus::new();
    let live = LiveOptions { peers_max: 64, ..LiveOptions::default() };
    let node = TestNode::start(Setup { gossip: Some(bus.clone()), live, ..Setup::default() }).await;
    let honest = TestNode::start(Setup { gossip: Some(bus.clone()), ..Setup::joining(&[&node]) }).await;
    node.knows(1).await;
    // A member announces others in its own name.
    for _ in 0..100 {
        bus.say(honest.peer(), made_up().1);
    }
    eventually(|| node.refused("forged"), |count| *count == 100.0).await;
    assert_eq!(node.dht.peers().len(), 1);
    // It makes up their origins as well.
    for _ in 0..100 {
        let (origin, content) = made_up();
        bus.say(origin, content);
    }
    let seen = || (node.dht.peers().len(), node.metric("dht_peers_refused_total") as usize);
    let (known, _) = eventually(seen, |(known, refused)| known + refused > 100).await;
    assert!(known <= 1 + 64 / UNMET_ONE_IN, "{known} nodes are known");
    assert!(node.dht.peers().iter().any(|peer| peer.peer == honest.peer()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_never_answers_holds_its_own_questions_alone() {
    let node = TestNode::start(Setup::default()).await;
    let honest = TestNode::joining(&node).await;
    let silent = Hostile::join(&[&node], None).await;
    node.knows(2).await;
    let mut silence = join_all((0..200).map(|_| node.ask(&silent.peer, KEY)));
    let others = async {
        // Some of the questions are under way, and the rest wait for them.
        eventually(|| silent.asked(), |asked| *asked >= 16).await;
        for _ in 0..100 {
            node.ask(&honest.peer(), KEY).await.expect("answered");
        }
    };
    tokio::select! {
        biased;
        answers = &mut silence => panic!("the others have waited until the time of these was over: {answers:?}"),
        () = others => {}
    }
    drop(silence);
    // Those that are under way and those that wait for them: each ends when its time is over.
    let brief = Duration::from_secs(1);
    let silence = join_all((0..200).map(|_| node.ask_within(&silent.peer, KEY, brief))).await;
    assert!(silence.iter().all(|answer| *answer == Err(AskError::TimedOut)), "{silence:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twelve_nodes_one_is_silent_and_the_others_answer() {
    let mut nodes = vec![TestNode::start(Setup::default()).await];
    for _ in 1..11 {
        nodes.push(TestNode::joining(&nodes[0]).await);
    }
    for node in &nodes {
        node.knows(10).await;
    }
    let silent = Hostile::join(&nodes.iter().collect::<Vec<_>>(), None).await;
    let asker = &nodes[4];
    let known = asker.dht.nearest(&KEY, 20);
    assert_eq!(known.len(), 11);
    let (since, brief) = (clock::now(), Duration::from_secs(5));
    let silent_peer = silent.peer;
    let ask = |peer| async move {
        let answer =
            if peer == silent_peer { asker.ask_within(&peer, KEY, brief).await } else { asker.ask(&peer, KEY).await };
        (peer, answer, since.elapsed())
    };
    for (peer, answer, took) in join_all(known.into_iter().map(ask)).await {
        if peer == silent.peer {
            assert_eq!(answer, Err(AskError::TimedOut));
            assert!(took >= brief, "it alone is waited for");
        } else {
            assert!(answer.is_ok(), "{answer:?} after {took:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_refused_and_counted() {
    let node = TestNode::start(Setup::default()).await;
    let honest = TestNode::joining(&node).await;
    let hostile = Hostile::join(&[&node], None).await;
    hostile.send(&node, framed(b"garbage"));
    hostile.send(&node, framed(&[]));
    let mut trailing = Request::Ask { question: Question::Providers(KEY), budget_ms: 1000 }.encode().expect("small");
    trailing.push(0);
    hostile.send(&node, framed(&trailing));
    eventually(|| node.refused("garbage"), |count| *count == 3.0).await;
    hostile.send(&node, u32::MAX.to_be_bytes().to_vec());
    hostile.send(&node, framed(&vec![1; 65 * 1024]));
    eventually(|| node.refused("oversized"), |count| *count == 2.0).await;
    // One that announces more than it sends.
    hostile.send(&node, vec![0, 0, 1, 0, 1, 2, 3]);
    eventually(|| hostile.ended(), |ended| *ended == 6).await;
    assert!(hostile.answers().iter().all(Vec::is_empty), "nothing was said to it");
    honest.knows(2).await;
    honest.ask(&node.peer(), KEY).await.expect("the node answers others");
    // And the same peer, if it asks as it should.
    let question = Request::Ask { question: Question::Providers(KEY), budget_ms: 1000 }.encode().expect("small");
    hostile.send(&node, framed(&question));
    let answer = eventually(|| hostile.answers().into_iter().find(|answer| !answer.is_empty()), Option::is_some).await;
    let answer = Answer::decode(&answer.expect("some")[4..]).expect("an answer");
    assert!(matches!(answer, Answer::Reply(_)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_none_is_an_error() {
    let node = TestNode::start(Setup::default()).await;
    let kept = Answer::Kept { kept: 1, refused: 0 }.encode();
    for says in [framed(b"garbage"), framed(&vec![0; 257 * 1024]), framed(&kept)] {
        let hostile = Hostile::join(&[&node], Some(says)).await;
        assert_eq!(node.ask(&hostile.peer, KEY).await, Err(AskError::Malformed));
    }
    let refusing = Hostile::join(&[&node], Some(framed(&Answer::Refused(AskError::Busy).encode()))).await;
    assert_eq!(node.ask(&refusing.peer, KEY).await, Err(AskError::Busy));
    assert!(node.refused("garbage") >= 2.0 && node.refused("oversized") >= 1.0);
}

/// A record that somebody changed after it was signed.
fn forged() -> Record {
    let owner = NodeKey::generate().expect("randomness");
    let mut record = provider_record(&owner, KEY);
    record.addrs = vec!["/ip4/203.0.113.66/tcp/666".parse().expect("an address")];
    Record::Provider(record)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_records_are_refused_and_their_sender_is_left_alone() {
    let node = TestNode::start(Setup::default()).await;
    let reply = Reply { records: vec![forged()], closer: Vec::new() };
    let liar = Hostile::join(&[&node], Some(framed(&Answer::Reply(reply).encode()))).await;
    assert_eq!(node.ask(&liar.peer, KEY).await, Err(AskError::Malformed));
    assert_eq!(node.refused("forged"), 1.0);
    node.knows(0).await;
    assert_eq!(node.dht.nearest(&KEY, 20), Vec::new());

    let giver = Hostile::join(&[&node], None).await;
    let honest = Record::Provider(provider_record(&NodeKey::generate().expect("randomness"), KEY));
    let offer = Request::Keep { records: vec![forged(), honest] }.encode().expect("small");
    giver.send(&node, framed(&offer));
    eventually(|| node.refused("forged"), |count| *count == 2.0).await;
    node.knows(0).await;
    assert_eq!(node.records.count(), 0, "nothing of a liar is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_nobody_asked_for_are_not_believed() {
    let node = TestNode::start(Setup::default()).await;
    let owner = NodeKey::generate().expect("randomness");
    let other = Record::Provider(provider_record(&owner, Key([6; 32])));
    let wanted = Record::Provider(provider_record(&owner, KEY));
    let reply = Reply { records: vec![other, wanted.clone()], closer: Vec::new() };
    let odd = Hostile::join(&[&node], Some(framed(&Answer::Reply(reply).encode()))).await;
    let believed = node.ask(&odd.peer, KEY).await.expect("answered");
    assert_eq!(believed.records, vec![wanted]);
    assert!(node.refused("unasked") >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_bounded_and_others_are_answered() {
    let mut setup = Setup::default();
    setup.live.asks_per_peer_per_second = 100;
    let node = TestNode::start(setup).await;
    let honest = TestNode::joining(&node).await;
    let flooding = Hostile::join(&[&node], None).await;
    honest.knows(2).await;
    let question = Request::Ask { question: Question::Providers(KEY), budget_ms: 1000 }.encode().expect("small");
    const FLOOD: usize = 2000;
    let since = clock::now();
    for _ in 0..FLOOD {
        flooding.send(&node, framed(&question));
    }
    for _ in 0..50 {
        honest.ask(&node.peer(), KEY).await.expect("answered");
    }
    eventually(|| flooding.ended(), |ended| *ended == FLOOD).await;
    let answered = flooding.answers().iter().filter(|answer| answer.len() > 6).count();
    // A flood that takes a slow machine long may have more than what is its share of a moment.
    let share = 100 * (since.elapsed().as_secs() as usize + 2);
    assert!(answered < share.max(FLOOD / 2), "{answered} of {FLOOD} were answered");
    let refused = node.refused("rate") + node.refused("share");
    let cut = flooding.seen.refused.load(Ordering::SeqCst);
    assert!(refused > 0.0 || cut > 0, "nothing was refused");
    let waiting = node.kernel.topology();
    let waiting = waiting.queues.iter().find(|queue| queue.spec.name == "dht_asked").expect("the queue");
    assert!(waiting.high_water <= 2 * 48 + 16, "{} waited at once", waiting.high_water);
}
