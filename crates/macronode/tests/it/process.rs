//! The binary as a person starts it: any arguments, any folder, and a data directory that outlives it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use http::Method;
use ron_kernel::clock;
use rustix::process::{Pid, Signal, kill_process};

use testkit::{ask, eventually};

pub const BINARY: &str = env!("CARGO_BIN_EXE_macronode");

/// The command with a clean environment in this folder.
pub fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"MACRO_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NOTIFY_SOCKET").env("NO_COLOR", "1").current_dir(folder).stdin(Stdio::null());
    command
}

/// The arguments of a run on free ports.
pub fn run_arguments(data_dir: &Path) -> Vec<String> {
    let runtime = std::env::var("MACRO_TEST_RUNTIME").unwrap_or_else(|_| "multi".to_owned());
    let mut arguments = vec!["run".to_owned(), "--dev".to_owned(), "--runtime".to_owned(), runtime];
    for plane in ["--api", "--admin", "--oap"] {
        arguments.extend([plane.to_owned(), "127.0.0.1:0".to_owned()]);
    }
    arguments.extend(["--data-dir".to_owned(), data_dir.display().to_string()]);
    arguments
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Outcome {
    /// Everything it said.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// The code it must end with, and the words it must say.
    pub fn expect(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.said());
        for word in words {
            assert!(self.said().contains(word), "{word:?} is missing in:\n{}", self.said());
        }
    }
}

/// Runs the binary to its end.
pub async fn run(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut prepared = command(BINARY, folder);
    prepared.args(arguments);
    finish(prepared).await
}

/// Runs a command to its end; one that hangs is killed and fails the test.
pub async fn finish(mut command: Command) -> Outcome {
    let started = clock::now();
    let outputs = tempfile::tempdir().expect("a scratch folder");
    let (stdout, stderr) = (outputs.path().join("stdout"), outputs.path().join("stderr"));
    command.stdout(File::create(&stdout).expect("made")).stderr(File::create(&stderr).expect("made"));
    let mut child = Owned(command.spawn().expect("the command starts"));
    let status = eventually("the end of a command", async || child.0.try_wait().expect("our child")).await;
    let text = |path: &Path| fs::read_to_string(path).expect("text");
    Outcome { code: status.code(), stdout: text(&stdout), stderr: text(&stderr), took: started.elapsed() }
}

/// A child that does not outlive its test.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            // A tracer would leave its tracee behind.
            for pid in children_of(self.0.id()) {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn children_of(pid: u32) -> Vec<Pid> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// A node whose data directory belongs to the test.
pub struct Process {
    pub api: SocketAddr,
    pub admin: SocketAddr,
    pub oap: SocketAddr,
    pub token: String,
    child: Owned,
    output: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.stderr();
            let lines: Vec<&str> = said.lines().collect();
            eprintln!("the last the node said:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}

impl Process {
    /// Starts the command; its output goes to files in this folder.
    pub fn spawn(mut command: Command, output: &Path) -> Process {
        let file = |name: &str| File::create(output.join(name)).expect("made");
        command.stdout(file("stdout.log")).stderr(file("stderr.log"));
        let child = Owned(command.spawn().expect("the command starts"));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Process { api: nowhere, admin: nowhere, oap: nowhere, token: String::new(), child, output: output.to_owned() }
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// What it has started.
    pub fn children(&self) -> Vec<Pid> {
        children_of(self.id())
    }

    /// Starts a node on free ports and waits until it is ready.
    pub async fn start(folder: &Path, data_dir: &Path, more: &[&str]) -> Process {
        let mut prepared = command(BINARY, folder);
        prepared.args(run_arguments(data_dir)).args(more);
        let mut process = Process::spawn(prepared, folder);
        process.locate(data_dir).await;
        process.wait_ready().await;
        process
    }

    /// Reads the addresses that this very process has written down.
    pub async fn locate(&mut self, data_dir: &Path) {
        let pid = self.child.0.id();
        let addresses = eventually("addresses.json and operator.token", async || {
            self.assert_running();
            let text = fs::read_to_string(data_dir.join("addresses.json")).ok()?;
            let addresses: serde_json::Value = serde_json::from_str(&text).ok()?;
            let token = fs::read_to_string(data_dir.join("operator.token")).ok()?;
            (addresses["pid"] == pid).then_some((addresses, token.trim().to_owned()))
        });
        let (addresses, token) = addresses.await;
        let plane = |name: &str| addresses[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        (self.api, self.admin, self.oap) = (plane("api"), plane("admin"), plane("oap"));
        self.token = token;
    }

    pub async fn wait_ready(&mut self) {
        let admin = self.admin;
        eventually("readiness", async || {
            self.assert_running();
            let reply = ask(admin, Method::GET, "/readyz", &[], "").await.ok()?;
            testkit::serves(&reply).then_some(())
        })
        .await;
    }

    fn assert_running(&mut self) {
        if let Ok(Some(status)) = self.child.0.try_wait() {
            panic!("the node ended: {status}\n{}", self.stderr());
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.0.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the process is ours");
    }

    pub async fn wait_exit(&mut self) -> ExitStatus {
        eventually("the end of the node", async || self.child.0.try_wait().expect("our child")).await
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(self.output.join("stdout.log")).unwrap_or_default()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.output.join("stderr.log")).unwrap_or_default()
    }

    /// A control request with the operator token.
    pub async fn control(&self, path: &str) -> testkit::Reply {
        let bearer = format!("Bearer {}", self.token);
        ask(self.admin, Method::POST, path, &[("authorization", &bearer)], "").await.expect("the admin plane answers")
    }

    /// The version of the configuration in force.
    pub async fn config_version(&self) -> u64 {
        let reply = ask(self.admin, Method::GET, "/version", &[], "").await.expect("the admin plane answers");
        reply.json().expect("JSON")["config_version"].as_u64().expect("a number")
    }

    /// The value of one series.
    pub async fn metric(&self, series: &str) -> f64 {
        let scrape = ask(self.admin, Method::GET, "/metrics", &[], "").await.expect("the admin plane answers");
        testkit::metric_in(&scrape.text(), series)
    }
}
