//! The commands of the overlay, as a person types them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::member::{Member, network};
use crate::process::{BINARY, Outcome, command, finish, run};
use testkit::eventually;

async fn on(member: &Member, words: &[&str]) -> Outcome {
    let data = member.data_dir().display().to_string();
    run(&std::env::temp_dir(), &[&["overlay"], words, &["--data-dir", &data]].concat()).await
}

fn json_of(outcome: &Outcome) -> Value {
    outcome.expect(0, &[]);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

#[tokio::test]
async fn the_id_is_there_without_a_node_and_stays() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let here = folder.path();
    let first = run(here, &["overlay", "id"]).await;
    first.expect(0, &[]);
    let id = first.stdout.trim();
    assert!(id.len() == 64 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    let key = here.join("macronode-data").join("node.key");
    assert_eq!(fs::metadata(&key).expect("made").permissions().mode() & 0o777, 0o600);
    let again = run(here, &["overlay", "id", "--json"]).await;
    assert_eq!(json_of(&again)["node_id"], id);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("ours");
    run(here, &["overlay", "id"]).await.expect(70, &["MN0023", "node.key"]);
}

#[tokio::test]
async fn two_nodes_are_joined_and_talk_by_commands_alone() {
    let mut members = [Member::new(), Member::new()];
    for member in &mut members {
        member.start().await;
    }
    let [first, second] = &members;
    on(first, &["peers"]).await.expect(0, &[&first.id, "no peers"]);
    on(first, &["connect", &second.address()]).await.expect(0, &["is being dialled"]);
    first.wait_connected(&second.id).await;
    on(first, &["peers"]).await.expect(0, &["connected  out", &second.id]);
    assert_eq!(json_of(&on(second, &["peers", "--json"]).await)["peers"][0]["node_id"], first.id.as_str());

    let published = json_of(&on(first, &["pub", "chat", "hello", "--json"]).await);
    assert_eq!((&published["seq"], &published["peers"][0]["outcome"]), (&1.into(), &"sent".into()), "{published}");
    on(first, &["pub", "chat", "there"]).await.expect(0, &["seq 2, sent to 1 peer"]);
    let file = first.data_dir().join("text");
    fs::write(&file, "from a file\n").expect("written");
    on(first, &["pub", "chat", "--file", &file.display().to_string()]).await.expect(0, &["seq 3"]);
    let mut piped = command(BINARY, &std::env::temp_dir());
    let data = first.data_dir().display().to_string();
    piped.args(["overlay", "pub", "chat", "--data-dir", &data]).stdin(fs::File::open(&file).expect("there"));
    finish(piped).await.expect(0, &["seq 4"]);

    let msg_id = published["msg_id"].as_str().expect("an id");
    eventually("the trace at the second node", async || {
        let outcome = on(second, &["trace", msg_id]).await;
        (outcome.code == Some(0)).then_some(())
    })
    .await;
    let from = format!("{}:1", first.id);
    let heard = on(second, &["sub", "chat", "--from", &from, "--count", "4"]).await;
    let short = &first.id[..8];
    heard.expect(0, &["# hearing chat", &format!("{short} 1 hello\n{short} 2 there\n{short} 3 from a file\\n\n")]);
    let heard = on(second, &["sub", "chat", "--from", &from, "--count", "1", "--json"]).await;
    let lines: Vec<Value> = heard.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["type"], &lines[1]["type"]), (&"ready".into(), &"message".into()), "{}", heard.stdout);
    assert_eq!((lines.len(), &lines[1]["payload_b64"]), (2, &"aGVsbG8=".into()));

    on(first, &["disconnect", &second.id]).await.expect(0, &["no peer any more"]);
    on(first, &["disconnect", &second.id]).await.expect(70, &["MN0019"]);
    on(first, &["pub", "two words", "x"]).await.expect(70, &["lane"]);
    on(first, &["trace", &"0".repeat(32)]).await.expect(70, &["MN0019"]);
}

#[tokio::test]
async fn a_message_is_followed_through_all_nodes_that_are_asked() {
    let line = network(3, &[(1, 0), (2, 1)]).await;
    let published = line[1].publish("chat", "hello").await;
    let msg_id = published["msg_id"].as_str().expect("an id");
    let folders: Vec<String> = line.iter().map(|member| member.data_dir().display().to_string()).collect();
    let all: Vec<&str> = folders.iter().flat_map(|folder| ["--data-dir", folder]).collect();
    let trace = async |more: &[&str]| {
        run(&std::env::temp_dir(), &[&["overlay", "trace", msg_id], all.as_slice(), more].concat()).await
    };
    let nodes = eventually("every node's part", async || {
        let answer = json_of(&trace(&["--json"]).await);
        let nodes = answer["nodes"].as_array().expect("a list").clone();
        nodes.iter().all(|node| node["trace"].is_object()).then_some(nodes)
    })
    .await;
    for (node, member) in nodes.iter().zip(&line) {
        assert_eq!(node["node_id"], member.id.as_str());
    }
    let short = |member: &Member| member.id[..8].to_owned();
    let told = trace(&[]).await;
    told.expect(0, &["lane chat, seq 1", &format!("data {}  published here", short(&line[1]))]);
    let from = format!("from {}, 1 hop", short(&line[1]));
    told.expect(0, &[&format!("├─ data {}  {from}", short(&line[0])), &format!("└─ data {}  {from}", short(&line[2]))]);
}
