//! What `--trace` draws where targets are silent: hedges, who was cancelled, and who is left out.

use std::sync::Arc;

use futures_util::FutureExt as _;
use http::Method;
use ron_store::ContentId;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::watch;

use crate::index::cli::{json_of, on};
use crate::index::node::{ABC_B3, ABC_CID, PEER, SERVICES};
use crate::index::routers::{Router, upstreams};
use crate::member::{Member, joined};
use testkit::eventually;

/// More than a lookup asks at first, so that the others are hedges.
const ROUTERS: usize = 5;
const ALPHA: usize = 3;

/// Routers that are silent about everything, but for one content: when more of them have been asked for it than a
/// lookup asks at first, one of them answers. The sender counts.
async fn routers(asked: &Arc<watch::Sender<usize>>) -> Vec<Router> {
    let mut routers = Vec::new();
    for number in 0..ROUTERS {
        let asked = Arc::clone(asked);
        let answers = move |path: String| {
            let asked = Arc::clone(&asked);
            async move {
                if !path.ends_with(ABC_CID) {
                    return None;
                }
                asked.send_modify(|count| *count += 1);
                match number {
                    0 => asked.subscribe().wait_for(|count| *count > ALPHA).await.ok().map(|_| PEER.to_owned()),
                    _ => None,
                }
            }
            .boxed()
        };
        routers.push(Router::start(answers).await);
    }
    routers
}

#[tokio::test]
async fn hedges_losers_and_open_breakers_are_drawn() {
    let asked = Arc::new(watch::channel(0).0);
    let routers = routers(&asked).await;
    let mut node = Member::running(SERVICES);
    node.configure(&(upstreams(&routers) + "unknown_ttl = \"0ms\"\n"));
    node.start().await;
    // A router that is late on a busy machine is asked again.
    let drawn = eventually("a provider behind silent routers", async || {
        asked.send_replace(0);
        let drawn = on(&node, &["index", "providers", ABC_CID, "--fresh", "--trace"]).await;
        (drawn.code == Some(0)).then_some(drawn)
    })
    .await;
    drawn.expect(0, &["found, from dht", PEER, "target", "breaker", "hedge, ", "winner", "cancelled", "http://127"]);
    let answer = json_of(&on(&node, &["index", "providers", ABC_CID, "--trace", "--json"]).await);
    let course = answer["course"].as_array().expect("a list");
    let winner = course.iter().find(|ask| ask["end"] == "won").unwrap_or_else(|| panic!("{answer}"));
    assert!(winner["breaker"] == "closed" && answer["took_ms"].is_number(), "{answer}");

    // Silent for long enough, a router is left out.
    let mut ids = (0_u64..).map(|number| ContentId::of_bytes(&number.to_le_bytes()).cid_text());
    let drawn = eventually("a router whose breaker is open", async || {
        let id = ids.next().expect("endless");
        let drawn = on(&node, &["index", "providers", &id, "--trace"]).await;
        drawn.expect(70, &["no providers", "target"]);
        drawn.stdout.contains("not asked").then_some(drawn)
    })
    .await;
    drawn.expect(70, &["degraded, from dht", "open", "no answer in time"]);
    let line = drawn.stdout.lines().find(|line| line.contains("not asked")).expect("found before");
    assert!(line.trim_end().ends_with("open"), "{line}");
}

#[tokio::test]
async fn a_name_at_a_node_that_stands_still_is_drawn_too() {
    let members = (0..2).map(|_| Member::running(SERVICES)).collect();
    let mut nodes = joined(members, &[(1, 0)]).await;
    let set = nodes[0].ask(Method::PUT, "/names/site", &json!({"value": ABC_B3})).await;
    assert_eq!(set.status, 200, "{}", set.text());
    let name = format!("site@{}", nodes[0].id);
    let drawn = eventually("the name at the other node", async || {
        let drawn = on(&nodes[1], &["index", "name", "get", &name, "--fresh", "--trace"]).await;
        drawn.stdout.contains("winner").then_some(drawn)
    })
    .await;
    drawn.expect(0, &["stands for", ABC_B3, "target", "12D3Ko", "winner"]);
    let answer = eventually("the same as JSON", async || {
        let told = on(&nodes[1], &["index", "name", "get", &name, "--fresh", "--trace", "--json"]).await;
        (told.code == Some(0)).then(|| json_of(&told))
    })
    .await;
    assert_eq!(answer["course"][0]["class"], "peer", "{answer}");
    // Its own names the node need not ask for.
    let own = format!("site@{}", nodes[0].id);
    on(&nodes[0], &["index", "name", "get", &own, "--trace"]).await.expect(0, &["nobody was asked: the answer was in"]);

    nodes[0].process().signal(Signal::STOP);
    let other = format!("other@{}", nodes[0].id);
    let drawn = on(&nodes[1], &["index", "name", "get", &other, "--fresh", "--trace"]).await;
    nodes[0].process().signal(Signal::CONT);
    drawn.expect(70, &["  name:other@", "target", "12D3Ko"]);
    // A machine that was busy before may have opened its breaker already.
    assert!(drawn.stdout.contains("╳") || drawn.stdout.contains("not asked"), "{}", drawn.stdout);
    on(&nodes[1], &["index", "name", "get", "none"]).await.expect(70, &["MN0019"]);
}
