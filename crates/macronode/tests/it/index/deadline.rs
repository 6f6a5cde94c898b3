//! Twelve routers that take every question and never answer: a lookup ends at its deadline all the same.

use std::time::Instant;

use http::Method;
use ron_store::ContentId;
use testkit::{BoundResult, Client, Pulse, Reply, bound};
use tokio::task::JoinSet;

use crate::index::node::SERVICES;
use crate::index::routers::{Router, upstreams};
use crate::member::Member;

const ROUTERS: usize = 12;
/// Lookups at once: few enough that no router has failed often enough to be left out before they end.
const AT_ONCE: u64 = 4;
const DEADLINE_MS: f64 = 1_200.0;
const TOLERANCE_MS: f64 = 50.0;

/// Looks ids up that nobody knows, all at once; answers and times in milliseconds.
async fn resolve(node: &Member, ids: std::ops::Range<u64>) -> Vec<(Reply, f64)> {
    let mut requests = JoinSet::new();
    for number in ids {
        let mut client = Client::connect(node.api()).await.expect("the node listens");
        requests.spawn(async move {
            let path = format!("/resolve/{}", ContentId::of_bytes(&number.to_le_bytes()));
            let began = Instant::now();
            let reply = client.request(Method::GET, &path, &[], "").await.expect("an answer");
            (reply, began.elapsed().as_secs_f64() * 1e3)
        });
    }
    requests.join_all().await
}

#[tokio::test]
async fn twelve_routers_are_silent_and_a_lookup_ends_at_its_deadline() {
    crate::alone().await.measure("deadline", look_up_at_silent_routers).await;
}

async fn look_up_at_silent_routers() -> BoundResult {
    let mut routers = Vec::new();
    for _ in 0..ROUTERS {
        routers.push(Router::silent().await);
    }
    let mut node = Member::running(SERVICES);
    node.configure(&upstreams(&routers));
    node.start().await;
    let mut missed = Vec::new();
    // Those of the second round may end sooner: some routers are left out by then.
    for (round, shortest_ms) in [(0, DEADLINE_MS - TOLERANCE_MS), (1, 0.0)] {
        let pulse = Pulse::start();
        let answers = resolve(&node, round * AT_ONCE..(round + 1) * AT_ONCE).await;
        let still_ms = pulse.stop().as_secs_f64() * 1e3;
        for (reply, took_ms) in answers {
            println!("round {round}: {took_ms:.1} ms, machine late by {still_ms:.1} ms");
            let answer = reply.json().expect("JSON");
            let outcome = answer["outcome"].as_str().expect("a word");
            assert!(matches!(outcome, "unknown" | "degraded"), "{answer}");
            assert_eq!(reply.header("cache-control"), "no-store");
            let latest_ms = DEADLINE_MS + TOLERANCE_MS + still_ms;
            assert!(took_ms >= shortest_ms, "{took_ms} ms: {answer}");
            if took_ms > latest_ms {
                missed.push(format!("{took_ms} ms, still {still_ms} ms"));
            }
        }
    }
    assert!(routers.iter().map(Router::asked).sum::<usize>() > ROUTERS, "the routers were asked");
    bound(missed.is_empty(), || missed.join(", "))
}
