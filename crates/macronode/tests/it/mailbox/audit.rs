//! The audit of system calls: no answer to a send leaves before the fdatasync that covers its record has returned.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use testkit::{MailboxClient, Outgoing};
use tokio::task::JoinSet;

use crate::process::{BINARY, Process, command, run_arguments};
use testkit::eventually;

const TRACED: &str = "trace=fdatasync,fsync,write,writev,sendto,sendmsg,pwrite64,pwritev,pwritev2";
const CLIENTS: usize = 4;
const SENDS_EACH: usize = 40;

/// A message as its sender knows it: bytes that only its record holds, and words that only its answer holds.
#[derive(Clone, Debug)]
struct Answered {
    marker: String,
    msg_id: String,
}

/// One system call: lines of the trace at which it began and ended, what it was given, what came of it.
#[derive(Debug)]
struct SystemCall<'a> {
    name: &'a str,
    given: &'a str,
    began: usize,
    ended: usize,
    result: &'a str,
}

impl SystemCall<'_> {
    fn file(&self) -> &str {
        self.given.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default()
    }

    fn succeeded(&self) -> bool {
        !self.result.starts_with('-') && !self.result.is_empty()
    }
}

/// The calls of a trace in the order in which they began; those interrupted by another thread's are put together.
fn system_calls(trace: &str) -> Vec<SystemCall<'_>> {
    let mut open: HashMap<&str, SystemCall<'_>> = HashMap::new();
    let mut calls = Vec::new();
    for (line_number, line) in trace.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            if let Some(mut call) = open.remove(pid) {
                call.ended = line_number;
                call.result = result_of(resumed);
                calls.push(call);
            }
            continue;
        }
        let Some((name, given)) = rest.split_once('(') else { continue };
        let call = SystemCall { name, given, began: line_number, ended: line_number, result: result_of(given) };
        match rest.ends_with("<unfinished ...>") {
            true => drop(open.insert(pid, SystemCall { ended: usize::MAX, result: "", ..call })),
            false => calls.push(call),
        }
    }
    calls.extend(open.into_values());
    calls.sort_by_key(|call| call.began);
    calls
}

fn result_of(line: &str) -> &str {
    line.rsplit_once(" = ").map_or("", |(_, result)| result.trim())
}

/// When each message's record was safe and when its answer left, or what is wrong about it.
fn audit(trace: &str, answered: &[Answered]) -> Vec<String> {
    let calls = system_calls(trace);
    let is_write = |call: &&SystemCall<'_>| call.name.starts_with("pwrite");
    let mut syncs: BTreeMap<&str, Vec<&SystemCall<'_>>> = BTreeMap::new();
    for sync in calls.iter().filter(|call| matches!(call.name, "fdatasync" | "fsync") && call.succeeded()) {
        syncs.entry(sync.file()).or_default().push(sync);
    }
    let mut wrong = Vec::new();
    for message in answered {
        let Answered { marker, msg_id } = message;
        let Some(write) = calls.iter().filter(is_write).find(|call| call.given.contains(marker.as_str())) else {
            wrong.push(format!("{marker}: its record was never written"));
            continue;
        };
        // A sync covers what was written before it began.
        let mut later = syncs.get(write.file()).into_iter().flatten();
        let Some(sync) = later.find(|sync| sync.began > write.ended) else {
            wrong.push(format!("{marker}: written in line {} and never synced", write.began));
            continue;
        };
        let answers = ["write", "writev", "sendto", "sendmsg"];
        let is_answer = |call: &&SystemCall<'_>| {
            answers.contains(&call.name) && call.given.contains("HTTP/1.1 200") && call.given.contains(msg_id.as_str())
        };
        match calls.iter().find(is_answer) {
            None => wrong.push(format!("{marker}: its answer with {msg_id} is not in the trace")),
            Some(answer) if answer.began <= sync.ended => wrong.push(format!(
                "{marker}: answered in line {}, but its sync (line {}) returned in line {}",
                answer.began, sync.began, sync.ended
            )),
            Some(_) => {}
        }
    }
    wrong
}

#[test]
fn an_answer_before_its_sync_is_found() {
    let answered = [Answered { marker: "mark-1.".to_owned(), msg_id: "ID1".to_owned() }];
    let write = "7 pwrite64(9, \"\\0\\1mark-1.xyz\", 14, 4096) = 14";
    let sync = "7 fdatasync(9)              = 0";
    let answer =
        "8 sendto(11, \"HTTP/1.1 200 OK\\r\\n\\r\\n{\\\"msg_id\\\":\\\"ID1\\\"}\", 40, MSG_NOSIGNAL, NULL, 0) = 40";
    let split = |lines: &[&str]| lines.join("\n");
    let good = [
        split(&[write, sync, answer]),
        split(&[
            "7 pwrite64(9, \"mark-1.\"..., 14, 4096 <unfinished ...>",
            "8 write(5, \"wake\", 4) = 4",
            "7 <... pwrite64 resumed>)      = 14",
            "7 fdatasync(9 <unfinished ...>",
            "8 sendto(12, \"HTTP/1.1 200 OK other\", 40, 0, NULL, 0) = 40",
            "7 <... fdatasync resumed>)     = 0",
            answer,
        ]),
    ];
    for trace in good {
        assert_eq!(audit(&trace, &answered), Vec::<String>::new(), "{trace}");
    }
    let unfinished = "7 fdatasync(9 <unfinished ...>";
    let resumed = "7 <... fdatasync resumed>)     = 0";
    for (trace, what) in [
        (split(&[write, answer, sync]), "answered in line 1"),
        (split(&[answer, write, sync]), "answered in line 0"),
        (split(&[write, unfinished, answer, resumed]), "returned in line 3"),
        // A sync that began before the write had ended does not cover it.
        (split(&[unfinished, write, resumed, answer]), "never synced"),
        (split(&[sync, write, answer]), "never synced"),
        (split(&[write, "7 fdatasync(8) = 0", answer]), "never synced"),
        (split(&[write, "7 fdatasync(9) = -1 EIO (Input/output error)", answer]), "never synced"),
        (split(&[write, unfinished, answer]), "never synced"),
        (split(&[sync, answer]), "never written"),
        (split(&[write, sync]), "not in the trace"),
    ] {
        let wrong = audit(&trace, &answered);
        assert!(wrong.len() == 1 && wrong[0].contains(what), "{wrong:?} should say {what:?} of\n{trace}");
    }
}

async fn start_traced(folder: &Path, data: &Path, trace: &Path) -> Process {
    let config = folder.join("macronode.toml");
    std::fs::write(&config, "[mailbox]\nsegment_bytes = \"2MiB\"\n").expect("written");
    let mut traced = command("strace", folder);
    traced.args(["-f", "--seccomp-bpf", "-s", "65536", "-e", TRACED, "-o"]).arg(trace).arg(BINARY);
    traced.args(run_arguments(data)).arg("--config").arg(&config);
    let mut node = Process::spawn(traced, folder);
    let (addresses, token) = eventually("addresses.json and operator.token", async || {
        let text = std::fs::read_to_string(data.join("addresses.json")).ok()?;
        let addresses: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some((addresses, std::fs::read_to_string(data.join("operator.token")).ok()?))
    })
    .await;
    let plane = |name: &str| addresses[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
    (node.api, node.admin, node.token) = (plane("api"), plane("admin"), token.trim().to_owned());
    node.wait_ready().await;
    node
}

async fn send_some(node: &Process, client_number: usize) -> Vec<Answered> {
    let mut client = MailboxClient::connect(node.api, &node.token).await.expect("connected");
    let mut answered = Vec::new();
    for number in 0..SENDS_EACH {
        let marker = format!("marker-{client_number}-{number}.");
        let payload = format!("{marker}{}", "y".repeat(200));
        let sent = client.send(Outgoing { topic: "audited", payload: payload.as_bytes(), ..Outgoing::default() });
        let sent = sent.await.expect("sent");
        assert_eq!(sent.durability, "fsynced");
        answered.push(Answered { marker, msg_id: sent.msg_id });
    }
    answered
}

#[tokio::test]
async fn no_send_is_answered_before_its_record_is_synced() {
    if std::process::Command::new("strace").arg("--version").output().is_err() {
        eprintln!("SKIP SKIP SKIP no_send_is_answered_before_its_record_is_synced: strace is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let trace = folder.path().join("trace");
    let node = std::sync::Arc::new(start_traced(folder.path(), &folder.path().join("data"), &trace).await);
    // One after the other first, then several whose records share a sync.
    let mut answered = send_some(&node, 0).await;
    let mut together = JoinSet::new();
    for number in 1..=CLIENTS {
        let node = std::sync::Arc::clone(&node);
        together.spawn(async move { send_some(&node, number).await });
    }
    answered.extend(together.join_all().await.into_iter().flatten());
    let mut node = std::sync::Arc::into_inner(node).expect("nobody sends any more");
    assert_eq!(node.control("/drain").await.status, 202);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());

    let trace = std::fs::read_to_string(&trace).expect("a trace");
    let wrong = audit(&trace, &answered);
    let syncs = trace.lines().filter(|line| line.contains("fdatasync(")).count();
    println!("audit: {} answers, {syncs} syncs, {} wrong", answered.len(), wrong.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(answered.len(), SENDS_EACH * (CLIENTS + 1));
}
