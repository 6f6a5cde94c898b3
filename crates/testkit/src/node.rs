//! A running scratch node: its addresses, its planes, its signals, its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http::Method;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::client::{Client, Reply};
use crate::options::NodeOptions;

/// Interval at which something outside this process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// One of the node's two HTTP planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// The public plane.
    Api,
    /// The operator's plane.
    Admin,
}

/// Signal that a node can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGINT.
    Int,
    /// SIGHUP.
    Hup,
    /// SIGKILL.
    Kill,
}

/// One node process. Dropping it kills the process and removes its directory.
pub struct Node {
    /// The public HTTP plane; port 0 where the node does not have it.
    pub api: SocketAddr,
    /// The admin plane.
    pub admin: SocketAddr,
    /// The framed plane; port 0 where the node does not have it.
    pub oap: SocketAddr,
    /// The operator token.
    pub token: String,
    /// The scratch directory.
    pub dir: TempDir,
    /// The process.
    pub pid: u32,
    child: Child,
    exit: Option<ExitStatus>,
    amnesia: bool,
}

/// Addresses and token of a starting node.
struct Located {
    api: SocketAddr,
    admin: SocketAddr,
    oap: SocketAddr,
    token: String,
}

impl Node {
    /// How to start the binary at this path; tests pass `env!("CARGO_BIN_EXE_macronode")`.
    pub fn options_for(binary: impl Into<PathBuf>) -> NodeOptions {
        NodeOptions::new(binary.into())
    }

    pub(crate) fn new(child: Child, dir: TempDir, amnesia: bool) -> Self {
        let pid = child.id();
        let token = String::new();
        Node { api: NOWHERE, admin: NOWHERE, oap: NOWHERE, token, dir, pid, child, exit: None, amnesia }
    }

    /// Data directory of the node.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("macronode-data")
    }

    /// Waits until the node has said where it listens and what its token is.
    pub async fn locate(&mut self, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        let located = loop {
            if let Some(located) = self.located() {
                break located;
            }
            self.still_waiting("say where it listens", end).await?;
        };
        (self.api, self.admin, self.oap, self.token) = (located.api, located.admin, located.oap, located.token);
        Ok(())
    }

    /// Waits until /readyz answers 200 and every service serves, required or not; locates the node first.
    pub async fn wait_ready(&mut self, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        self.locate(within).await?;
        while !self.get(Plane::Admin, "/readyz").await.is_ok_and(|reply| serves(&reply)) {
            self.still_waiting("become ready", end).await?;
        }
        Ok(())
    }

    async fn still_waiting(&mut self, to: &str, end: Instant) -> anyhow::Result<()> {
        if let Some(status) = self.poll_exit()? {
            bail!("the node ended ({status}) and did not {to}:\n{}", self.stderr());
        }
        if Instant::now() >= end {
            bail!("the node did not {to} in time:\n{}", self.stderr());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }

    fn located(&self) -> Option<Located> {
        if self.amnesia { located_by_banner(&self.stdout(), &self.stderr()) } else { self.located_by_files() }
    }

    fn located_by_files(&self) -> Option<Located> {
        let data = self.data_dir();
        let token = std::fs::read_to_string(data.join("operator.token")).ok()?.trim().to_owned();
        let text = std::fs::read_to_string(data.join("addresses.json")).ok()?;
        let addresses: serde_json::Value = serde_json::from_str(&text).ok()?;
        let plane = |name: &str| addresses[name].as_str().and_then(|address| address.parse().ok());
        Some(Located {
            admin: plane("admin")?,
            api: plane("api").unwrap_or(NOWHERE),
            oap: plane("oap").unwrap_or(NOWHERE),
            token,
        })
    }

    /// Sends a signal; does nothing once the node's end has been seen.
    pub fn signal(&self, signal: Signal) {
        use rustix::process::Signal as Number;
        let number = match signal {
            Signal::Term => Number::TERM,
            Signal::Int => Number::INT,
            Signal::Hup => Number::HUP,
            Signal::Kill => Number::KILL,
        };
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let (None, Some(pid)) = (self.exit, pid) {
            // A process that has just ended is still ours to reap, so the number cannot mean another one.
            let _ = rustix::process::kill_process(pid, number);
        }
    }

    /// The exit status, if the node has ended.
    pub fn poll_exit(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait()?;
        }
        Ok(self.exit)
    }

    /// Waits for the node to end.
    pub async fn wait_exit(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let end = Instant::now() + within;
        loop {
            if let Some(status) = self.poll_exit()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!("the node did not end within {within:?}:\n{}", self.stderr());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Text on stderr so far; all of it once the node has ended.
    pub fn stderr(&self) -> String {
        said(&self.dir.path().join("stderr.log"))
    }

    /// Text on stdout so far; all of it once the node has ended.
    pub fn stdout(&self) -> String {
        said(&self.dir.path().join("stdout.log"))
    }

    /// The address of a plane.
    pub fn address(&self, plane: Plane) -> SocketAddr {
        match plane {
            Plane::Api => self.api,
            Plane::Admin => self.admin,
        }
    }

    /// GET on a new connection.
    pub async fn get(&self, plane: Plane, path: &str) -> anyhow::Result<Reply> {
        let mut client = Client::connect(self.address(plane)).await?;
        Ok(client.request(Method::GET, path, &[], Bytes::new()).await?)
    }

    /// POST on a new connection; on the admin plane with the operator token unless the headers bring another.
    pub async fn post(
        &self,
        plane: Plane,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Reply> {
        let bearer = format!("Bearer {}", self.token);
        let mut headers = headers.to_vec();
        if plane == Plane::Admin && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            headers.push(("authorization", &bearer));
        }
        let mut client = Client::connect(self.address(plane)).await?;
        Ok(client.request(Method::POST, path, &headers, body).await?)
    }

    /// The value of one series, written exactly as in the scrape; 0 if it is not there. Panics if nobody answers.
    pub async fn metric(&self, series: &str) -> f64 {
        let scrape = self.get(Plane::Admin, "/metrics").await.expect("the admin plane answers");
        metric_in(&scrape.text(), series)
    }

    /// What `/readyz` has for the operator, one sentence on each line. Panics if nobody answers.
    pub async fn notes(&self) -> String {
        let ready = self.get(Plane::Admin, "/readyz").await.expect("the admin plane answers");
        notes_in(&ready.json().expect("JSON"))
    }

    /// Resident memory of the process in bytes.
    pub fn rss_bytes(&self) -> u64 {
        rss_bytes(self.pid)
    }
}

/// Resident memory of a process in bytes.
pub fn rss_bytes(pid: impl std::fmt::Display) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// Resident memory of a process in bytes without pages of files, which come and go whatever the process does.
pub fn anonymous_bytes(pid: impl std::fmt::Display) -> u64 {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: impl std::fmt::Display, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.exit.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether an answer of `/readyz` says that the node is ready and every service of it serves.
pub fn serves(ready: &Reply) -> bool {
    let services = ready.json().ok().and_then(|body| body["services"].as_array().cloned()).unwrap_or_default();
    ready.status == 200 && services.iter().all(|service| service["serving"] == true)
}

/// The sentences for the operator in an answer of `/readyz`, one on each line.
pub fn notes_in(readiness: &serde_json::Value) -> String {
    let notes = readiness["notes"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
    notes.collect::<Vec<_>>().join("\n")
}

/// The value of one series in a scrape, written exactly as there; 0 if it is not there.
pub fn metric_in(scrape: &str, series: &str) -> f64 {
    let value = scrape.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

fn said(file: &Path) -> String {
    std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// In amnesia mode there are no files: the addresses stand on stdout, the token on stderr.
fn located_by_banner(stdout: &str, stderr: &str) -> Option<Located> {
    // The last line of the banner: everything before it has been printed.
    stdout.contains("Ctrl-C").then_some(())?;
    let plane = |name: &str| {
        let line = stdout.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().rsplit('/').next()?.parse().ok()
    };
    let token = stderr.lines().find_map(|line| line.strip_prefix("operator token")?.rsplit(' ').next())?;
    Some(Located {
        admin: plane("admin")?,
        api: plane("api").unwrap_or(NOWHERE),
        oap: plane("oap").unwrap_or(NOWHERE),
        token: token.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_by_its_exact_text() {
        let scrape = "# TYPE x counter\nx_total{queue=\"work\"} 3\nx_total{queue=\"work2\"} 4\ny 0.5\n";
        assert_eq!(metric_in(scrape, "x_total{queue=\"work\"}"), 3.0);
        assert_eq!(metric_in(scrape, "y"), 0.5);
        assert_eq!(metric_in(scrape, "x_total"), 0.0);
    }

    #[test]
    fn the_banner_tells_where_a_forgetful_node_listens() {
        let stdout =
            "macronode 0.1.0\n  admin  http://127.0.0.1:2\n  api    http://127.0.0.1:1\n  oap    127.0.0.1:3\n";
        let stderr = "operator token (amnesia: shown once, kept nowhere): abc123\n";
        assert!(located_by_banner(stdout, stderr).is_none(), "the banner is not complete");
        let complete = format!("{stdout}Ctrl-C drains\n");
        let located = located_by_banner(&complete, stderr).expect("complete");
        assert_eq!((located.api.port(), located.admin.port(), located.oap.port()), (1, 2, 3));
        assert_eq!(located.token, "abc123");
    }
}
