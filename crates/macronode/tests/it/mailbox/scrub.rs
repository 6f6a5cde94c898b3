//! The check of the log of a running node, from the command line.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::Value;
use testkit::Outgoing;

use crate::client;
use crate::process::{Process, run};

const MARK: &str = "the-message-that-the-disk-forgets";

/// Flips a bit in the file of the log that has this text.
fn spoil(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("there") {
        let path = entry.expect("there").path();
        let is_segment = path.extension().is_some_and(|ending| ending == "log");
        let bytes = if is_segment { std::fs::read(&path).expect("readable") } else { Vec::new() };
        if let Some(at) = bytes.windows(MARK.len()).position(|window| window == MARK.as_bytes()) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
            return file.write_all_at(&[bytes[at] ^ 0x20], at as u64).expect("written");
        }
    }
    panic!("no segment has the message");
}

#[tokio::test]
async fn a_bad_disk_is_found_while_the_node_runs() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data = folder.path().join("data");
    let node = Process::start(folder.path(), &data, &[]).await;
    let mut mailbox = client(&node).await;
    let hit = Outgoing { topic: "orders", payload: MARK.as_bytes(), ..Outgoing::default() };
    let sent = mailbox.send(hit).await.expect("sent");
    // Enough to seal the segment with the message: segments have 16 MiB.
    let large = vec![b'x'; 900_000];
    for _ in 0..20 {
        mailbox.send(Outgoing { topic: "orders", payload: &large, ..Outgoing::default() }).await.expect("sent");
    }
    let data_dir = data.display().to_string();
    let verify = ["mailbox", "verify", "--online", "--data-dir", &data_dir];
    run(folder.path(), &verify).await.expect(0, &["ok: ", "every checksum is whole"]);

    spoil(&data.join("mailbox"));
    let found = run(folder.path(), &verify).await;
    found.expect(70, &["DAMAGED", "segment 1: ", "1 record lost: orders", &sent.msg_id]);
    assert!(node.stderr().contains(&sent.msg_id), "the journal names it: {}", node.stderr());
    assert_eq!(node.metric("log_scrub_damaged_records").await, 1.0);
    assert_eq!(node.metric("log_scrub_progress").await, 1.0);
    assert!(node.metric("log_scrub_finished_seconds").await > 1.0e9);
    assert_eq!(node.metric("integrity_fail_total{reason=\"scrub\"}").await, 1.0);

    let again = run(folder.path(), &[&verify[..], &["--json"]].concat()).await;
    again.expect(70, &[]);
    let told: Value = serde_json::from_str(&again.stdout).expect("JSON");
    assert_eq!(told["last"]["damaged_records"], 1, "{told}");
    assert_eq!(told["last"]["findings"][0]["is_new"], false, "{told}");
    assert_eq!(node.metric("integrity_fail_total{reason=\"scrub\"}").await, 1.0, "it is counted once");
}
