//! The node under the clients: started on free loopback ports, killed and started again on the same, stopped politely.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(10);
const READY_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(10);
const ASK_WITHIN: Duration = Duration::from_secs(2);
const PLANES: [&str; 3] = ["api", "admin", "oap"];

/// An access key for SQS.
pub struct Key {
    /// What a request names.
    pub id: String,
    /// What it is signed with.
    pub secret: String,
}

impl Key {
    /// For a node that checks no signature.
    pub fn any() -> Self {
        Key { id: "anybody".to_owned(), secret: "anything".to_owned() }
    }
}

/// A node process; dropping it ends the process and removes its files.
pub struct Node {
    binary: PathBuf,
    folder: PathBuf,
    unsigned: bool,
    child: Child,
    /// Where it listens, in the order of [`PLANES`].
    addresses: [SocketAddr; 3],
}

impl Node {
    /// A node with new files in this folder, on ports of its choice; ready when this returns.
    pub fn start(binary: &Path, folder: &Path, unsigned: bool) -> Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).context("the files of an earlier run")?;
        }
        std::fs::create_dir_all(folder).context("the node's folder")?;
        // A copy: a build in between must not change what is started again after a kill.
        let copy = folder.join("node");
        std::fs::copy(binary, &copy).with_context(|| binary.display().to_string())?;
        let addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); 3];
        let child = spawn(&copy, folder, unsigned, &addresses)?;
        let mut node = Node { binary: copy, folder: folder.to_owned(), unsigned, child, addresses };
        node.await_that("say where it listens", |node| node.locate())?;
        node.await_ready()?;
        Ok(node)
    }

    /// Where SQS is spoken.
    pub fn url(&self) -> String {
        format!("http://{}", self.addresses[0])
    }

    /// The program it runs.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Where it keeps its files.
    pub fn data(&self) -> PathBuf {
        data(&self.folder)
    }

    /// What it writes to its standard error.
    pub fn log(&self) -> PathBuf {
        self.folder.join("stderr.log")
    }

    /// A new access key that may do everything.
    pub fn make_key(&self) -> Result<Key> {
        let mut command = Command::new(&self.binary);
        command.args(["sqs", "key", "create", "--json", "--data-dir"]).arg(self.data());
        let output = command.current_dir(&self.folder).output().context("macronode sqs key create")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "macronode sqs key create: {} {said}", output.status);
        let key: serde_json::Value = serde_json::from_slice(&output.stdout).context("the new key as JSON")?;
        let text = |name: &str| key[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in the key"));
        Ok(Key { id: text("access_key_id")?, secret: text("secret_access_key")? })
    }

    /// SIGKILL, then the same node again: same files, same ports.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.child.kill().context("killing the node")?;
        self.child.wait().context("the killed node")?;
        self.child = spawn(&self.binary, &self.folder, self.unsigned, &self.addresses)?;
        self.await_ready()
    }

    /// SIGTERM; it must end by itself with 0.
    pub fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the node had ended before its time: {status}");
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("the node's pid")?;
        kill_process(pid, Signal::TERM).context("SIGTERM to the node")?;
        let mut waited = Duration::ZERO;
        while waited < STOP_WITHIN {
            if let Some(status) = self.child.try_wait()? {
                return ended_well(status);
            }
            thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
        bail!("the node did not stop within {} s of SIGTERM", STOP_WITHIN.as_secs())
    }

    fn await_ready(&mut self) -> Result<()> {
        self.await_that("become ready", |node| is_ready(node.addresses[1]))
    }

    fn await_that(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let mut waited = Duration::ZERO;
        while !is_so(self) {
            let log = self.log();
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                bail!("the node ended ({status}) and did not {what}:\n{}", said());
            }
            ensure!(waited < READY_WITHIN, "the node did not {what} in time:\n{}", said());
            thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
        Ok(())
    }

    fn locate(&mut self) -> bool {
        let text = std::fs::read(self.data().join("addresses.json")).unwrap_or_default();
        let Ok(known) = serde_json::from_slice::<serde_json::Value>(&text) else { return false };
        for (address, plane) in self.addresses.iter_mut().zip(PLANES) {
            match known[plane].as_str().and_then(|text| text.parse().ok()) {
                Some(found) => *address = found,
                None => return false,
            }
        }
        true
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Ended already, most likely; its files are of use to nobody but its log, which was shown if it mattered.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn spawn(binary: &Path, folder: &Path, unsigned: bool, addresses: &[SocketAddr; 3]) -> Result<Child> {
    let mut command = Command::new(binary);
    command.arg("run").arg("--data-dir").arg(data(folder)).current_dir(folder).stdin(Stdio::null());
    for (plane, address) in PLANES.iter().zip(addresses) {
        command.arg(format!("--{plane}")).arg(address.to_string());
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"MACRO_")) {
        command.env_remove(name);
    }
    // The page of payees is tried with policies that nobody signed.
    command.env("MACRO_REWARDER__UNSIGNED_POLICIES", "true");
    if unsigned {
        command.env("MACRO_AUTH__SQS", "off");
    }
    let appended = |name: &str| File::options().create(true).append(true).open(folder.join(name));
    command.stdout(appended("stdout.log")?).stderr(appended("stderr.log")?).env("NO_COLOR", "1");
    command.spawn().with_context(|| format!("starting {}", binary.display()))
}

fn ended_well(status: ExitStatus) -> Result<()> {
    ensure!(status.success(), "the node stopped with {status}");
    Ok(())
}

/// Whether the node is ready and every service of it serves: clients try all of them, and the planes are ready before.
fn is_ready(admin: SocketAddr) -> bool {
    let ask = || -> Result<bool> {
        let mut stream = TcpStream::connect_timeout(&admin, ASK_WITHIN)?;
        stream.set_read_timeout(Some(ASK_WITHIN))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(serves_all(&answer))
    };
    ask().unwrap_or(false)
}

fn serves_all(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let serve = |services: &Vec<serde_json::Value>| services.iter().all(|service| service["serving"] == true);
    head.starts_with("HTTP/1.1 200") && body["services"].as_array().is_some_and(serve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_for_clients_once_all_of_its_services_serve() {
        let answer = |status: u16, serving: bool| {
            format!("HTTP/1.1 {status} x\r\n\r\n{{\"services\":[{{\"serving\":true}},{{\"serving\":{serving}}}]}}")
        };
        assert!(serves_all(&answer(200, true)));
        assert!(!serves_all(&answer(200, false)) && !serves_all(&answer(503, true)) && !serves_all("HTTP/1.1 200"));
    }
}
