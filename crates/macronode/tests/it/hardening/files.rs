//! The log's files: few descriptors, lost or cut segments, unknown versions, one owner, failed syncs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use ron_log::{Class, Disk, DiskFile, Durability, Log, LogError, LogOptions, RealDisk, SimDisk};
use tempfile::TempDir;
use testkit::{MailboxClient, Node, NodeOptions, Outgoing, PATIENCE_MAX, Signal, Take, eventually, soak};

const BINARY: &str = env!("CARGO_BIN_EXE_macronode");

/// Segments of the log that must be recovered with 64 descriptors.
const SEGMENTS: u32 = 4096;

/// A place for data directories that outlive their nodes, and for the scripts that start nodes on them.
struct Shared(TempDir);

impl Shared {
    fn new() -> Shared {
        let folder = tempfile::tempdir().expect("a scratch folder");
        fs::create_dir(folder.path().join("data")).expect("made");
        Shared(folder)
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.data().join("mailbox")
    }

    /// A node on the shared directory, started by a script that first does what these lines say.
    fn node(&self, lines: &str) -> NodeOptions {
        let data = self.data();
        self.script(&format!("ln -s {} macronode-data\n{lines}", data.display()))
    }

    /// A node on a directory of its own, started by such a script.
    fn script(&self, lines: &str) -> NodeOptions {
        let path = self.0.path().join("start.sh");
        fs::write(&path, format!("#!/bin/sh\nset -e\n{lines}\nexec {BINARY} \"$@\"\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        // The mailbox alone: what these tests bound is its files, and every service has its own.
        Node::options_for(path).arg("--services").arg("http,oap,mailbox")
    }

    /// One life of a node on the shared directory, ended by SIGTERM.
    async fn life(&self, sent: &[Vec<u8>]) {
        let mut node = self.node("").start().await.expect("ready");
        let mut client = MailboxClient::of(&node).await.expect("connected");
        for payload in sent {
            client.send(Outgoing { topic: "kept", payload, ..Outgoing::default() }).await.expect("sent");
        }
        node.signal(Signal::Term);
        assert!(node.wait_exit(PATIENCE_MAX).await.expect("ended").success(), "{}", node.stderr());
        self.forget_addresses();
    }

    /// A start that must be refused: what the node said.
    async fn refused(&self) -> String {
        let mut node = self.node("").spawn().expect("started");
        let status = node.wait_exit(PATIENCE_MAX).await.expect("ended");
        assert!(!status.success(), "{}", node.stderr());
        self.forget_addresses();
        node.stderr()
    }

    /// The next node is found by its own addresses.
    fn forget_addresses(&self) {
        fs::remove_file(self.data().join("addresses.json")).expect("written by every node");
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.log()).expect("there").map(|entry| entry.expect("there"));
        entries.map(|entry| (name_of(&entry), fs::read(entry.path()).expect("readable"))).collect()
    }

    /// Segments that hold records, oldest first.
    fn segments(&self) -> Vec<String> {
        let is_written = |bytes: &[u8]| bytes[128..].iter().any(|byte| *byte != 0);
        let files = self.files().into_iter().filter(|(name, bytes)| name.ends_with(".log") && is_written(bytes));
        files.map(|(name, _)| name).collect()
    }
}

fn name_of(entry: &fs::DirEntry) -> String {
    entry.file_name().into_string().expect("a name of ours")
}

/// Messages of a megabyte each, every one another.
fn megabytes(count: u8) -> Vec<Vec<u8>> {
    (1..=count).map(|number| vec![number; 1 << 20]).collect()
}

fn command(arguments: &[&str], data: &Path) -> Output {
    Command::new(BINARY).args(arguments).arg("--data-dir").arg(data).output().expect("it runs")
}

/// Receives and acknowledges until the topic is empty. Messages whose bodies are lost go to the dead letters meanwhile.
async fn consume(client: &mut MailboxClient, topic: &str) -> Vec<Vec<u8>> {
    let mut taken = Vec::new();
    eventually("the topic is empty", async || {
        let take = Take { max: 10, visibility_ms: 60_000, wait_ms: 100 };
        let messages = client.recv(topic, take).await.expect("received");
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        if !receipts.is_empty() {
            assert!(client.ack(&receipts).await.expect("answered").iter().all(|ok| *ok));
        }
        taken.extend(messages.into_iter().map(|message| message.payload));
        (client.held(topic).await.expect("counted") == 0).then_some(())
    })
    .await;
    taken
}

/// The real directory without its syncs, which would take minutes for thousands of segments.
struct Unsynced(RealDisk);

struct UnsyncedFile(Arc<dyn DiskFile>);

impl Disk for Unsynced {
    fn durability(&self) -> Durability {
        self.0.durability()
    }
    fn secret(&self) -> u32 {
        self.0.secret()
    }
    fn claim(&self) -> bool {
        self.0.claim()
    }
    fn unclaim(&self) {
        self.0.unclaim();
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(UnsyncedFile(self.0.create(name)?)))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(UnsyncedFile(self.0.open(name)?)))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for UnsyncedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a node's log, and gives it with the heads of its records that have no body.
fn open_log(folder: &Path, segment_bytes: u32) -> (Log, Vec<Vec<u8>>) {
    let disk: Arc<dyn Disk> = Arc::new(Unsynced(RealDisk::open(folder).expect("free")));
    let mut heads = Vec::new();
    let (log, _) = Log::open(disk, LogOptions { segment_bytes, ..LogOptions::default() }, &mut |replayed, _| {
        if replayed.body_len == 0 {
            heads.push(replayed.head.to_vec());
        }
    })
    .expect("whole");
    (log, heads)
}

#[tokio::test]
async fn rule_05_thousands_of_segments_are_recovered_with_64_descriptors() {
    let shared = Shared::new();
    let sent = vec![b"one".to_vec(), b"two".to_vec()];
    shared.life(&sent).await;
    let wanted = if soak() { SEGMENTS } else { SEGMENTS / 4 };
    let (log, heads) = open_log(&shared.log(), 1024);
    // The record of the topic: saying it again changes nothing.
    let topic = heads.iter().find(|head| head.windows(4).any(|part| part == b"kept")).expect("the topic's record");
    while log.usage().segments < wanted {
        log.appender().append(Class::Settle, topic, &[]).expect("room");
        log.flush().expect("written");
    }
    drop(log);
    let node = shared.node("ulimit -n 64").start().await.expect("ready");
    let mut client = MailboxClient::of(&node).await.expect("connected");
    assert_eq!(consume(&mut client, "kept").await, sent);
}

#[tokio::test]
async fn rule_05_the_soft_limit_is_raised_to_the_hard_one() {
    let shared = Shared::new();
    let node = shared.script("ulimit -Sn 100\nulimit -Hn 512").start().await.expect("ready");
    let limits = fs::read_to_string(format!("/proc/{}/limits", node.pid)).expect("readable");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("there");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3..5], ["512", "512"], "{line}");
    assert!(node.stderr().contains("the soft limit was raised"), "{}", node.stderr());
}

#[tokio::test]
async fn rule_05_doctor_knows_about_segments() {
    let shared = Shared::new();
    shared.life(&megabytes(20)).await;
    let said = |text: &[u8]| -> serde_json::Value {
        let report: serde_json::Value = serde_json::from_slice(text).expect("JSON");
        let findings = report["findings"].as_array().expect("a list");
        findings.iter().find(|finding| finding["what"] == "log").expect("a line about the log").clone()
    };
    let free = ["doctor", "--json", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--oap", "127.0.0.1:0"];
    let whole = said(&command(&free, &shared.data()).stdout);
    assert_eq!(whole["level"], "ok", "{whole}");
    assert!(whole["finding"].as_str().expect("a text").starts_with("3 segments, 48 MiB; "), "{whole}");
    fs::remove_file(shared.log().join(&shared.segments()[0])).expect("removed");
    let lost = said(&command(&free, &shared.data()).stdout);
    assert_eq!(lost["level"], "warn", "{lost}");
    assert!(lost["finding"].as_str().expect("a text").contains("missing: [1]"), "{lost}");
}

#[tokio::test]
async fn rule_04_a_flood_of_connections_leaves_the_log_its_descriptors() {
    let shared = Shared::new();
    let config = "[connections]\nper_ip_max = 4000\naccepts_per_ip_per_second = 1000000\n";
    let mut node = shared.script("ulimit -n 96").config(config).start().await.expect("ready");
    let mut client = MailboxClient::of(&node).await.expect("connected");
    client.topic("kept", &serde_json::json!({})).await.expect("made");
    let flood: Vec<TcpStream> = [node.api, node.oap, node.admin]
        .into_iter()
        .flat_map(|plane| (0..120).filter_map(move |_| TcpStream::connect(plane).ok()))
        .collect();
    assert!(flood.len() > 200, "{} of 360 connections", flood.len());
    // Three segments: each needs a descriptor of its own, and its sidecar another.
    for payload in megabytes(34) {
        client.send(Outgoing { topic: "kept", payload: &payload, ..Outgoing::default() }).await.expect("sent");
        let taken = consume_one(&mut client).await;
        assert_eq!(taken, payload);
    }
    assert!(node.poll_exit().expect("a child").is_none(), "{}", node.stderr());
    drop(flood);
    let scrape = eventually("the operator gets in again", async || {
        node.get(testkit::Plane::Admin, "/metrics").await.ok().filter(|reply| reply.status == 200)
    });
    let scrape = scrape.await.text();
    assert_eq!(testkit::metric_in(&scrape, "log_failed"), 0.0);
    assert!(testkit::metric_in(&scrape, "log_records_total") >= 68.0);
}

async fn consume_one(client: &mut MailboxClient) -> Vec<u8> {
    let take = Take { max: 1, visibility_ms: 60_000, wait_ms: 5_000 };
    let messages = client.recv("kept", take).await.expect("received");
    assert_eq!(client.ack(&[messages[0].receipt.as_str()]).await.expect("answered"), [true]);
    messages[0].payload.clone()
}

#[tokio::test]
async fn rule_18_a_lost_segment_is_told_and_the_rest_is_served() {
    let shared = Shared::new();
    let sent = megabytes(40);
    shared.life(&sent).await;
    let segments = shared.segments();
    assert!(segments.len() >= 3, "{segments:?}");
    let whole = command(&["mailbox", "verify"], &shared.data());
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stdout));
    // The oldest: no hole in the numbers shows that it was there.
    fs::remove_file(shared.log().join(&segments[0])).expect("removed");
    let told = command(&["mailbox", "verify"], &shared.data());
    assert!(!told.status.success() && String::from_utf8_lossy(&told.stdout).contains("segment 1 missing"));
    let node = shared.node("").start().await.expect("ready");
    assert_eq!(node.metric("log_files_lost{kind=\"missing\"}").await, 1.0);
    assert!(node.stderr().contains("a segment of the log is lost"), "{}", node.stderr());
    assert!(node.notes().await.contains("1 files missing"), "{}", node.notes().await);
    let mut client = MailboxClient::of(&node).await.expect("connected");
    let left = consume(&mut client, "kept").await;
    assert!(left.len() > 15 && left.len() < sent.len(), "{} messages are left", left.len());
    assert!(left.iter().all(|payload| sent.contains(payload)));
}

#[tokio::test]
async fn rule_18_lost_ends_and_cut_files_are_told() {
    let shared = Shared::new();
    shared.life(&megabytes(20)).await;
    let segments = shared.segments();
    let (first, last) = (shared.log().join(&segments[0]), shared.log().join(&segments[segments.len() - 1]));
    fs::File::options().write(true).open(&first).and_then(|file| file.set_len(9 << 20)).expect("cut");
    fs::remove_file(&last).expect("removed");
    let told = command(&["mailbox", "verify"], &shared.data());
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(!told.status.success() && text.contains("the file was cut by") && text.contains("missing"), "{text}");
    let node = shared.node("").start().await.expect("ready");
    assert_eq!(node.metric("log_files_lost{kind=\"missing\"}").await, 1.0);
    assert_eq!(node.metric("log_files_lost{kind=\"cut\"}").await, 1.0);
    assert!(node.metric("integrity_fail_total{reason=\"recovery\"}").await >= 1.0);
}

#[tokio::test]
async fn rule_18_an_empty_mount_is_not_taken_for_a_new_log() {
    let shared = Shared::new();
    shared.life(&[b"kept".to_vec()]).await;
    for (name, _) in shared.files().iter().filter(|(name, _)| !name.starts_with("manifest")) {
        fs::remove_file(shared.log().join(name)).expect("removed");
    }
    let said = shared.refused().await;
    assert!(said.contains("none is there") && said.contains("restore them"), "{said}");
}

#[tokio::test]
async fn rule_19_another_version_of_a_segment_is_refused_and_not_touched() {
    let shared = Shared::new();
    shared.life(&[b"kept".to_vec()]).await;
    let path = shared.log().join(&shared.segments()[0]);
    let good = fs::read(&path).expect("readable");
    let mut newer = good.clone();
    (newer[8], newer[72]) = (2, 2);
    fs::write(&path, &newer).expect("written");
    let before = shared.files();
    let said = shared.refused().await;
    assert!(said.contains("start the version that wrote it"), "{said}");
    assert!(shared.files() == before, "nothing was mended, cut or removed");
    let verified = command(&["mailbox", "verify"], &shared.data());
    assert!(String::from_utf8_lossy(&verified.stderr).contains("start the version that wrote it"));
    fs::write(&path, good).expect("restored");
    let node = shared.node("").start().await.expect("ready");
    let mut client = MailboxClient::of(&node).await.expect("connected");
    assert_eq!(consume(&mut client, "kept").await, [b"kept"]);
}

#[tokio::test]
async fn rule_19_a_record_that_cannot_be_decoded_is_refused_and_kept() {
    let shared = Shared::new();
    shared.life(&[b"kept".to_vec()]).await;
    let (log, _) = open_log(&shared.log(), 1 << 20);
    log.appender().append(Class::Data, &[250, 1, 2, 3], b"of a newer version").expect("room");
    log.seal().expect("written");
    drop(log);
    let said = shared.refused().await;
    assert!(said.contains("1 of the log's records") && said.contains("start the version that wrote it"), "{said}");
    let (_, heads) = open_log(&shared.log(), 1 << 20);
    assert!(!heads.is_empty());
    let all = shared.files();
    let is_kept = |bytes: &Vec<u8>| bytes.windows(18).any(|part| part == b"of a newer version");
    assert!(all.values().any(is_kept), "its bytes are still there");
}

#[tokio::test]
async fn rule_22_of_two_nodes_started_at_once_one_has_the_directory() {
    for _ in 0..if soak() { 20 } else { 3 } {
        let shared = Shared::new();
        let mut nodes = [shared.node("").spawn().expect("started"), shared.node("").spawn().expect("started")];
        let loser = eventually("one leaves", async || {
            nodes.iter_mut().position(|node| node.poll_exit().expect("a child").is_some())
        });
        let loser = loser.await;
        let said = nodes[loser].stderr();
        assert!(said.contains("another node") && said.contains("has it"), "{said}");
        let winner = &mut nodes[1 - loser];
        winner.wait_ready(PATIENCE_MAX).await.expect("ready");
        // Token and addresses in the directory are the winner's: the other wrote nothing.
        let mut client = MailboxClient::of(winner).await.expect("connected");
        client.send(Outgoing { topic: "t", payload: b"x", ..Outgoing::default() }).await.expect("sent");
        let addresses = fs::read_to_string(shared.data().join("addresses.json")).expect("written");
        assert!(addresses.contains(&winner.pid.to_string()), "{addresses}");
    }
}

/// System calls of a node's start until it is ready, with the paths of descriptors.
async fn traced_start(parent: &Path) -> Option<Vec<String>> {
    if Command::new("strace").arg("--version").output().is_err() {
        eprintln!("SKIP SKIP SKIP the order of system calls: strace is not installed");
        return None;
    }
    let trace = parent.join("trace");
    let script = parent.join("start.sh");
    let calls = "trace=flock,openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2,fsync,fdatasync";
    let strace = format!("exec strace -f -y --seccomp-bpf -s 300 -e {calls} -o {} {BINARY} \"$@\"", trace.display());
    fs::write(&script, format!("#!/bin/sh\n{strace}\n")).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut node = Node::options_for(script).start().await.expect("ready");
    // The traced process is a child of the tracer: the operator ends it.
    node.post(testkit::Plane::Admin, "/drain", "", &[]).await.expect("ordered");
    node.wait_exit(PATIENCE_MAX).await.expect("ended");
    let text = fs::read_to_string(trace).expect("written");
    Some(text.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn rule_22_the_directory_is_locked_before_anything_in_it_is_written() {
    let parent = tempfile::tempdir().expect("a scratch folder");
    let Some(calls) = traced_start(parent.path()).await else { return };
    let locked = calls.iter().position(|call| call.contains("flock(") && call.contains("macronode-data>"));
    let inside = |call: &&String| call.contains("macronode-data/");
    let writes = |call: &&String| call.contains("O_CREAT") || call.contains("O_WRONLY") || call.contains("O_RDWR");
    let written = calls.iter().position(|call| inside(&call) && (writes(&call) || call.contains("mkdir")));
    assert!(locked.is_some() && locked < written, "locked at {locked:?}, written at {written:?}");
}

#[tokio::test]
async fn rule_25_the_data_directory_is_private_and_its_entry_is_synced() {
    let parent = tempfile::tempdir().expect("a scratch folder");
    let node = crate::options().start().await.expect("ready");
    assert_eq!(fs::metadata(node.data_dir()).expect("there").mode() & 0o777, 0o700);
    drop(node);
    let Some(calls) = traced_start(parent.path()).await else { return };
    let is_made = |call: &String| call.contains("mkdir") && call.contains("macronode-data\"");
    let made = calls.iter().position(is_made).expect("made");
    let scratch = calls[made].split('"').nth(1).and_then(|path| path.strip_suffix("/macronode-data")).expect("a path");
    let synced = calls[made..].iter().any(|call| call.contains("sync(") && call.contains(&format!("<{scratch}>)")));
    assert!(synced, "the entry of the directory in {scratch}");
}

#[test]
fn rule_23_what_a_failed_sync_left_in_memory_is_written_again_before_it_is_trusted() {
    let options =
        || LogOptions { segment_bytes: 4096, quota_bytes: 1 << 20, reserve_bytes: 64 << 10, ..LogOptions::default() };
    let open = |disk: &SimDisk| -> Result<(Log, Vec<u64>), LogError> {
        let mut found = Vec::new();
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let (log, recovery) = Log::open(disk, options(), &mut |replayed, _| found.push(replayed.lsn.0))?;
        assert!(!recovery.has_losses(), "{recovery:?}");
        Ok((log, found))
    };
    let disk = SimDisk::new(5);
    let (log, _) = open(&disk).expect("empty");
    for _ in 0..7 {
        log.appender().append(Class::Data, b"head", &[7; 900]).expect("room");
        log.flush().expect("durable");
    }
    log.appender().append(Class::Data, b"head", &[8; 900]).expect("room");
    disk.fail_sync(disk.syncs());
    log.flush().expect_err("the sync fails");
    drop(log);
    // The process starts again and sees the eighth record, in the memory of the machine only.
    let restarted = disk.restart();
    let (log, found) = open(&restarted).expect("recovered");
    assert_eq!((found.len(), log.durable().0), (8, 8), "it counts as durable from now on");
    drop(log);
    for survival in 0..20 {
        let (_, found) = open(&restarted.crash(survival)).expect("recovered");
        assert_eq!(found.len(), 8, "survival {survival}");
    }
}
