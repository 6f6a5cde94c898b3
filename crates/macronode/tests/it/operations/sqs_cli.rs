//! Access keys of SQS as an operator handles them, and what a request signed with one is let in to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use http::Method;
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Reply, SqsKey};

use crate::process::{BINARY, Outcome, Process, command, finish, run};
use testkit::ask;

const KEYS_FILE: &str = "sqs.keys";

/// What `sqs key create` prints.
pub struct Made {
    pub id: String,
    pub secret: String,
    pub url: String,
}

impl Made {
    fn read(outcome: &Outcome) -> Made {
        outcome.expect(0, &[]);
        let lines: Vec<(&str, &str)> =
            outcome.stdout.lines().map(|line| line.split_once('=').expect("NAME=value")).collect();
        let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
        let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let places = ["AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"];
        assert_eq!(names, [&keys[..], &places].concat());
        assert_eq!(lines[3].1, "us-east-1");
        Made { id: lines[0].1.into(), secret: lines[1].1.into(), url: lines[2].1.into() }
    }

    /// The key, to sign with.
    pub fn key(&self) -> SqsKey {
        SqsKey::new(&self.id, &self.secret)
    }

    /// An action, signed as clients do it.
    pub async fn call(&self, node: &Process, action: &str, body: &str) -> Reply {
        self.key().call(node.api, action, body).await
    }
}

async fn sqs(folder: &Path, words: &[&str]) -> Outcome {
    run(folder, &[&["sqs", "key"], words, &["--data-dir", "data"]].concat()).await
}

fn code(reply: &Reply) -> String {
    let header = reply.headers.get("x-amzn-query-error").map(|value| value.to_str().expect("text").to_owned());
    header.unwrap_or_default().split(';').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_key_is_made_used_listed_kept_and_revoked() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("data"));
    let mut node = Process::start(here, &data, &[]).await;
    sqs(here, &["list"]).await.expect(0, &["no access keys"]);
    assert!(!data.join(KEYS_FILE).exists());

    let all = Made::read(&sqs(here, &["create", "--note", "everything"]).await);
    assert_eq!(all.url, format!("http://{}", node.api));
    assert_eq!(fs::metadata(data.join(KEYS_FILE)).expect("made").permissions().mode() & 0o777, 0o600);
    let reply = all.call(&node, "CreateQueue", r#"{"QueueName":"orders"}"#).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let few = ["create", "--op", "send,recv", "--topic", "other", "--prefix", "jobs-", "--expires", "1h", "--json"];
    let few: Value = serde_json::from_str(&sqs(here, &few).await.stdout).expect("JSON");
    let rights = ["recv:jobs-*", "recv:other", "send:jobs-*", "send:other"].map(|right| format!("mailbox:{right}"));
    assert_eq!(few["rights"], serde_json::json!(rights));
    let text = |name: &str| few[name].as_str().expect("text").to_owned();
    let few = Made { id: text("access_key_id"), secret: text("secret_access_key"), url: String::new() };
    let reply = few.call(&node, "CreateQueue", r#"{"QueueName":"third"}"#).await;
    assert_eq!((reply.status, code(&reply)), (403, "AccessDenied".into()), "{}", reply.text());

    let listed = sqs(here, &["list"]).await;
    listed.expect(0, &[&all.id, &few.id, "everything", "mailbox:*:*", "mailbox:send:other", "in 59 min", "never"]);
    let listed = sqs(here, &["list", "--json"]).await.stdout;
    assert!(![&all, &few].iter().any(|key| listed.contains(&key.secret)), "{listed}");
    assert_eq!(serde_json::from_str::<Value>(&listed).expect("JSON")["keys"].as_array().map(Vec::len), Some(2));

    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());
    sqs(here, &["list"]).await.expect(70, &["MN0017"]);
    let node = Process::start(here, &data, &[]).await;
    assert_eq!(all.call(&node, "ListQueues", "{}").await.status, 200, "it outlives the node");
    sqs(here, &["revoke", &all.id]).await.expect(0, &[&all.id, "revoked"]);
    let reply = all.call(&node, "ListQueues", "{}").await;
    assert_eq!((reply.status, code(&reply)), (403, "InvalidClientTokenId".into()), "{}", reply.text());
    sqs(here, &["revoke", &all.id]).await.expect(70, &["MN0019", "no access key has this id"]);
    assert!(!node.stderr().contains(&all.secret), "secrets stay out of the log");
}

#[tokio::test]
async fn wrong_wishes_are_named_and_only_the_operator_has_any() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("data"));
    let node = Process::start(here, &data, &[]).await;
    for (words, said) in [
        (vec!["create", "--allow", "overlay:publish:a"], ["--allow: ", "known: mailbox"]),
        (vec!["create", "--op", "write"], ["--op: ", "send, recv, ack, nack, admin, or all"]),
        (vec!["create", "--topic", "a*b"], ["--topic", "a*b"]),
        (vec!["create", "--expires", "soon"], ["soon", "1h"]),
        (vec!["create", "--quota", "x"], ["'x'", "sends-per-second"]),
        (vec!["revoke"], ["<ID>", "required"]),
    ] {
        let outcome = sqs(here, &words).await;
        outcome.expect(64, &said);
    }
    let note = "x".repeat(257);
    sqs(here, &["create", "--note", &note]).await.expect(70, &["MN0019", "note"]);
    sqs(here, &["create", "--prefix", "a b"]).await.expect(64, &["MN0022", "--topic: ", "a b"]);
    let mint = ["token", "mint", "--subject", "ann", "--op", "all", "--topic", "*", "--data-dir", "data"];
    let minted = run(here, &mint).await.stdout;
    for words in [vec!["create"], vec!["list"], vec!["revoke", "MNSQX"]] {
        let outcome = sqs(here, &[words.as_slice(), &["--token", minted.trim()]].concat()).await;
        outcome.expect(70, &["MN0018", "only the operator"]);
    }
    let mut forged = Made::read(&sqs(here, &["create"]).await);
    forged.secret.push('x');
    let reply = forged.call(&node, "ListQueues", "{}").await;
    assert_eq!((reply.status, code(&reply)), (403, "SignatureDoesNotMatch".into()), "{}", reply.text());
    let unsigned = [("x-amz-target", "AmazonSQS.ListQueues"), ("content-type", "application/x-amz-json-1.0")];
    let reply = ask(node.api, Method::POST, "/", &unsigned, "{}").await.expect("an answer");
    assert_eq!((reply.status, code(&reply)), (403, "MissingAuthenticationToken".into()), "{}", reply.text());
}

#[tokio::test]
async fn damaged_keys_stop_the_start_instead_of_being_forgotten() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let here = folder.path();
    fs::create_dir(here.join("data")).expect("made");
    fs::write(here.join("data").join(KEYS_FILE), "{\"keys\":[{").expect("written");
    let arguments = ["run", "--data-dir", "data", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let outcome = run(here, &[arguments.as_slice(), &["--oap", "127.0.0.1:0"]].concat()).await;
    outcome.expect(70, &["MN0012", KEYS_FILE, "line 1"]);
}

#[tokio::test]
async fn without_signatures_a_node_stays_on_loopback_and_says_so_everywhere() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (here, data) = (folder.path(), folder.path().join("data"));
    let mut public = command(BINARY, here);
    public.args(["run", "--api", "0.0.0.0:0"]).env("MACRO_AUTH__SQS", "off");
    finish(public).await.expect(64, &["MN0024", "api.addr", "auth.sqs", "sigv4", "MACRO_AUTH__SQS"]);

    fs::write(
        here.join("macronode.toml"),
        "auth.sqs = \"off\"\nsqs.account_id = \"000000000042\"\nsqs.base_url = \"http://queues:1/\"\n",
    )
    .expect("written");
    let node = Process::start(here, &data, &[]).await;
    assert!(node.stderr().contains("`auth.sqs` is off"), "{}", node.stderr());
    let ready = ask(node.admin, Method::GET, "/readyz", &[], "").await.expect("an answer");
    let (status, body) = (ready.status, ready.json().expect("JSON"));
    assert_eq!((status, &body["state"], &body["accepts_writes"]), (200, &"ready".into(), &true.into()), "{body}");
    assert!(body["notes"][0].as_str().is_some_and(|note| note.contains("auth.sqs")), "{body}");
    run(here, &["status", "--data-dir", "data"]).await.expect(0, &["ready", "note: `auth.sqs` is off"]);

    let unsigned = [("x-amz-target", "AmazonSQS.CreateQueue"), ("content-type", "application/x-amz-json-1.0")];
    let reply = ask(node.api, Method::POST, "/", &unsigned, r#"{"QueueName":"open"}"#).await.expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.text().contains("http://queues:1/000000000042/open"), "{}", reply.text());
    assert_eq!(Made::read(&sqs(here, &["create"]).await).url, "http://queues:1");
}
