//! The commands of the index and the DHT, as a person types them.

use std::fs;

use http::Method;
use ron_types::limits::records::MANIFEST_BYTES_MAX;
use serde_json::Value;

use crate::index::node::{ABC_B3, ABC_CID, PEER, alone, provide_abc};
use crate::member::Member;
use crate::process::{Outcome, run};
use testkit::eventually;

pub async fn on(member: &Member, words: &[&str]) -> Outcome {
    let data = member.data_dir().display().to_string();
    run(&std::env::temp_dir(), &[words, &["--data-dir", &data]].concat()).await
}

pub fn json_of(outcome: &Outcome) -> Value {
    outcome.expect(0, &[]);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

#[tokio::test]
async fn a_file_is_published_resolved_and_pinned_by_commands_alone() {
    let node = alone().await;
    let file = node.data_dir().join("file");
    fs::write(&file, "abc").expect("written");
    let file = file.display().to_string();
    let addr = "/ip4/10.0.0.1/tcp/4001";
    on(&node, &["index", "publish", &file, "--name", "site", "--addr", addr]).await.expect(
        0,
        &[&format!("b3        {ABC_B3}\n"), &format!("cid       {ABC_CID}\n"), "kept by the node", "name:site@"],
    );
    let published = json_of(&on(&node, &["index", "publish", &file, "--json"]).await);
    assert_eq!((&published["b3"], &published["cid"]), (&ABC_B3.into(), &ABC_CID.into()), "{published}");

    on(&node, &["index", "resolve", "name:site"]).await.expect(0, &["found  name:site", ABC_CID, "stands for"]);
    let traced = on(&node, &["index", "resolve", ABC_CID, "--trace"]).await;
    traced.expect(0, &["found", "nobody was asked"]);
    let resolved = json_of(&on(&node, &["index", "resolve", ABC_B3, "--json"]).await);
    assert_eq!(resolved["manifest"]["bytes"], 3, "{resolved}");
    on(&node, &["index", "providers", ABC_B3]).await.expect(0, &["found, from", "score"]);
    on(&node, &["index", "resolve", "name:nothing"]).await.expect(70, &["no providers"]);

    on(&node, &["index", "name", "get", "site"]).await.expect(0, &["stands for", ABC_B3]);
    let set = json_of(&on(&node, &["index", "name", "set", "other", ABC_CID, "--ttl", "1h", "--json"]).await);
    assert_eq!((&set["value"], &set["status"]), (&ABC_B3.into(), &"stored".into()), "{set}");
    on(&node, &["index", "name", "get", "nothing"]).await.expect(70, &["MN0019"]);

    on(&node, &["index", "pin", ABC_B3, "--key", "k"]).await.expect(0, &["pin", "done"]);
    on(&node, &["index", "pin", ABC_B3, "--key", "k"]).await.expect(0, &["done before"]);
    on(&node, &["index", "kept", "pins"]).await.expect(0, &[ABC_B3, "pinned", "ago"]);
    on(&node, &["index", "kept", "provided"]).await.expect(0, &[ABC_B3]);
    on(&node, &["index", "kept", "names"]).await.expect(0, &["name:site", ABC_B3]);
    assert_eq!(json_of(&on(&node, &["index", "kept", "names", "--json"]).await)["name"], "name:site");
    on(&node, &["index", "unpin", ABC_B3]).await.expect(0, &["unpin"]);
    on(&node, &["index", "kept", "pins"]).await.expect(0, &["nothing"]);
    on(&node, &["index", "reindex", ABC_B3]).await.expect(0, &["reindex"]);
    on(&node, &["index", "capacity"]).await.expect(0, &["resolvers", "enough"]);
    assert!(json_of(&on(&node, &["index", "capacity", "--json"]).await)["workers"].is_number());
    on(&node, &["index", "unprovide", ABC_B3]).await.expect(0, &["no longer said to be at 12D3KooW"]);
    on(&node, &["index", "name", "remove", "site"]).await.expect(0, &["name:site@", "stands for nothing"]);
    on(&node, &["index", "name", "get", "site"]).await.expect(70, &["MN0019"]);
    on(&node, &["top", "--once"]).await.expect(0, &["lookup", "bits"]);
}

#[tokio::test]
async fn changes_are_watched_by_command() {
    let node = alone().await;
    let publishing = async {
        eventually("a watcher", async || {
            let stats = node.ask(Method::GET, "/index/stats", &Value::Null).await.json().expect("JSON");
            (stats["watchers"] == 1).then_some(())
        })
        .await;
        provide_abc(&node).await;
    };
    let watching = on(&node, &["index", "watch", ABC_CID, "--count", "1", "--json"]);
    let (heard, ()) = tokio::join!(watching, publishing);
    heard.expect(0, &[]);
    let lines: Vec<Value> = heard.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [ready, change] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&ready["type"], &ready["id"]), (&"ready".into(), &ABC_B3.into()), "{ready}");
    assert_eq!((&change["type"], &change["provider"]["peer_id"]), (&"provider".into(), &PEER.into()), "{change}");
    on(&node, &["index", "watch", "nonsense"]).await.expect(70, &["id: "]);
}

#[tokio::test]
async fn the_network_is_seen_and_walked_by_commands() {
    let node = alone().await;
    on(&node, &["dht", "peers"]).await.expect(0, &["12D3KooW", "listens /ip4/127.0.0.1/", "no nodes"]);
    let peers = json_of(&on(&node, &["dht", "peers", "--json"]).await);
    assert_eq!(peers["peers"], serde_json::json!([]));
    on(&node, &["dht", "bootstrap"]).await.expect(0, &["0 nodes known"]);
    on(&node, &["dht", "get", ABC_B3]).await.expect(70, &["no records"]);
    let nobody = "nobody was asked: this node knows no other node";
    on(&node, &["dht", "trace", &format!("peer:{PEER}")]).await.expect(0, &["0 records", nobody, "towards"]);
    // What this node alone holds is found, too.
    provide_abc(&node).await;
    on(&node, &["dht", "get", ABC_B3]).await.expect(0, &["provider", PEER, "/ip4/10.0.0.1/tcp/4001"]);
    on(&node, &["dht", "trace", ABC_CID])
        .await
        .expect(0, &["1 record; ", nobody, "held by this node itself: 1 record"]);
    on(&node, &["dht", "provide", ABC_CID]).await.expect(0, &["provides it at /ip4/127.0.0.1/"]);
    on(&node, &["dht", "get", "nonsense"]).await.expect(70, &["id: "]);
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_no_bootstrap() {
    let (node, other) = (alone().await, alone().await);
    let nobody = ["dht", "bootstrap", PEER, "--addr", "/ip4/127.0.0.1/tcp/1"];
    on(&node, &nobody).await.expect(70, &["MN0019", PEER, "cannot be reached"]);
    // Somebody else is at the address.
    let peers = json_of(&on(&other, &["dht", "peers", "--json"]).await);
    let addr = peers["listen"][0].as_str().expect("it listens");
    on(&node, &["dht", "bootstrap", PEER, "--addr", addr]).await.expect(70, &["MN0019", "cannot be reached"]);
    let peer = peers["peer_id"].as_str().expect("an id");
    on(&node, &["dht", "bootstrap", peer, "--addr", addr]).await.expect(0, &["1 node known"]);
    on(&node, &["dht", "bootstrap", peer, "--addr", addr]).await.expect(0, &["1 node known"]);
}

#[tokio::test]
async fn nothing_is_published_of_what_cannot_be_published_whole() {
    let node = alone().await;
    let [small, large] = ["small", "large"].map(|name| node.data_dir().join(name));
    fs::write(&small, "abc").expect("written");
    fs::write(&large, vec![7; MANIFEST_BYTES_MAX + 1]).expect("written");
    let [small, large] = [small, large].map(|file| file.display().to_string());
    let addr = "/ip4/10.0.0.1/tcp/4001";
    let foreign = format!("site@{}", node.id);
    for (words, said) in [
        (&[small.as_str(), "--name", "Bad Name"][..], "--name"),
        (&[&small, "--name", &foreign], "--name"),
        (&[&small, "--addr", "10.0.0.1:4001"], "--addr"),
        (&[&small, "--protocol", "a b"], "--protocol"),
        (&[&small, "--ttl", "49h"], "--ttl"),
        (&[&large], "--addr"),
        (&[&large, "--name", "site"], "--addr"),
    ] {
        let words = [&["index", "publish"], words].concat();
        on(&node, &words).await.expect(64, &[said]);
    }
    let many = [&["index", "publish", &small][..], &["--addr", addr].repeat(9)].concat();
    on(&node, &many).await.expect(64, &["MN0027", "--addr 9 times"]);
    on(&node, &["index", "resolve", ABC_B3]).await.expect(70, &["absent", "no providers"]);
    on(&node, &["index", "name", "get", "site"]).await.expect(70, &["MN0019"]);
    let published = json_of(&on(&node, &["index", "publish", &large, "--addr", addr, "--json"]).await);
    assert_eq!((&published["kept"], &published["provider"]["addrs"]), (&false.into(), &serde_json::json!([addr])));
}
