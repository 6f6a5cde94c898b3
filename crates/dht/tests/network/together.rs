//! Nodes that keep the rules: they find each other, ask, keep, move records, and remember.

use std::time::Duration;

use ron_store::wire::Question;
use ron_store::{ContentId, Key, PeerId, Record};
use ron_types::limits::dht::REPLICATION;
use svc_dht::AskError;
use svc_dht::config::{LiveOptions, Mode};
use svc_dht::words::Source;

use crate::node::{Bus, MemoryRecords, Setup, TestNode, eventually, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_find_each_other_by_bootstrap() {
    let first = TestNode::start(Setup::default()).await;
    assert!(first.dht.complete(), "alone, a node is the network");
    let second = TestNode::joining(&first).await;
    first.knows(1).await;
    second.knows(1).await;
    assert_eq!(first.dht.nearest(&Key([0; 32]), 20), vec![second.peer()]);
    assert_eq!(second.dht.peers()[0].peer, first.peer());
    assert_eq!(second.dht.peers()[0].source, Source::Bootstrap);
    eventually(|| (first.dht.complete(), second.dht.complete()), |both| *both == (true, true)).await;
    let known = second.dht.bootstrap(soon()).await.expect("the network is there");
    assert_eq!(known, 1);
    assert_eq!((first.stop().await, second.stop().await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_kept_near_its_key_and_found_there() {
    let first = TestNode::start(Setup::default()).await;
    let second = TestNode::joining(&first).await;
    let third = TestNode::joining(&first).await;
    for node in [&first, &second, &third] {
        node.knows(2).await;
    }
    let record = second.provides(Key([7; 32]));
    second.dht.keep(record.clone()).expect("there is room");
    for node in [&first, &third] {
        eventually(|| node.records.has(&record), |has| *has).await;
    }
    assert_eq!(second.records.count(), 0, "what a node has itself is the index's business");
    let reply = second.ask(&third.peer(), record.key()).await.expect("answered");
    assert_eq!(reply.records, vec![record]);
    assert_eq!(reply.closer, vec![first.peer()], "without the one that asks");
    let nothing = second.ask(&third.peer(), Key([8; 32])).await.expect("answered");
    assert_eq!((nothing.records, nothing.closer), (Vec::new(), vec![first.peer()]));
    eventually(|| second.metric("dht_placed_total{outcome=\"taken\"}"), |placed| *placed == 2.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_nodes_know_all_of_them_and_a_walk_converges() {
    let first = TestNode::start(Setup::default()).await;
    let mut nodes = vec![first];
    for _ in 1..12 {
        nodes.push(TestNode::joining(&nodes[0]).await);
    }
    for node in &nodes {
        node.knows(11).await;
        eventually(|| node.dht.complete(), |is_complete| *is_complete).await;
    }
    let record = nodes[5].provides(Key([9; 32]));
    nodes[5].dht.keep(record.clone()).expect("there is room");
    let holders = || nodes.iter().filter(|node| node.records.has(&record)).count();
    eventually(holders, |count| *count == 11).await;
    // On a loaded machine a node may be late once, and the walk says so.
    let converged = async {
        loop {
            let trace = nodes[3].dht.trace(Question::Providers(record.key()), soon()).await;
            if trace.is_converged {
                return trace;
            }
        }
    };
    let trace = soon().run("test", converged).await.expect("all nodes answer");
    assert_eq!(trace.records, vec![record]);
    assert_eq!((trace.hops.len(), trace.nearest.len()), (11, 11));
    assert_eq!(trace.nearest, nodes[3].dht.nearest(&trace.key, 20));
}

/// More nodes than keep a record, so that a walk has to find those that do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_busy_during_the_walk_are_given_their_copies_all_the_same() {
    let mut nodes = vec![TestNode::start(Setup::default()).await];
    for _ in 1..23 {
        nodes.push(TestNode::joining(&nodes[0]).await);
    }
    nodes[0].knows(22).await;
    let (publisher, others) = nodes.split_first().expect("there are nodes");
    let (busy, prompt) = others.split_at(5);
    let record = publisher.provides(Key([5; 32]));
    let mut stalled = Vec::new();
    for node in busy {
        stalled.push(node.records.stall().await);
    }
    publisher.dht.keep(record.clone()).expect("there is room");
    let holders = |among: &[TestNode]| among.iter().filter(|node| node.records.has(&record)).count();
    // The walk is over once anybody has it. All that could answer it are fewer than shall keep the record.
    eventually(|| holders(prompt), |count| *count > 0).await;
    drop(stalled);
    // The walk has named the busy ones as well.
    let offered = || ["taken", "failed"].map(|outcome| offers(publisher, outcome));
    let offered = eventually(offered, |offered| offered.iter().sum::<usize>() >= REPLICATION).await;
    assert_eq!(offered.iter().sum::<usize>(), REPLICATION, "taken, failed: {offered:?}");
    // An offer that a loaded machine did not answer in any of its tries would come again with the next sweep, in hours.
    let all_hold = async {
        while holders(others) < REPLICATION {
            publisher.dht.keep(record.clone()).expect("there is room");
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    soon().run("test", all_hold).await.expect("all of the nearest keep it");
}

/// Offers of records that ended like this.
fn offers(node: &TestNode, outcome: &str) -> usize {
    node.metric(&format!("dht_placed_total{{outcome=\"{outcome}\"}}")) as usize
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_says_where_nearer_nodes_are() {
    let first = TestNode::start(Setup::default()).await;
    let second = TestNode::joining(&first).await;
    first.knows(1).await;
    // It asks, and is in no table: what it learns it learns from answers.
    let live = LiveOptions { mode: Mode::Client, ..LiveOptions::default() };
    let third = TestNode::start(Setup { live, ..Setup::default() }).await;
    third.dht.connect(first.peer(), vec![first.tcp()]).expect("there is room");
    third.knows(1).await;
    let named = async {
        // The first node learns what the second says of itself a moment after it met it.
        loop {
            let reply = third.ask(&first.peer(), Key([1; 32])).await.expect("answered");
            if reply.closer == vec![second.peer()] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon().run("test", named).await.expect("the second node is named");
    let reply = third.ask(&second.peer(), Key([1; 32])).await.expect("it can be asked");
    assert_eq!(reply.records, Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_asks_and_is_in_no_table() {
    let first = TestNode::start(Setup::default()).await;
    let second = TestNode::joining(&first).await;
    first.knows(1).await;
    let mut setup = Setup::joining(&[&first]);
    setup.live.mode = Mode::Client;
    let client = TestNode::start(setup).await;
    client.knows(2).await;
    assert!(!client.dht.standing().is_server);
    client.ask(&second.peer(), Key([1; 32])).await.expect("answered");
    assert!(first.dht.standing().connections >= 2, "it is connected");
    assert_eq!((first.dht.peers().len(), second.dht.peers().len()), (1, 1));
    assert_eq!(first.dht.nearest(&client.peer().key(), 20), vec![second.peer()]);
    // What is offered to it is not kept.
    let record = first.provides(Key([3; 32]));
    first.dht.keep(record.clone()).expect("there is room");
    eventually(|| second.records.has(&record), |has| *has).await;
    assert_eq!(client.records.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_known_peers() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("dht-peers");
    let first = TestNode::start(Setup::default()).await;
    let mut setup = Setup::joining(&[&first]);
    setup.peers_file = Some(file.clone());
    let second = TestNode::start(setup).await;
    second.knows(1).await;
    let key = second.key.clone();
    assert_eq!(second.stop().await, 0);
    assert!(file.exists());
    let setup = Setup { key: Some(key), peers_file: Some(file), ..Setup::default() };
    let again = TestNode::start(setup).await;
    again.knows(1).await;
    assert_eq!(again.dht.peers()[0].peer, first.peer());
    assert_eq!(again.dht.peers()[0].source, Source::Remembered);
    again.ask(&first.peer(), Key([1; 32])).await.expect("answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_the_overlay_are_known_without_a_list() {
    let bus = Bus::new();
    let with_bus = || Setup { gossip: Some(bus.clone()), ..Setup::default() };
    let first = TestNode::start(with_bus()).await;
    let second = TestNode::start(with_bus()).await;
    first.knows(1).await;
    second.knows(1).await;
    assert_eq!(first.dht.peers()[0].source, Source::Overlay);
    first.ask(&second.peer(), Key([1; 32])).await.expect("answered");
    // Somebody else's word for it is not enough.
    let Record::Provider(provider) = first.provides(Key([1; 32])) else { unreachable!("it is one") };
    bus.say(first.peer(), Record::Provider(provider).encode().into());
    eventually(|| second.refused("garbage"), |count| *count == 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_records_follow_new_nodes() {
    let live = LiveOptions { republish_interval: Duration::from_secs(2), ..LiveOptions::default() };
    let records = MemoryRecords { are_own: true, ..MemoryRecords::default() };
    let first = TestNode::start(Setup { live, records, ..Setup::default() }).await;
    let record = first.provides(Key([0x44; 32]));
    first.records.put(record.clone());
    let second = TestNode::joining(&first).await;
    eventually(|| second.records.has(&record), |has| *has).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_swarm_comes_back_with_its_peers() {
    let first = TestNode::start(Setup::default()).await;
    let second = TestNode::joining(&first).await;
    first.knows(1).await;
    second.knows(1).await;
    let before = second.dht.listen_addrs();
    second.kernel.restart_service("dht").await.expect("restarted");
    let after = eventually(|| second.dht.listen_addrs(), |addrs| addrs.len() == 2 && *addrs != before).await;
    assert_ne!(after, before, "a free port is another one");
    second.ask(&first.peer(), Key([1; 32])).await.expect("answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_proves_what_it_keeps_and_nobody_else_does() {
    let kept: Vec<u8> = (0..9_000_u32).map(|at| at as u8).collect();
    let digest = *ContentId::of_bytes(&kept).blake3_digest().as_ref().expect("a BLAKE3 id");
    let first = TestNode::start(Setup::default()).await;
    let second = TestNode::joining(&first).await;
    let documents = [(digest, kept)].into();
    let records = MemoryRecords { documents, ..MemoryRecords::default() };
    let third = TestNode::start(Setup { records, ..Setup::joining(&[&first]) }).await;
    second.knows(2).await;
    let ask = async |peer: &PeerId, draw| second.dht.prove(peer, digest, draw, Duration::from_secs(60)).await;
    for draw in [0, 3, 8, u64::MAX] {
        let proof = ask(&third.peer(), draw).await.expect("an answer").expect("it keeps it");
        assert!(proof.proves(&digest, draw) && !proof.proves(&[0; 32], draw));
    }
    assert_eq!(ask(&first.peer(), 1).await, Ok(None), "it says that it does not");
    // Somebody whom the network does not know is not dialled for it.
    let stranger = PeerId::of_ed25519(&[9; 32]);
    assert_eq!(ask(&stranger, 1).await, Err(AskError::Unreachable));
    for node in [third, second, first] {
        assert_eq!(node.stop().await, 0);
    }
}
