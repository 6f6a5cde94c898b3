//! The mailbox as an operator handles it from the command line, with a node and with its files alone.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::process::{BINARY, Outcome, Process, command, finish, run};
use testkit::eventually;

/// A node with its data in a folder, and commands for it.
struct Node {
    folder: tempfile::TempDir,
    data: String,
    process: Process,
}

impl Node {
    async fn start() -> Node {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let data = folder.path().join("data");
        let process = Process::start(folder.path(), &data, &[]).await;
        Node { data: data.display().to_string(), folder, process }
    }

    async fn mailbox(&self, words: &[&str]) -> Outcome {
        run(self.folder.path(), &[&["mailbox"], words, &["--data-dir", &self.data]].concat()).await
    }

    async fn mailbox_with_input(&self, words: &[&str], input: &[u8]) -> Outcome {
        let path = self.folder.path().join("input");
        fs::write(&path, input).expect("written");
        let mut prepared = command(BINARY, self.folder.path());
        prepared.arg("mailbox").args(words).args(["--data-dir", &self.data]);
        prepared.stdin(fs::File::open(path).expect("there"));
        finish(prepared).await
    }

    async fn json(&self, words: &[&str]) -> Value {
        let outcome = self.mailbox(&[words, &["--json"]].concat()).await;
        outcome.expect(0, &[]);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {}", outcome.stdout))
    }

    async fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.wait_exit().await.code(), Some(0), "{}", self.process.stderr());
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

#[tokio::test]
async fn messages_go_in_and_out_with_the_operators_token() {
    let node = Node::start().await;
    let sent = node.json(&["send", "orders", "hello", "--key", "k1", "--group", "g", "--attr", "a=b"]).await;
    assert_eq!((&sent["duplicate"], &sent["durability"]), (&false.into(), &"fsynced".into()));
    node.mailbox(&["send", "orders", "hello", "--key", "k1"]).await.expect(0, &[text(&sent["msg_id"]), "duplicate"]);
    node.mailbox(&["send", "orders", "other", "--key", "k1"]).await.expect(70, &["MN0019", "E_DUPLICATE"]);

    let received = node.mailbox(&["recv", "orders", "--visibility", "1m"]).await;
    received.expect(0, &[text(&sent["msg_id"]), "delivery 1", "group    g", "attrs    a=b", "receipt", "\nhello\n"]);
    node.mailbox(&["recv", "orders"]).await.expect(0, &["nothing to receive"]);
    let receipt =
        received.stdout.lines().find_map(|line| line.trim().strip_prefix("receipt")).expect("a receipt").trim();
    node.mailbox(&["nack", receipt, "--reason", "no luck", "--delay", "0s"]).await.expect(0, &["1 message given back"]);

    let again = node.json(&["recv", "orders", "--wait", "5s"]).await;
    assert_eq!((&again["messages"][0]["attempt"], &again["messages"][0]["msg_id"]), (&2.into(), &sent["msg_id"]));
    node.mailbox(&["nack", receipt]).await.expect(70, &["E_", "0 messages given back"]);
    node.mailbox(&["ack", text(&sent["msg_id"])]).await.expect(0, &["1 message acknowledged"]);
    node.mailbox(&["ack", text(&sent["msg_id"])]).await.expect(70, &["E_NOT_FOUND", "0 messages acknowledged"]);
}

#[tokio::test]
async fn payloads_come_from_anywhere_and_are_shown_as_they_are() {
    let node = Node::start().await;
    node.mailbox_with_input(&["send", "a"], b"from\ninput").await.expect(0, &["fsynced"]);
    node.mailbox_with_input(&["send", "a", "-"], b"dash").await.expect(0, &[]);
    let file = node.folder.path().join("payload.bin");
    fs::write(&file, [0xff, 0x00]).expect("written");
    node.mailbox(&["send", "a", "--file", &file.display().to_string()]).await.expect(0, &[]);
    let received = node.mailbox(&["recv", "a", "--max", "10", "--ack"]).await;
    received.expect(0, &["\nfrom\ninput\n", "\ndash\n", "\n/wA=\n"]);
    assert!(!received.stdout.contains("receipt"), "{}", received.stdout);
    assert_eq!(node.json(&["stats", "a"]).await["total"]["acked"], 3);

    let lines: String = (0..250).map(|number| format!("line {number}\n")).collect();
    let sent = node.mailbox_with_input(&["send", "many", "--lines"], lines.as_bytes()).await;
    sent.expect(0, &["250 messages sent in", "a second"]);
    assert_eq!(node.json(&["stats", "many"]).await["total"]["ready"], 250);
    node.mailbox(&["send", "b", "x", "--delay", "1h"]).await.expect(0, &[]);
    node.mailbox(&["recv", "b"]).await.expect(0, &["nothing to receive"]);
}

#[tokio::test]
async fn topics_are_made_changed_emptied_and_removed() {
    let node = Node::start().await;
    let settings = ["--set", "groups=fifo", "--set", "visibility_ms=45s"];
    let create = [&["topics", "create", "jobs.a"], settings.as_slice()].concat();
    node.mailbox(&create).await.expect(0, &["jobs.a made", "groups", "fifo", "45s"]);
    node.mailbox(&create).await.expect(0, &[]);
    node.mailbox(&["topics", "create", "jobs.a"]).await.expect(70, &["MN0019", "other settings"]);
    node.mailbox(&["topics", "set", "jobs.a", "max_attempts=3", "paused=true"]).await.expect(0, &["45s"]);
    let shown = node.json(&["topics", "show", "jobs.a"]).await;
    assert_eq!((&shown["settings"]["max_attempts"], &shown["settings"]["paused"]), (&3.into(), &true.into()));
    node.mailbox(&["topics", "set", "jobs.a", "max_attempt=3"]).await.expect(70, &["E_SCHEMA", "max_attempt"]);
    node.mailbox(&["topics"]).await.expect(0, &["jobs.a", "fifo", "PAUSED"]);
    assert_eq!(node.json(&["topics", "--prefix", "jobs."]).await["topics"].as_array().map(Vec::len), Some(1));
    assert_eq!(node.json(&["topics", "--prefix", "x"]).await["topics"].as_array().map(Vec::len), Some(0));

    node.mailbox(&["send", "jobs.a", "x", "--group", "g"]).await.expect(0, &[]);
    node.mailbox(&["topics", "purge", "jobs.a"]).await.expect(0, &["1 message removed"]);
    node.mailbox(&["topics", "delete", "jobs.a"]).await.expect(0, &["removed"]);
    node.mailbox(&["topics", "show", "jobs.a"]).await.expect(70, &["E_NOT_FOUND"]);
    node.mailbox(&["topics", "show", "../x y"]).await.expect(70, &["E_SCHEMA"]);
    node.mailbox(&["stats"]).await.expect(0, &["fsynced", "shard", "log:"]);
}

#[tokio::test]
async fn dead_letters_are_found_explained_and_moved_back() {
    let node = Node::start().await;
    node.mailbox(&["topics", "create", "orders", "--set", "max_attempts=1"]).await.expect(0, &[]);
    for payload in ["one", "two", "three"] {
        node.mailbox(&["send", "orders", payload]).await.expect(0, &[]);
        let leased = node.json(&["recv", "orders", "--wait", "5s"]).await;
        let id = text(&leased["messages"][0]["msg_id"]);
        node.mailbox(&["explain", id]).await.expect(0, &["has it, delivery 1", "lease", "still running"]);
        let reason = if payload == "two" { "bad input" } else { "upstream down" };
        node.mailbox(&["nack", id, "--reason", reason]).await.expect(0, &["1 of them now dead"]);
    }
    let page = node.json(&["browse", "orders.dlq"]).await;
    let dead = page["messages"].as_array().expect("a page");
    assert_eq!(dead.len(), 3, "{page}");
    node.mailbox(&["browse", "orders.dlq", "--contains", "two"]).await.expect(0, &["dead: max_attempts", "bad input"]);
    node.mailbox(&["browse", "orders.dlq", "--state", "leased"]).await.expect(0, &["nothing found"]);
    let first = node.mailbox(&["browse", "orders.dlq", "--limit", "1"]).await;
    first.expect(0, &["--cursor"]);
    let cursor = first.stdout.trim().rsplit(' ').next().expect("a cursor");
    node.mailbox(&["browse", "orders.dlq", "--cursor", cursor]).await.expect(0, &["two", "three"]);
    let explained = node.mailbox(&["explain", text(&dead[0]["msg_id"])]).await;
    explained.expect(0, &["was for", "orders", "last error", "upstream down", "delivery"]);

    let filter = ["redrive", "orders", "--contains-error", "upstream"];
    node.mailbox(&[&filter[..], &["--dry-run"]].concat()).await.expect(0, &["2 dead letters of orders would be moved"]);
    let moved = node.mailbox(&[&filter[..], &["--follow"]].concat()).await;
    moved.expect(0, &["is done: 2 dead letters moved"]);
    node.mailbox(&["redrive", "list"]).await.expect(0, &["done", "orders.dlq", "each its own"]);
    assert_eq!(node.json(&["stats", "orders"]).await["total"]["ready"], 2);
    assert_eq!(node.json(&["stats", "orders.dlq"]).await["total"]["ready"], 1);
    node.mailbox(&["redrive", "pause", "99"]).await.expect(70, &["E_NOT_FOUND"]);
}

#[tokio::test]
async fn a_topic_is_followed_until_the_command_is_interrupted() {
    let node = Node::start().await;
    node.mailbox(&["send", "news", "old"]).await.expect(0, &[]);
    for more in [&["--ack"][..], &[]] {
        let mut prepared = command(BINARY, node.folder.path());
        prepared.args(["mailbox", "tail", "news", "--data-dir", &node.data]).args(more);
        let output = tempfile::tempdir().expect("a scratch folder");
        let mut tail = Process::spawn(prepared, output.path());
        // Looking begins with what comes after it; whether it has begun shows in what it prints.
        testkit::eventually("a message in the tail", async || {
            node.mailbox(&["send", "news", "fresh\nnews"]).await.expect(0, &[]);
            tail.stdout().contains(" fresh\\nnews\n").then_some(())
        })
        .await;
        assert_eq!(tail.stdout().contains(" old\n"), more == ["--ack"], "{}", tail.stdout());
        tail.signal(Signal::INT);
        assert_eq!(tail.wait_exit().await.code(), Some(0), "{}", tail.stderr());
        let seen = tail.stdout();
        let ids: Vec<&str> = seen.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        let once: std::collections::BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(ids.len(), once.len(), "each message once: {seen}");
    }
    let left = node.json(&["stats", "news"]).await;
    assert!(left["total"]["ready"].as_u64() > Some(0), "looking takes nothing: {left}");
}

#[tokio::test]
async fn a_token_opens_what_it_says_and_nothing_else() {
    let node = Node::start().await;
    let mint = ["token", "mint", "--subject", "ann", "--op", "send", "--topic", "orders", "--data-dir", &node.data];
    let minted = run(node.folder.path(), &mint).await;
    minted.expect(0, &[]);
    let token = minted.stdout.trim();
    node.mailbox(&["send", "orders", "x", "--token", token]).await.expect(0, &["fsynced"]);
    node.mailbox(&["recv", "orders", "--token", token]).await.expect(70, &["MN0018", "E_CAP_SCOPE"]);
    node.mailbox(&["send", "orders", "x", "--token", "stranger"])
        .await
        .expect(70, &["MN0018", "E_CAP_AUTH", "--token"]);
    let mut prepared = command(BINARY, node.folder.path());
    prepared.args(["mailbox", "send", "other", "x", "--data-dir", &node.data]).env("MACRO_TOKEN", token);
    finish(prepared).await.expect(70, &["MACRO_TOKEN", "E_CAP_SCOPE"]);
    let elsewhere = node.folder.path().join("elsewhere").display().to_string();
    let api = node.process.api.to_string();
    let strange = ["mailbox", "send", "orders", "x", "--api", &api, "--data-dir", &elsewhere];
    run(node.folder.path(), &strange).await.expect(70, &["MN0018", "--token", "MACRO_TOKEN"]);
}

#[tokio::test]
async fn the_log_is_verified_while_no_node_has_it_open() {
    let mut node = Node::start().await;
    let lines = "a line\n".repeat(200);
    node.mailbox_with_input(&["send", "orders", "--lines"], lines.as_bytes()).await.expect(0, &[]);
    node.mailbox(&["verify"]).await.expect(70, &["MN0012", "a node has the log in", "open", "macronode drain"]);
    node.stop().await;
    node.mailbox(&["verify"]).await.expect(0, &["ok: ", "every checksum and the chain are whole"]);
    let report = node.json(&["verify"]).await;
    assert!(report["clean"] == true && report["records"].as_u64() >= Some(200), "{report}");

    let segment = Path::new(&node.data).join("mailbox").join("00000001.log");
    let mut bytes = fs::read(&segment).expect("a segment");
    bytes[2_000] ^= 0x10;
    fs::write(&segment, &bytes).expect("written");
    node.mailbox(&["verify"]).await.expect(70, &["DAMAGED", "1 record lost"]);
    assert_eq!(fs::read(&segment).expect("a segment"), bytes, "a walk changes nothing");
    let nowhere = node.folder.path().display().to_string();
    run(node.folder.path(), &["mailbox", "verify", "--data-dir", &nowhere])
        .await
        .expect(70, &["no log in", "--data-dir"]);
    node.mailbox(&["send", "orders", "x"]).await.expect(70, &["MN0017", "macronode run"]);
}

#[tokio::test]
async fn the_node_is_watched_once_where_there_is_no_terminal() {
    let node = Node::start().await;
    node.mailbox(&["send", "orders", "hello"]).await.expect(0, &[]);
    let top = async |more: &[&str]| {
        run(node.folder.path(), &[&["top", "--interval", "100ms", "--data-dir", &node.data], more].concat()).await
    };
    let shown = top(&[]).await;
    shown.expect(0, &["ready, fsynced, 1 topic", "syncs/s", "shard", "0/1024"]);
    assert!(shown.stdout.lines().any(|line| line.starts_with("orders  1 ")), "{}", shown.stdout);
    let json: Value = serde_json::from_str(&top(&["--once", "--json"]).await.stdout).expect("JSON");
    assert_eq!((&json["topics"][0]["ready"], &json["topics"][0]["in_per_second"]), (&1.into(), &0.0.into()));
    top(&["--interval", "0s"]).await.expect(64, &["interval"]);
}

/// Ends what nobody else would.
struct Stray(Pid);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[tokio::test]
async fn watching_ends_with_its_terminal() {
    let node = Node::start().await;
    let screen = tempfile::tempdir().expect("a scratch folder");
    let mut terminal = command("script", screen.path());
    let watching = format!("stty rows 24 columns 80; exec {BINARY} top --data-dir {}", node.data);
    terminal.args(["--quiet", "--flush", "--command", &watching, "/dev/null"]).env("TERM", "xterm");
    terminal.stdin(Stdio::piped());
    let mut terminal = Process::spawn(terminal, screen.path());
    eventually("a screen", async || {
        let shown = fs::read(screen.path().join("stdout.log")).expect("there");
        String::from_utf8_lossy(&shown).contains("fsynced").then_some(())
    })
    .await;
    let watcher = Stray(*terminal.children().first().expect("it runs in the terminal"));
    terminal.signal(Signal::KILL);
    terminal.wait_exit().await;
    // Whoever adopts it may not ask how it ended.
    let state = || fs::read_to_string(format!("/proc/{}/stat", watcher.0.as_raw_nonzero())).unwrap_or_default();
    eventually("the end of the watching", async || {
        let is_over = test_kill_process(watcher.0).is_err() || state().contains(") Z ");
        is_over.then_some(())
    })
    .await;
}
