//! Access keys of SQS as an operator handles them, and what a request signed with one is let in to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aws_lc_rs::{digest, hmac};
use http::Method;
use ron_kernel::clock;
use rustix::process::Signal;
use serde_json::Value;
use testkit::Reply;

use crate::ask;
use crate::process::{BINARY, Outcome, Process, command, finish, run};

const KEYS_FILE: &str = "sqs.keys";

/// What `sqs key create` prints.
struct Made {
    id: String,
    secret: String,
    url: String,
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

    /// An action, signed as clients do it.
    async fn call(&self, node: &Process, action: &str, body: &str) -> Reply {
        let target = format!("AmazonSQS.{action}");
        let stamp = timestamp(clock::unix_millis() / 1000);
        let host = node.api.to_string();
        let signed = "host;x-amz-date;x-amz-target";
        let headers = format!("host:{host}\nx-amz-date:{stamp}\nx-amz-target:{target}\n");
        let request = format!("POST\n/\n\n{headers}\n{signed}\n{}", sha256(body.as_bytes()));
        let scope = format!("{}/us-east-1/sqs/aws4_request", &stamp[..8]);
        let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", sha256(request.as_bytes()));
        let first = format!("AWS4{}", self.secret).into_bytes();
        let key = scope.split('/').fold(first, |key, part| keyed(&key, part));
        let signature = hex(&keyed(&key, &text));
        let credential = format!("{}/{scope}", self.id);
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}");
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-date", &stamp),
            ("x-amz-target", &target),
            ("authorization", &authorization),
        ];
        ask(node.api, Method::POST, "/", &headers, body.to_owned()).await.expect("an answer")
    }
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Seconds since 1970 as signatures write them, by the civil calendar.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
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
