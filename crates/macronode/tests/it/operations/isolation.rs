//! One service that cannot run does not take the others along.

use std::fs;
use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MailboxClient, Outgoing, Take, ask, eventually};

use crate::process::{BINARY, Process, command, run_arguments};

/// A node whose usage log cannot be opened: a file lies where its folder was.
async fn without_usage_log(folder: &Path, data: &Path, more: &[&str]) -> Process {
    let mut first = Process::start(folder, data, &[]).await;
    first.signal(Signal::TERM);
    assert_eq!(first.wait_exit().await.code(), Some(0), "{}", first.stderr());
    let usage = data.join("rewarder/usage");
    fs::remove_dir_all(&usage).expect("the usage log is there");
    fs::write(&usage, "not a folder").expect("written");
    let mut prepared = command(BINARY, folder);
    prepared.args(run_arguments(data)).args(more);
    let mut node = Process::spawn(prepared, folder);
    node.locate(data).await;
    node
}

async fn readiness(node: &Process) -> (u16, Value) {
    let reply = ask(node.admin, Method::GET, "/readyz", &[], "").await.expect("the admin plane answers");
    (reply.status, reply.json().expect("JSON"))
}

fn state_of<'a>(readiness: &'a Value, service: &str) -> &'a Value {
    // Before the first step there is none.
    static NONE: Value = Value::Null;
    let services = readiness["services"].as_array().expect("a list");
    services.iter().find(|row| row["name"] == service).map_or(&NONE, |row| &row["state"])
}

/// Sends a message and takes it out again.
async fn use_mailbox(node: &Process) {
    let mut mailbox = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    mailbox.send(Outgoing { topic: "t", payload: b"kept", ..Outgoing::default() }).await.expect("sent");
    let taken = mailbox.recv("t", Take { max: 1, visibility_ms: 30_000, wait_ms: 0 }).await.expect("received");
    mailbox.ack(&[taken[0].receipt.as_str()]).await.expect("acknowledged");
}

#[tokio::test]
async fn a_service_whose_files_cannot_be_used_is_shown_as_failed_and_refused_alone() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let mut first = Process::start(folder.path(), &data, &[]).await;
    first.signal(Signal::TERM);
    assert_eq!(first.wait_exit().await.code(), Some(0), "{}", first.stderr());
    let store = data.join("index/records.redb");
    fs::remove_file(&store).expect("the store is there");
    fs::create_dir(&store).expect("made");
    let mut prepared = command(BINARY, folder.path());
    prepared.args(run_arguments(&data));
    let mut node = Process::spawn(prepared, folder.path());
    node.locate(&data).await;
    let shown = eventually("a node that is ready for the others", async || {
        let (status, body) = readiness(&node).await;
        (status == 200 && state_of(&body, "index") == "failed").then_some(body)
    });
    let body = shown.await;
    assert_eq!((state_of(&body, "index"), &body["state"]), (&json!("failed"), &json!("degraded")), "{body}");
    assert!(body.to_string().contains("MN0012"), "{body}");
    use_mailbox(&node).await;
    let bearer = format!("Bearer {}", node.token);
    let pins = ask(node.api, Method::GET, "/index/pins", &[("authorization", &bearer)], "").await.expect("an answer");
    assert_eq!(pins.status, 503, "{}", pins.text());
}

#[tokio::test]
async fn a_service_that_cannot_start_is_refused_alone() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let node = without_usage_log(folder.path(), &data, &[]).await;
    eventually("a node that is ready for the others", async || (readiness(&node).await.0 == 200).then_some(())).await;
    let (_, body) = readiness(&node).await;
    assert_ne!(state_of(&body, "rewarder"), "ready", "{body}");

    use_mailbox(&node).await;
    let bearer = format!("Bearer {}", node.token);
    let usage =
        ask(node.api, Method::GET, "/rewarder/usage", &[("authorization", &bearer)], "").await.expect("an answer");
    assert_eq!((usage.status, !usage.header("retry-after").is_empty()), (503, true), "{}", usage.text());
    assert!(usage.text().contains("rewarder is not available"), "{}", usage.text());

    // A loop that its law calls unready is the state of the service, not of the node.
    let looping = eventually("a crash loop", async || {
        let (status, body) = readiness(&node).await;
        (state_of(&body, "rewarder") == "unready").then_some((status, body["state"].clone()))
    });
    assert_eq!(looping.await, (200, json!("degraded")));
}

#[tokio::test]
async fn a_node_is_ready_only_with_what_its_configuration_requires() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let config = folder.path().join("node.toml");
    fs::write(&config, "[readiness]\nrequired = [\"mailbox\", \"rewarder\"]\n").expect("written");
    let config = config.display().to_string();
    let node = without_usage_log(folder.path(), &data, &["--config", &config]).await;
    let looping = eventually("a crash loop", async || {
        let (status, body) = readiness(&node).await;
        (state_of(&body, "rewarder") == "unready").then_some((status, body))
    });
    let (status, body) = looping.await;
    assert_eq!((status, &body["state"]), (503, &json!("unready")), "{body}");
    assert_eq!(state_of(&body, "mailbox"), "ready", "{body}");
}
