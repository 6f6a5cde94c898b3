//! Amnesia: a whole life of the node under strace, in which no file is opened for writing.

use std::collections::HashMap;
use std::path::Path;

use http::Method;
use ron_kernel::Deadline;
use serde_json::json;
use testkit::frames::RawSession;
use testkit::{MailboxClient, Outgoing, Take};

use crate::operations::{echo, has_tool};
use crate::process::{BINARY, Process, command, run_arguments};
use testkit::{PATIENCE_MAX as PATIENCE, ask, eventually};

const TRACED: &str = "open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,\
    link,linkat,symlink,symlinkat,truncate,mknod,mknodat";

/// The system calls of a trace, those that were interrupted by another thread's put together again.
fn calls(trace: &str) -> Vec<String> {
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(begin) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(pid, begin);
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let end = resumed.split_once("resumed>").map_or("", |(_, end)| end);
            calls.push(format!("{}{end}", unfinished.remove(pid).unwrap_or_default()));
        } else if !rest.starts_with("+++") && !rest.starts_with("---") {
            calls.push(rest.to_owned());
        }
    }
    calls.extend(unfinished.into_values().map(str::to_owned));
    calls
}

/// Whether a call changed, or could have changed, a file that stays.
fn leaves_a_trace(call: &str) -> bool {
    let failed = call.rsplit_once(" = ").is_some_and(|(_, result)| result.trim().starts_with('-'));
    let opens = ["open(", "openat(", "openat2("].iter().any(|name| call.starts_with(name));
    let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"].iter().any(|flag| call.contains(flag));
    let device = call.contains("\"/dev/");
    !failed && !(opens && (!writes || device))
}

#[test]
fn traces_are_read_rightly() {
    let trace = "1 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3\n\
        2 openat(AT_FDCWD, \"b\", O_WRONLY|O_CREAT <unfinished ...>\n\
        1 openat(AT_FDCWD, \"c\", O_RDWR|O_CREAT, 0600) = -1 EACCES (Permission denied)\n\
        2 <... openat resumed>, 0600) = 4\n\
        1 openat(AT_FDCWD, \"/dev/null\", O_RDWR) = 5\n\
        1 unlink(\"d\") = 0\n\
        1 +++ exited with 0 +++\n";
    let guilty: Vec<String> = calls(trace).into_iter().filter(|call| leaves_a_trace(call)).collect();
    assert_eq!(guilty, ["openat(AT_FDCWD, \"b\", O_WRONLY|O_CREAT , 0600) = 4", "unlink(\"d\") = 0"]);
}

/// What the banner says after this word.
fn banner_address(stdout: &str, plane: &str) -> Option<std::net::SocketAddr> {
    stdout.contains("Ctrl-C").then_some(())?;
    let line = stdout.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(plane)?.strip_prefix(' '))?;
    line.trim().rsplit('/').next()?.parse().ok()
}

/// A forgetful node under strace, which does with the node's system calls what it is told.
pub async fn start_traced(working: &Path, elsewhere: &Path, strace: &[&str]) -> Process {
    let config = elsewhere.join("macronode.toml");
    std::fs::write(&config, "[http]\nrequest_deadline = \"2s\"\n").expect("written");
    let mut traced = command("strace", working);
    traced.args(["-f", "--seccomp-bpf", "-s", "300"]).args(strace).arg("-o").arg(elsewhere.join("trace")).arg(BINARY);
    traced.args(run_arguments(Path::new("data"))).arg("--amnesia").arg("--config").arg(&config);
    let mut node = Process::spawn(traced, elsewhere);
    node.admin = eventually("the banner", async || banner_address(&node.stdout(), "admin")).await;
    node.api = banner_address(&node.stdout(), "api").expect("on the banner");
    node.oap = banner_address(&node.stdout(), "oap").expect("on the banner");
    let stderr = node.stderr();
    let tokens: Vec<&str> = stderr.lines().filter(|line| line.contains("operator token")).collect();
    assert_eq!(tokens.len(), 1, "{stderr}");
    node.token = tokens[0].rsplit(' ').next().expect("a last word").to_owned();
    assert_eq!(node.token.len(), 64);
    node.wait_ready().await;
    node
}

/// Every kind of record the mailbox would write: topics, messages, leases, failures, deaths, moves, settlements.
async fn use_the_mailbox(node: &Process) {
    let mut mailbox = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    mailbox.topic("forgotten", &json!({ "max_attempts": 1, "groups": "fifo" })).await.expect("made");
    let payload = vec![b'f'; 100_000];
    for number in 0..30 {
        let key = format!("k{number}");
        let message =
            Outgoing { topic: "forgotten", payload: &payload, idem_key: Some(&key), group: Some("g"), delay_ms: None };
        let sent = mailbox.send(message).await.expect("sent");
        assert_eq!(sent.durability, "ram", "an answer says how little it means");
    }
    let bearer = format!("Bearer {}", node.token);
    let demanding = [("authorization", &*bearer), ("content-type", "application/json"), ("min-durability", "fsynced")];
    let body = r#"{"topic":"forgotten","payload_b64":"aGk="}"#;
    let refused = ask(node.api, Method::POST, "/v1/send", &demanding, body).await.expect("an answer");
    assert_eq!(refused.status, 503, "what cannot be given is refused: {}", refused.text());
    let take = Take { max: 4, visibility_ms: 5_000, wait_ms: 0 };
    let messages = mailbox.recv("forgotten", take).await.expect("received");
    let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
    assert_eq!(receipts.len(), 4);
    assert_eq!(mailbox.extend(&receipts[..1], 9_000).await.expect("answered")[0]["ok"], true);
    assert_eq!(mailbox.ack(&receipts[..3]).await.expect("answered"), [true; 3]);
    assert_eq!(mailbox.nack(&receipts[3..], "no", None).await.expect("answered")[0]["dead"], true);
    mailbox.post("/v1/dlq/forgotten/reprocess", &json!({})).await.expect("ordered");
    eventually("the dead letter is moved back", async || {
        (mailbox.held("forgotten").await.expect("counted") == 27).then_some(())
    })
    .await;
    mailbox.post("/v1/topics/forgotten/purge", &json!({})).await.expect("emptied");
    mailbox.call(Method::DELETE, "/v1/topics/forgotten", &serde_json::Value::Null).await.expect("removed");
}

#[tokio::test]
async fn amnesia_opens_nothing_for_writing_in_a_whole_life() {
    if !has_tool("strace", "amnesia_opens_nothing_for_writing_in_a_whole_life") {
        return;
    }
    let working = tempfile::tempdir().expect("a scratch folder");
    let elsewhere = tempfile::tempdir().expect("a scratch folder");
    let traced = format!("trace={TRACED}");
    let mut node = start_traced(working.path(), elsewhere.path(), &["-e", &traced]).await;

    assert_eq!(echo(node.api).await.expect("an answer").status, 200);
    let mut frames = RawSession::hello(node.oap, &node.token).await;
    let replied = Deadline::after(PATIENCE).run("reply", frames.echo(1, b"x")).await.expect("in time");
    assert_eq!(&replied.payload[..], b"x");
    use_the_mailbox(&node).await;
    for path in ["/metrics", "/topology", "/version", "/healthz", "/"] {
        assert_eq!(ask(node.admin, Method::GET, path, &[], "").await.expect("an answer").status, 200, "{path}");
    }
    std::fs::write(elsewhere.path().join("macronode.toml"), "[http]\nrequest_deadline = \"1s\"\n").expect("written");
    let reloaded = node.control("/reload").await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(node.config_version().await, 2);
    assert_eq!(node.control("/services/http/restart").await.status, 202);
    eventually("http again", async || echo(node.api).await.ok().filter(|reply| reply.status == 200)).await;
    assert_eq!(node.control("/drain").await.status, 202);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());

    let trace = std::fs::read_to_string(elsewhere.path().join("trace")).expect("a trace");
    let calls = calls(&trace);
    let reads_config = |call: &String| call.contains("macronode.toml") && call.contains("O_RDONLY");
    assert!(calls.iter().any(reads_config), "the trace sees nothing:\n{trace}");
    let guilty: Vec<&String> = calls.iter().filter(|call| leaves_a_trace(call)).collect();
    assert!(guilty.is_empty(), "{guilty:#?}");
    let left: Vec<_> = std::fs::read_dir(working.path()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!node.stderr().replacen(&node.token, "", 1).contains(&node.token), "the token is said once");
    assert!(!node.stdout().contains(&node.token));
}
