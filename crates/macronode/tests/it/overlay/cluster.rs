//! `macronode cluster dev`: several nodes on one machine, joined, until they are told to end.

use std::fs;
use std::path::Path;

use http::Method;
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::cluster_process::{Cluster, text};
use crate::process::run;
use testkit::{ask, eventually};

#[tokio::test]
async fn a_cluster_is_joined_when_it_is_announced_and_ends_with_its_command() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut cluster = Cluster::start(folder.path(), 3).await;
    assert_eq!(cluster.nodes.len(), 3);
    for node in &cluster.nodes {
        let token = fs::read_to_string(Path::new(text(node, "data_dir")).join("operator.token")).expect("a token");
        let bearer = format!("Bearer {}", token.trim());
        let api = text(node, "api").parse().expect("an address");
        let reply =
            ask(api, Method::GET, "/overlay/peers", &[("authorization", &bearer)], "").await.expect("an answer");
        let answer = reply.json().expect("JSON");
        assert_eq!((&answer["node_id"], &answer["listen"]), (&node["node_id"], &node["oap"]));
        let peers = answer["peers"].as_array().expect("a list");
        assert!(peers.len() == 2 && peers.iter().all(|peer| peer["state"] == "connected"), "{answer}");
    }
    let on = async |node: &Value, words: &[&str]| {
        run(folder.path(), &[&["overlay"], words, &["--data-dir", text(node, "data_dir")]].concat()).await
    };
    let published = on(&cluster.nodes[0], &["pub", "chat", "hello"]).await;
    published.expect(0, &["seq 1, sent to 2 peers"]);
    let from = format!("{}:1", text(&cluster.nodes[0], "node_id"));
    let words = ["sub", "chat", "--from", &from, "--count", "1"];
    eventually("the message at the third node", async || {
        let trace = on(&cluster.nodes[2], &["trace", &published.stdout[..32]]).await;
        (trace.code == Some(0)).then_some(())
    })
    .await;
    on(&cluster.nodes[2], &words).await.expect(0, &["1 hello"]);
    // The folder of the cluster stands for all its nodes.
    let nodes = folder.path().join("nodes").display().to_string();
    let traced = run(folder.path(), &["overlay", "trace", &published.stdout[..32], "--data-dir", &nodes]).await;
    traced.expect(0, &["node-1", "published here", "─ node-2", "─ node-3"]);

    cluster.signal(Signal::TERM);
    let status = eventually("the end", async || cluster.child.try_wait().expect("our child")).await;
    assert_eq!(status.code(), Some(0), "{}", cluster.said());
    for pid in cluster.pids() {
        assert!(test_kill_process(pid).is_err(), "no node is left behind");
    }
    assert!(folder.path().join("nodes/node-1/node.key").exists(), "a folder that was named is kept");
}

#[tokio::test]
async fn a_node_that_dies_is_named_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut cluster = Cluster::start(folder.path(), 2).await;
    kill_process(cluster.pids()[1], Signal::KILL).expect("it is ours");
    eventually("the news", async || cluster.said().contains("node-2 ended by itself").then_some(())).await;
    let api = text(&cluster.nodes[0], "api").parse().expect("an address");
    let reply = ask(api, Method::GET, "/openapi.json", &[], "").await.expect("an answer");
    assert_eq!(reply.status, 200);
    cluster.signal(Signal::INT);
    let status = eventually("the end", async || cluster.child.try_wait().expect("our child")).await;
    assert_eq!(status.code(), Some(75), "{}", cluster.said());
    run(folder.path(), &["cluster", "dev", "0"]).await.expect(64, &[]);
    run(folder.path(), &["cluster", "dev", "65"]).await.expect(64, &[]);
}

#[tokio::test]
async fn nodes_do_not_outlive_a_command_that_was_killed() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut cluster = Cluster::start(folder.path(), 2).await;
    cluster.signal(Signal::KILL);
    eventually("the end of the command", async || cluster.child.try_wait().expect("our child")).await;
    for node in &cluster.nodes {
        let api: std::net::SocketAddr = text(node, "api").parse().expect("an address");
        eventually("its ports", async || tokio::net::TcpStream::connect(api).await.is_err().then_some(())).await;
    }
}
