//! A node whose disk is full for a while: it answers, refuses what it cannot keep, and takes it when there is room.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use serde_json::json;

use crate::index::node::{ABC_B3, SERVICES, open, provide_abc, resolve};
use crate::member::Member;
use testkit::eventually;

/// Publications that are tried until the disk is full: the file has room for some of them.
const TRIES: usize = 5_000;

/// A small file system; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounted at this folder; nothing where that is not possible.
    fn at(folder: &Path) -> Option<SmallDisk> {
        fs::create_dir_all(folder).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| SmallDisk(folder.to_owned()))
    }

    /// Takes all room there is; the file that has it.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = fs::File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a node that is still being killed may have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Has the node say that it has some content; the status of its answer.
async fn publish(node: &Member, number: usize) -> u16 {
    let addrs = [format!("/dns4/{}.example.org/tcp/4001", "a".repeat(60))];
    node.ask(Method::POST, &format!("/providers/b3:{number:064x}"), &json!({ "addrs": addrs })).await.status
}

#[tokio::test]
async fn a_node_whose_disk_was_full_answers_meanwhile_and_keeps_records_again_afterwards() {
    let mut node = Member::running(SERVICES);
    let Some(disk) = SmallDisk::at(&node.data_dir().join("index")) else {
        eprintln!("SKIP SKIP SKIP a_node_whose_disk_was_full…: a small file system cannot be mounted by this user");
        return;
    };
    node.start().await;
    let bearer = node.bearer();
    let put =
        open(&node, Method::PUT, &format!("/manifests/{ABC_B3}"), &[("authorization", bearer.as_str())], "abc").await;
    assert_eq!(put.status, 200, "{}", put.text());
    provide_abc(&node).await;
    let ballast = disk.fill();
    let mut published = 0;
    while published < TRIES && publish(&node, published).await == 200 {
        published += 1;
    }
    assert!(published < TRIES, "the disk is full");
    // What was kept before is there, read from the file and not from memory.
    assert_eq!(resolve(&node, &format!("{ABC_B3}?fresh=true")).await["outcome"], "found");
    assert_eq!(open(&node, Method::GET, &format!("/manifests/{ABC_B3}"), &[], "").await.text(), "abc");
    fs::remove_file(ballast).expect("removed");
    eventually("a record is kept again", async || (publish(&node, published).await == 200).then_some(())).await;
    // After a restart all is there that was ever confirmed.
    node.end(rustix::process::Signal::KILL).await;
    node.start().await;
    for number in [0, published] {
        assert_eq!(resolve(&node, &format!("b3:{number:064x}")).await["outcome"], "found", "{number}");
    }
    assert_eq!(open(&node, Method::GET, &format!("/manifests/{ABC_B3}"), &[], "").await.text(), "abc");
}
