//! Two nodes from one command: published on one, found on the other.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster_process::{Cluster, text};
use crate::index::node::{ABC_B3, ABC_CID};
use crate::process::run;
use testkit::eventually;

#[tokio::test]
async fn two_nodes_publish_and_resolve_in_a_few_commands() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut cluster = Cluster::start(folder.path(), 2).await;
    let file = folder.path().join("file");
    fs::write(&file, "abc").expect("written");
    let file = file.display().to_string();
    let on = async |node: &Value, words: &[&str]| {
        run(folder.path(), &[words, &["--data-dir", text(node, "data_dir")]].concat()).await
    };
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]];
    // Joined when it is announced: each knows the other.
    for node in [first, second] {
        on(node, &["dht", "peers"]).await.expect(0, &["knows 1 node"]);
    }
    on(first, &["index", "publish", &file, "--name", "site"]).await.expect(0, &[ABC_B3, ABC_CID, "name:site@"]);
    let name = format!("name:site@{}", text(first, "node_id"));
    for id in [ABC_B3, ABC_CID, &name] {
        let found = eventually("the record at the other node", async || {
            let found = on(second, &["index", "resolve", id, "--fresh", "--trace"]).await;
            (found.code == Some(0)).then_some(found)
        })
        .await;
        found.expect(0, &["found", ABC_CID, "winner"]);
    }
    let trace = on(second, &["dht", "trace", ABC_B3]).await;
    trace.expect(0, &["1 record after", "the nearest all answered"]);
    cluster.signal(Signal::TERM);
    let status = eventually("the end", async || cluster.child.try_wait().expect("our child")).await;
    assert_eq!(status.code(), Some(0), "{}", cluster.said());
}
