//! Twelve nodes, one of which stands still (SIGSTOP) while everybody believes in it: lookups do not wait for it.

use std::collections::BTreeMap;
use std::time::Instant;

use http::Method;
use ron_store::{ContentId, PeerId};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{BoundResult, Client, Pulse, bound, percentile};

use crate::index::node::{PEER, SERVICES, provide, resolve};
use crate::member::{Member, joined};
use testkit::eventually;

const NODES: usize = 12;
const IDS: u64 = 200;
/// Few nodes keep each record, so that a node which stands still is missed by those who look for what it keeps.
const SETTINGS: &str = "[dht]\nreplication = 3\n";
/// A node that keeps nothing: what it finds it was told.
const ASKER_SETTINGS: &str = "[dht]\nreplication = 3\nmode = \"client\"\n";
const P99_MS_MAX: f64 = 400.0;

fn id(number: u64) -> ContentId {
    ContentId::of_bytes(&number.to_le_bytes())
}

async fn dht_peers(member: &Member) -> Vec<Value> {
    let answer = member.ask(Method::GET, "/dht/peers", &Value::Null).await.json().expect("JSON");
    answer["peers"].as_array().expect("a list").clone()
}

/// Nodes that know all others.
async fn twelve() -> Vec<Member> {
    let mut members: Vec<Member> = (0..NODES).map(|_| Member::running(SERVICES)).collect();
    members.iter_mut().for_each(|member| member.configure(SETTINGS));
    members[NODES - 1].configure(ASKER_SETTINGS);
    let links: Vec<(usize, usize)> = (1..NODES).map(|node| (node, 0)).collect();
    let members = joined(members, &links).await;
    for (number, member) in members.iter().enumerate() {
        // The one that keeps nothing is no place for records, so it need not be known.
        let others = if number == NODES - 1 { NODES - 1 } else { NODES - 2 };
        eventually("all others in the DHT", async || (dht_peers(member).await.len() >= others).then_some(())).await;
    }
    members
}

/// The node that is nearest to most of the ids, and is neither where they are published nor where they are looked up.
fn nearest_to_most(members: &[Member]) -> usize {
    let keepers = 1..NODES - 1;
    let key_of = |member: &Member| {
        let key: ron_store::PublicKey = member.id.parse().expect("a key");
        key.peer_id()
    };
    let peers: Vec<(usize, PeerId)> = keepers.map(|number| (number, key_of(&members[number]))).collect();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for number in 0..IDS {
        let wanted = id(number).key();
        let nearest = peers.iter().min_by_key(|(_, peer)| peer.key().distance(&wanted)).expect("keepers");
        *counts.entry(nearest.0).or_default() += 1;
    }
    *counts.iter().max_by_key(|(_, count)| **count).expect("somebody is nearest").0
}

#[tokio::test]
async fn one_of_twelve_nodes_stands_still_and_no_lookup_waits_for_it() {
    crate::alone().await.measure("lookups", look_up_beside_one_that_stands_still).await;
}

async fn look_up_beside_one_that_stands_still() -> BoundResult {
    let mut members = twelve().await;
    for number in 0..IDS {
        let body = json!({"peer_id": PEER, "addrs": ["/ip4/10.0.0.1/tcp/4001"], "ttl_s": 3600});
        provide(&members[0], &id(number).to_string(), &body).await;
    }
    // Where a record is published it stays, beside its copies.
    eventually("a copy of every record at three nodes", async || {
        let mut records = 0;
        for member in &members {
            let stats = member.ask(Method::GET, "/index/stats", &Value::Null).await.json().expect("JSON");
            records += stats["records"].as_u64().expect("a number");
        }
        (records >= 3 * IDS).then_some(())
    })
    .await;
    let victim = nearest_to_most(&members);
    let victim_id = members[victim].id.parse::<ron_store::PublicKey>().expect("a key").peer_id().to_string();
    let asker = &members[NODES - 1];
    // The victim is believed in: it answered a moment ago.
    let mut unknown = IDS..;
    eventually("a connection with every node", async || {
        resolve(asker, &id(unknown.next().expect("endless")).to_string()).await;
        dht_peers(asker).await.iter().all(|peer| peer["connections"].as_u64() > Some(0)).then_some(())
    })
    .await;
    let asker_api = asker.api();
    members[victim].process().signal(Signal::STOP);

    let pulse = Pulse::start();
    let mut client = Client::connect(asker_api).await.expect("the node listens");
    let (mut times, mut asked) = (Vec::new(), 0);
    for number in 0..IDS {
        let began = Instant::now();
        let reply = client.request(Method::GET, &format!("/resolve/{}", id(number)), &[], "").await;
        times.push(began.elapsed().as_secs_f64() * 1_000.0);
        let answer = reply.expect("an answer").json().expect("JSON");
        assert_eq!((&answer["outcome"], &answer["source"]), (&"found".into(), &"dht".into()), "{answer}");
        let course = answer["course"].as_array().expect("somebody was asked");
        asked += course.iter().filter(|ask| ask["target"] == victim_id.as_str() && ask["end"] != "skipped").count();
    }
    let stood_still = pulse.stop().as_secs_f64() * 1_000.0;
    let p99 = percentile(&mut times, 0.99);
    eprintln!("p99 {p99:.1} ms of {IDS} lookups; {asked} asked the stopped node; machine late by {stood_still:.1} ms");
    assert!(asked > 0, "nobody asked the stopped node: nothing was shown");
    members[victim].process().signal(Signal::CONT);
    bound(p99 <= P99_MS_MAX + stood_still, || format!("p99 {p99} ms, still {stood_still} ms"))
}
