//! A disk that is used up, full or broken: sends are refused in time, acknowledgements are not, and nothing is lost.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use testkit::{MailboxClient, MailboxError, Outgoing, Take};

use crate::process::{BINARY, Outcome, Process, command, finish, run_arguments};
use crate::{client, options};
use testkit::eventually;

const KIB: usize = 1024;
const TAKE: Take = Take { max: 100, visibility_ms: 60_000, wait_ms: 0 };

/// Sends large messages until one is refused; the ids of those taken in, and the refusal.
async fn fill(client: &mut MailboxClient, topic: &str) -> (BTreeSet<String>, MailboxError) {
    let payload = vec![b'z'; 64 * KIB];
    let mut ids = BTreeSet::new();
    loop {
        match client.send(Outgoing { topic, payload: &payload, ..Outgoing::default() }).await {
            Ok(sent) => assert!(ids.insert(sent.msg_id), "ids are new"),
            Err(error) => return (ids, error),
        }
        assert!(ids.len() < 10_000, "the disk never fills");
    }
}

/// Receives everything and acknowledges it; the ids.
async fn take_out(client: &mut MailboxClient, topic: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    loop {
        let messages = client.recv(topic, TAKE).await.expect("receives go on");
        if messages.is_empty() {
            return ids;
        }
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        let accepted = client.ack(&receipts).await.expect("acknowledgements go on");
        assert!(accepted.into_iter().all(|accepted| accepted), "acknowledgements are always accepted");
        ids.extend(messages.into_iter().map(|message| message.msg_id));
    }
}

fn assert_full(error: &MailboxError) {
    let MailboxError::Refused(reply) = error else { panic!("{error}") };
    assert_eq!(reply.status, 429, "{}", reply.text());
    assert!(!reply.header("retry-after").is_empty(), "it says when to come back: {:?}", reply.headers);
    assert!(reply.text().contains("acknowledge"), "it says what would help: {}", reply.text());
}

/// A send is accepted again before long.
async fn accepts_again(client: &mut MailboxClient, topic: &str) -> String {
    let payload = vec![b'a'; 64 * KIB];
    eventually("a send is accepted again", async || {
        match client.send(Outgoing { topic, payload: &payload, ..Outgoing::default() }).await {
            Ok(sent) => Some(sent.msg_id),
            Err(error) => {
                assert_eq!(error.status(), Some(429), "{error}");
                None
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_used_up_quota_refuses_sends_and_never_acknowledgements() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let config = folder.path().join("macronode.toml");
    std::fs::write(&config, "[mailbox]\nsegment_bytes = \"2MiB\"\ndisk_bytes_max = \"16MiB\"\n").expect("written");
    let more = ["--config", config.to_str().expect("text")];
    let mut node = Process::start(folder.path(), &data, &more).await;
    let mut mailbox = client(&node).await;
    for round in 0..2 {
        let (sent, refusal) = fill(&mut mailbox, "t").await;
        assert_full(&refusal);
        assert!(sent.len() * 64 * KIB > 8 * KIB * KIB, "round {round}: {} messages were taken in", sent.len());
        assert!(used_bytes(&data.join("mailbox")) <= 20 * KIB as u64 * KIB as u64, "the quota holds, one file ahead");
        if round == 1 {
            // Full is no reason not to come back from a kill.
            node.signal(Signal::KILL);
            node.wait_exit().await;
            node = Process::start(folder.path(), &data, &more).await;
            mailbox = client(&node).await;
        }
        let taken = take_out(&mut mailbox, "t").await;
        assert_eq!(taken, sent, "round {round}: what was acknowledged comes out");
        accepts_again(&mut mailbox, "t").await;
        assert_eq!(take_out(&mut mailbox, "t").await.len(), 1);
        // A send is accepted from the first file on that is given back; the next round is to find all of the room.
        eventually("everything that is done with is given back", async || {
            let left = node.metric("log_bytes{kind=\"total\"}").await;
            (left <= 4.0 * (KIB * KIB) as f64).then_some(())
        })
        .await;
    }
    assert_eq!(node.metric("log_failed").await, 0.0);
}

/// Consumers that fail again and again write records, too; they may not use up the room of those who acknowledge.
#[tokio::test]
async fn failing_consumers_do_not_use_up_the_room_for_acknowledgements() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let config = folder.path().join("macronode.toml");
    std::fs::write(&config, "[mailbox]\nsegment_bytes = \"2MiB\"\ndisk_bytes_max = \"16MiB\"\n").expect("written");
    let more = ["--config", config.to_str().expect("text")];
    let node = Process::start(folder.path(), &data, &more).await;
    let mut mailbox = client(&node).await;
    mailbox.topic("failing", &serde_json::json!({ "max_attempts": 0 })).await.expect("made");
    for _ in 0..100 {
        mailbox.send(Outgoing { topic: "failing", payload: b"small", ..Outgoing::default() }).await.expect("sent");
    }
    let (sent, refusal) = fill(&mut mailbox, "t").await;
    assert_full(&refusal);
    let reason = "this message cannot be worked on, and will not be tomorrow; ".repeat(8);
    for _ in 0..120 {
        // They may be refused, but those who acknowledge may not.
        let Ok(messages) = mailbox.recv("failing", TAKE).await else { break };
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        if !receipts.is_empty() {
            mailbox.nack(&receipts, &reason, Some(0)).await.expect("answered");
        }
    }
    assert_eq!(take_out(&mut mailbox, "t").await, sent);
}

fn used_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("the log's folder").filter_map(Result::ok);
    let sizes: Vec<u64> = files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).collect();
    assert!(!sizes.is_empty(), "{} has files", folder.display());
    sizes.iter().sum()
}

/// The command run so that a write past a limit is an error rather than the end of the process.
fn with_errors_for_limits(folder: &Path, data: &Path) -> Command {
    let mut shell = command("sh", folder);
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", BINARY]).args(run_arguments(data));
    shell
}

#[tokio::test]
async fn a_failing_write_stops_acknowledging_ends_the_process_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let mut node = Process::spawn(with_errors_for_limits(folder.path(), &data), folder.path());
    node.locate(&data).await;
    node.wait_ready().await;
    let mut mailbox = client(&node).await;
    let payload = vec![b'w'; 4 * KIB];
    let mut sent = BTreeSet::new();
    for _ in 0..100 {
        let message = Outgoing { topic: "t", payload: &payload, ..Outgoing::default() };
        sent.insert(mailbox.send(message).await.expect("sent").msg_id);
    }
    // From here on no file can be written past its first 128 KiB, and the log is past that.
    let text = std::fs::read_to_string(data.join("addresses.json")).expect("there");
    let addresses: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let pid = addresses["pid"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("a process");
    let limit = Some(128 * KIB as u64);
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: limit, maximum: limit }).expect("the process is ours");
    for _ in 0..20 {
        match mailbox.send(Outgoing { topic: "t", payload: &payload, ..Outgoing::default() }).await {
            Ok(sent) => panic!("{sent:?} was acknowledged and cannot be safe"),
            Err(MailboxError::Refused(reply)) => assert_eq!(reply.status, 503, "{}", reply.text()),
            Err(MailboxError::Call(_)) => break,
        }
    }
    let status = node.wait_exit().await;
    let said = node.stderr();
    assert_eq!(status.code(), Some(70), "{said}");
    let log = data.join("mailbox").display().to_string();
    let words = ["the log has failed", "File too large", "nothing more is acknowledged", log.as_str()];
    let told = said.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(told, "{words:?} are to be said in one line of:\n{said}");

    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    let taken = take_out(&mut mailbox, "t").await;
    let lost: Vec<&String> = sent.difference(&taken).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(accepts_again(&mut mailbox, "t").await.len() > 10);
}

/// A small file system of its own; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None, said loudly, where this user may not mount.
    fn mount(folder: &Path, size: &str, test: &str) -> Option<SmallDisk> {
        let path = folder.join("disk");
        std::fs::create_dir(&path).expect("made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(&path).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(SmallDisk(path));
        }
        eprintln!("SKIP SKIP SKIP {test}: a small file system cannot be mounted by this user");
        None
    }

    fn remount(&self, option: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{option}")]).arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "remounted");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a node that is still being killed may have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The flags of a node whose log has small files.
fn small_segments(folder: &Path) -> [String; 2] {
    let config = folder.join("macronode.toml");
    // The mailbox alone: the logs of other services would take most of the small disk.
    let text = "services = [\"http\", \"oap\", \"mailbox\"]\n[mailbox]\nsegment_bytes = \"2MiB\"\n";
    std::fs::write(&config, text).expect("written");
    ["--config".to_owned(), config.to_str().expect("text").to_owned()]
}

#[tokio::test]
async fn a_full_disk_refuses_sends_lets_acknowledgements_pass_and_recovers() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let test = "a_full_disk_refuses_sends_lets_acknowledgements_pass_and_recovers";
    let Some(disk) = SmallDisk::mount(folder.path(), "size=24m", test) else { return };
    let data = disk.0.join("data");
    let more = small_segments(folder.path());
    let more = more.each_ref().map(String::as_str);
    let mut node = Process::start(folder.path(), &data, &more).await;
    let mut mailbox = client(&node).await;
    let (sent, refusal) = fill(&mut mailbox, "t").await;
    assert_full(&refusal);
    assert!(sent.len() > 100, "{} messages were taken in", sent.len());
    let taken = take_out(&mut mailbox, "t").await;
    assert_eq!(taken, sent, "what was acknowledged comes out of a full disk");
    accepts_again(&mut mailbox, "t").await;
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());
}

#[tokio::test]
async fn a_read_only_disk_is_named_at_the_start_and_costs_nothing() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let test = "a_read_only_disk_is_named_at_the_start_and_costs_nothing";
    let Some(disk) = SmallDisk::mount(folder.path(), "size=24m", test) else { return };
    let data = disk.0.join("data");
    let more = small_segments(folder.path());
    let more = more.each_ref().map(String::as_str);
    let mut node = Process::start(folder.path(), &data, &more).await;
    let mut mailbox = client(&node).await;
    mailbox.send(Outgoing { topic: "t", payload: b"kept", ..Outgoing::default() }).await.expect("sent");
    node.signal(Signal::TERM);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());

    disk.remount("ro");
    let mut refused = command(BINARY, folder.path());
    refused.args(run_arguments(&data)).args(more);
    let outcome: Outcome = finish(refused).await;
    let log = data.join("mailbox").display().to_string();
    outcome.expect(70, &[&log, "Read-only file system"]);
    disk.remount("rw");
    let node = Process::start(folder.path(), &data, &more).await;
    let mut mailbox = client(&node).await;
    assert_eq!(take_out(&mut mailbox, "t").await.len(), 1, "the message is still there");
}

/// The way of ADR 17: on a node with one client the record is synced by the caller, and the log's thread sleeps.
#[tokio::test]
async fn a_lone_senders_record_is_synced_without_the_logs_thread() {
    let node = options().runtime("multi").start().await.expect("started");
    let mut mailbox = MailboxClient::of(&node).await.expect("connected");
    // A sync that took long is followed by one of the log's thread; then the next eight have to be alone again.
    eventually("a record that its caller synced", async || {
        for _ in 0..16 {
            let message = Outgoing { topic: "lone", payload: b"x", ..Outgoing::default() };
            mailbox.send(message).await.expect("sent");
        }
        (node.metric("log_caller_syncs_total").await > 0.0).then_some(())
    })
    .await;
    assert!(node.metric("log_syncs_total").await > node.metric("log_caller_syncs_total").await);
}
