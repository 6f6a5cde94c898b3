//! Nodes that `macronode cluster dev` runs, for suites that need a whole cluster.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{BINARY, command};
use testkit::eventually;

/// A cluster that does not outlive its test.
pub struct Cluster {
    pub child: Child,
    /// What the command says of each node.
    pub nodes: Vec<Value>,
    stderr: std::path::PathBuf,
}

impl Cluster {
    /// Starts so many nodes and waits until they are joined.
    pub async fn start(folder: &Path, count: usize) -> Cluster {
        let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
        let mut prepared = command(BINARY, folder);
        let dir = folder.join("nodes").display().to_string();
        prepared.args(["cluster", "dev", &count.to_string(), "--json", "--dir", &dir]).stdin(Stdio::null());
        prepared.stdout(File::create(&stdout).expect("made")).stderr(File::create(&stderr).expect("made"));
        let child = prepared.spawn().expect("the command starts");
        let mut cluster = Cluster { child, nodes: Vec::new(), stderr };
        cluster.nodes = eventually("the nodes", async || {
            let ended = cluster.child.try_wait().expect("our child");
            assert!(ended.is_none(), "it ended: {ended:?} {}", cluster.said());
            let text = fs::read_to_string(&stdout).unwrap_or_default();
            let line = text.lines().next().filter(|_| text.ends_with('\n'))?;
            let object: Value = serde_json::from_str(line).expect("one JSON object");
            Some(object["nodes"].as_array().expect("a list").clone())
        })
        .await;
        cluster
    }

    /// What the command has complained of.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Sends the command a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process is ours");
    }

    /// Processes of the nodes.
    pub fn pids(&self) -> Vec<Pid> {
        let pid = |node: &Value| Pid::from_raw(i32::try_from(node["pid"].as_i64()?).ok()?);
        self.nodes.iter().map(|node| pid(node).expect("a process id")).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // Its nodes are children of this very child, so that their numbers are still theirs.
            for pid in self.pids() {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A field of a node.
pub fn text<'a>(node: &'a Value, name: &str) -> &'a str {
    node[name].as_str().unwrap_or_else(|| panic!("{name} in {node}"))
}
