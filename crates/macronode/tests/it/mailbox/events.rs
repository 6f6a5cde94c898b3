//! Events of the real node: remembered, followed, and across kill -9.

use std::fs::{self, File};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{BINARY, Process, command, run};
use testkit::eventually;

/// A command that runs beside the test, and what it has printed.
struct Follower {
    child: std::process::Child,
    output: std::path::PathBuf,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Follower {
    fn start(folder: &std::path::Path, arguments: &[&str]) -> Follower {
        let output = folder.join("followed");
        let mut prepared = command(BINARY, folder);
        prepared.args(arguments).stdout(File::create(&output).expect("made")).stderr(Stdio::null());
        Follower { child: prepared.spawn().expect("the command starts"), output }
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until an event of this kind, and with a topic of it, was printed.
    async fn until(&self, kind: &str, topic: Option<&str>) -> Vec<Value> {
        eventually(kind, async || {
            let events = self.events();
            let is_it = |event: &Value| event["event"] == kind && topic.is_none_or(|topic| event["topic"] == topic);
            events.iter().any(is_it).then_some(events)
        })
        .await
    }
}

#[tokio::test]
async fn a_follower_outlives_a_kill_and_is_told_what_it_missed() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let data_dir = data.display().to_string();
    let mut node = Process::start(folder.path(), &data, &[]).await;
    let make = async |topic: &str| {
        run(folder.path(), &["mailbox", "topics", "create", topic, "--data-dir", &data_dir]).await.expect(0, &[])
    };
    make("before").await;
    let events = ["mailbox", "events", "--data-dir", &data_dir];
    run(folder.path(), &events).await.expect(0, &["topic_made", "before"]);

    let follower = Follower::start(folder.path(), &[&events[..], &["--follow", "--json"]].concat());
    follower.until("topic_made", Some("before")).await;
    make("during").await;
    follower.until("topic_made", Some("during")).await;
    node.signal(Signal::KILL);
    node.wait_exit().await;

    let mut node = Process::start(folder.path(), &data, &[]).await;
    make("after").await;
    let told = follower.until("topic_made", Some("after")).await;
    let kinds: Vec<_> = told.iter().map(|event| (event["event"].as_str(), event["topic"].as_str())).collect();
    let made = Some("topic_made");
    let expected = [(made, Some("before")), (made, Some("during")), (Some("missed"), None), (made, Some("after"))];
    assert_eq!(kinds, expected, "each once, and the gap is told");
    assert_eq!(told[2]["count"], Value::Null, "nobody knows how many");
    assert_ne!(told[1]["id"].as_str().map(|id| &id[..16]), told[3]["id"].as_str().map(|id| &id[..16]));

    let some = run(folder.path(), &[&events[..], &["--topic", "aft*"]].concat()).await;
    some.expect(0, &["after"]);
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0), "a follower does not hold up the drain: {}", node.stderr());
}
