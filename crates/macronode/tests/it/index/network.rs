//! Two nodes: what is published on one is found on the other.

use http::Method;
use serde_json::{Value, json};

use crate::index::node::{ABC_B3, ABC_CID, PEER, SERVICES, provide_abc, resolve};
use crate::member::{Member, joined};
use testkit::eventually;

async fn pair() -> Vec<Member> {
    let members = joined((0..2).map(|_| Member::running(SERVICES)).collect(), &[(1, 0)]).await;
    for member in &members {
        eventually("the other node in the DHT", async || {
            let peers = member.ask(Method::GET, "/dht/peers", &Value::Null).await.json().expect("JSON");
            let peers = peers["peers"].as_array().expect("a list").clone();
            peers.iter().any(|peer| peer["connections"].as_u64() > Some(0)).then_some(())
        })
        .await;
    }
    members
}

/// Waits until the node finds it, whatever it remembers of looking before.
async fn found(member: &Member, id: &str) -> Value {
    eventually("the record at the other node", async || {
        let answer = resolve(member, &format!("{id}?fresh=true")).await;
        (answer["outcome"] == "found").then_some(answer)
    })
    .await
}

#[tokio::test]
async fn what_one_node_publishes_the_other_finds_by_hash_and_by_name() {
    let nodes = pair().await;
    provide_abc(&nodes[0]).await;
    for id in [ABC_B3, ABC_CID] {
        let answer = found(&nodes[1], id).await;
        assert_eq!(answer["id"], ABC_B3, "{answer}");
        assert_eq!((&answer["content"]["b3"], &answer["content"]["cid"]), (&ABC_B3.into(), &ABC_CID.into()));
        assert_eq!(answer["providers"][0]["peer_id"], PEER, "{answer}");
        assert_eq!(answer["providers"][0]["vouched"], true, "the node spoke for it: {answer}");
    }
    let set = nodes[0].ask(Method::PUT, "/names/docs%2Fsite", &json!({"value": ABC_CID})).await;
    assert_eq!(set.status, 200, "{}", set.text());
    let name = set.json().expect("JSON")["name"].as_str().expect("a name").to_owned();
    assert_eq!(name, format!("name:docs/site@{}", nodes[0].id));
    let path = name.replace('/', "%2F").replace('@', "%40");
    let answer = found(&nodes[1], &path).await;
    assert_eq!((&answer["name"]["value"], &answer["content"]["b3"]), (&ABC_B3.into(), &ABC_B3.into()), "{answer}");
    assert_eq!(answer["providers"][0]["peer_id"], PEER, "{answer}");
    // A name without an owner is that of the node that is asked.
    assert_ne!(resolve(&nodes[1], "name:docs%2Fsite").await["outcome"], "found");

    // The highest number wins, wherever it is asked for.
    let other = "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    let set = nodes[0].ask(Method::PUT, "/names/docs%2Fsite", &json!({"value": other})).await;
    assert_eq!(set.status, 200, "{}", set.text());
    eventually("the new value at the other node", async || {
        let answer = resolve(&nodes[1], &format!("{path}?fresh=true")).await;
        (answer["name"]["value"] == other).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lookup_says_whom_it_asked() {
    let nodes = pair().await;
    provide_abc(&nodes[0]).await;
    let answer = found(&nodes[1], ABC_B3).await;
    let asked = resolve(&nodes[1], &format!("{ABC_B3}?fresh=true")).await;
    assert_eq!(asked["source"], "dht", "{answer}");
    let course = asked["course"].as_array().expect("somebody was asked");
    assert!(course.iter().any(|ask| ask["end"] == "won" && ask["class"] == "peer"), "{asked}");
    let lookups = nodes[1].ask(Method::GET, "/index/lookups", &Value::Null).await.json().expect("JSON");
    assert!(lookups["lookups"].as_array().expect("a list").iter().any(|lookup| lookup["outcome"] == "found"));
    // Asked again, it is in memory. The record may come to this node's own store in between, as to one of the nearest.
    eventually("an answer out of memory", async || {
        (resolve(&nodes[1], ABC_B3).await["source"] == "cache").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_walk_shows_who_keeps_a_record() {
    let nodes = pair().await;
    let provided = nodes[0].ask(Method::POST, &format!("/dht/records/{ABC_CID}"), &json!({})).await;
    assert_eq!(provided.status, 202, "{}", provided.text());
    let record = provided.json().expect("JSON");
    assert_eq!(record["kind"], "provider");
    let walk = eventually("the record in the network", async || {
        let reply = nodes[0].ask(Method::GET, &format!("/dht/records/{ABC_B3}"), &Value::Null).await;
        let walk = reply.json().expect("JSON");
        walk["records"].as_array().is_some_and(|records| !records.is_empty()).then_some(walk)
    })
    .await;
    assert_eq!(walk["records"][0]["about"], record["about"], "{walk}");
    assert_eq!(walk["hops"].as_array().map(Vec::len), Some(1), "{walk}");
}

#[tokio::test]
async fn what_one_node_withdraws_the_other_finds_no_more() {
    let nodes = pair().await;
    let own = crate::index::node::provide(&nodes[0], ABC_B3, &json!({})).await;
    assert_eq!(own["renewed"], true, "no end was named: {own}");
    let set = nodes[0].ask(Method::PUT, "/names/site", &json!({"value": ABC_B3})).await.json().expect("JSON");
    assert_eq!(set["renewed"], true, "{set}");
    let brief = nodes[0].ask(Method::PUT, "/names/brief", &json!({"value": ABC_B3, "ttl_s": 60})).await;
    assert_eq!(brief.json().expect("JSON")["renewed"], false);
    let name = format!("name:site%40{}", nodes[0].id);
    found(&nodes[1], &name).await;
    found(&nodes[1], ABC_B3).await;
    for path in [format!("/providers/{ABC_B3}"), "/names/site".to_owned()] {
        let gone = nodes[0].ask(Method::DELETE, &path, &Value::Null).await;
        assert_eq!(gone.status, 200, "{path}: {}", gone.text());
        assert_eq!(gone.json().expect("JSON")["renewed"], false);
    }
    for id in [name.as_str(), ABC_B3] {
        eventually("the withdrawal at the other node", async || {
            let answer = resolve(&nodes[1], &format!("{id}?fresh=true")).await;
            (answer["outcome"] != "found").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_nearest_peers_are_told_with_where_they_are() {
    let nodes = pair().await;
    let stats = nodes[1].ask(Method::GET, "/index/stats", &Value::Null).await.json().expect("JSON");
    let path = format!("/routing/v1/dht/closest/peers/{ABC_CID}");
    let ask = async |query: &str, accept: &str| {
        crate::index::node::open(&nodes[0], Method::GET, &format!("{path}{query}"), &[("accept", accept)], "").await
    };
    let document = ask("", "application/json").await.json().expect("JSON");
    let peers = document["Peers"].as_array().expect("a list");
    assert_eq!((peers.len(), &peers[0]["ID"]), (1, &stats["peer_id"]), "all but the one that is asked: {document}");
    assert!(!peers[0]["Addrs"].as_array().expect("addresses").is_empty(), "{document}");
    let lines = ask("", "application/x-ndjson").await.text();
    assert_eq!(lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<Value>>(), *peers);
    let filtered = ask("?filter-addrs=webtransport", "application/json").await.json().expect("JSON");
    assert_eq!(filtered, json!({"Peers": []}));
}
