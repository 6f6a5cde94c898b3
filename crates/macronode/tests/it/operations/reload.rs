//! Reloads: a thousand of them under load, in every way a file can change, good and bad.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http::Method;
use ron_kernel::{Deadline, clock};
use rustix::process::Signal;
use testkit::frames::RawSession;
use testkit::{Load, LoadShape, own_address};

use crate::operations::echo;
use crate::process::{BINARY, Process, command, run_arguments};
use testkit::{PATIENCE_MAX as PATIENCE, ask, eventually};

const RELOADS: u64 = 1_000;

/// A configuration file that is only ever replaced whole: by a rename, or by the swap of a link above it as
/// orchestrators do with mounted files.
struct ConfigFile {
    folder: PathBuf,
    staging: PathBuf,
    versions: usize,
}

impl ConfigFile {
    fn new(scratch: &Path, text: &str) -> Self {
        let (folder, staging) = (scratch.join("live"), scratch.join("staging"));
        fs::create_dir(&folder).expect("made");
        fs::create_dir(&staging).expect("made");
        let mut file = ConfigFile { folder, staging, versions: 0 };
        file.swap_link(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.join("macronode.toml")
    }

    fn rename_into_place(&mut self, text: &str) {
        let new = self.staging.join("new.toml");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.path()).expect("renamed");
    }

    fn swap_link(&mut self, text: &str) {
        self.versions += 1;
        let (version, before) = (format!("..{}", self.versions), format!("..{}", self.versions - 1));
        fs::create_dir(self.folder.join(&version)).expect("made");
        fs::write(self.folder.join(&version).join("macronode.toml"), text).expect("written");
        self.link("..data", &version);
        if !self.path().is_symlink() {
            self.link("macronode.toml", "..data/macronode.toml");
        }
        let _ = fs::remove_dir_all(self.folder.join(before));
    }

    fn link(&self, name: &str, target: &str) {
        let new = self.staging.join("link");
        symlink(target, &new).expect("linked");
        fs::rename(new, self.folder.join(name)).expect("renamed");
    }
}

fn deadline(milliseconds: u64) -> String {
    format!("[http]\nrequest_deadline = \"{milliseconds}ms\"\n")
}

/// A configuration that must be refused, and what the refusal must name.
fn bad(number: u64) -> (&'static str, &'static str) {
    match number % 3 {
        0 => ("[http\nrequest_deadline = \"1s\"\n", "TOML"),
        1 => ("[http]\nreqest_deadline = \"1s\"\n", "http.request_deadline"),
        _ => ("[http]\nrequest_deadline = \"0s\"\n", "http.request_deadline"),
    }
}

async fn start(scratch: &Path, file: &ConfigFile, arguments: &[String]) -> Process {
    let mut prepared = command(BINARY, scratch);
    prepared.args(arguments).arg("--config").arg(file.path());
    let mut node = Process::spawn(prepared, scratch);
    node.locate(&scratch.join("data")).await;
    node.wait_ready().await;
    node
}

/// The thousand edits: their versions only rise, and what is bad is refused by name.
async fn edit_a_thousand_times(node: &Process, file: &mut ConfigFile) -> u64 {
    let (mut version, mut refused) = (1, 0);
    for number in 0..RELOADS {
        let is_bad = number % 10 == 9;
        let (text, named) = if is_bad { bad(number / 10) } else { ("", "") };
        let text = if is_bad { text.to_owned() } else { deadline(5_000 + number) };
        match number % 2 {
            0 => file.rename_into_place(&text),
            _ => file.swap_link(&text),
        }
        match number / 2 % 4 {
            0 => {
                let reply = node.control("/reload").await;
                let body = reply.json().expect("JSON");
                if is_bad {
                    refused += 1;
                    assert_eq!((reply.status, &body["code"]), (400, &"E_SCHEMA".into()), "{body}");
                    assert!(body["detail"].as_str().is_some_and(|detail| detail.contains(named)), "{body}");
                } else {
                    assert_eq!(reply.status, 200, "{number}: {body}");
                    let now = body["version"].as_u64().expect("a version");
                    assert!(now > version, "{number}: version {now} after {version}");
                    version = now;
                }
            }
            1 => node.signal(Signal::HUP),
            _ => {}
        }
        // Most edits may be seen together with later ones; some are waited for, a second each: a file must be at rest.
        if number % 45 == 5 && !is_bad && number / 2 % 4 != 0 {
            eventually("the edit", async || Some(node.config_version().await).filter(|now| *now > version)).await;
        }
        let now = node.config_version().await;
        assert!(now >= version, "{number}: version {now} after {version}");
        version = now;
    }
    refused
}

/// How long work may take now, as a caller feels it.
async fn feels_deadline(node: &Process, milliseconds: u64) -> Option<()> {
    let started = clock::now();
    let reply = ask(node.api, Method::GET, "/v1/work?ms=4000", &[], "").await.ok()?;
    let enough = Duration::from_millis(milliseconds);
    (reply.status == 504 && started.elapsed() >= enough && started.elapsed() < enough + Duration::from_secs(3))
        .then_some(())
}

#[tokio::test]
async fn a_thousand_reloads_lose_no_request() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut file = ConfigFile::new(scratch.path(), &deadline(4_999));
    let node = start(scratch.path(), &file, &run_arguments(&scratch.path().join("data"))).await;
    let load = Load::shaped(node.api, LoadShape::post(8, "/v1/echo", r#"{"message":"on and on"}"#));
    let refused = edit_a_thousand_times(&node, &mut file).await;
    let report = load.stop().await;
    assert_eq!(report.by_status.keys().collect::<Vec<_>>(), [&200], "{:?}", report.by_status);
    assert_eq!((report.broken, report.truncated, report.refused), (0, 0, 0), "broken, truncated, refused");
    assert!(report.sent > 1_000, "only {} requests: that was no load", report.sent);
    assert!(node.metric("config_reload_rejected_total").await >= refused as f64);
    assert!(refused >= 10, "{refused}");

    file.rename_into_place(&deadline(250));
    eventually("the last good value", async || feels_deadline(&node, 250).await).await;
    let (version, rejected) = (node.config_version().await, node.metric("config_reload_rejected_total").await);
    file.swap_link(bad(1).0);
    eventually("the refusal of the last edit", async || {
        let now = node.metric("config_reload_rejected_total").await;
        (now > rejected).then_some(())
    })
    .await;
    feels_deadline(&node, 250).await.expect("the last good value stays");
    assert_eq!(node.config_version().await, version);
    assert_eq!(node.metric("config_version").await, version as f64);
    assert_eq!(node.metric("service_restarts_total{service=\"http\"}").await, 0.0, "none of it needs a restart");
    assert_eq!(node.metric("service_restarts_total{service=\"config\"}").await, 0.0);
}

/// A log that is written beside the configuration, all the time.
struct Noise(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Noise {
    fn start(log: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                fs::write(&log, "a line\n").expect("written");
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Noise(stop, Some(writer))
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let ended = self.1.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the writer failed");
    }
}

#[tokio::test]
async fn a_noisy_folder_neither_hides_an_edit_nor_looks_like_a_freeze() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut file = ConfigFile::new(scratch.path(), &deadline(2_000));
    let node = start(scratch.path(), &file, &run_arguments(&scratch.path().join("data"))).await;
    let noise = Noise::start(file.folder.join("noise.log"));
    // Longer than a heartbeat, and never quiet.
    for number in 1..=8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        file.rename_into_place(&deadline(2_000 + number));
        let reply = node.control("/reload").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json().expect("JSON")["version"], 1 + number);
    }
    drop(noise);
    assert_eq!(node.metric("service_restarts_total{service=\"config\"}").await, 0.0);
}

/// A node whose public address stands in the file, and a framed connection to it that has been used.
async fn start_with_address(scratch: &Path, address: SocketAddr) -> (ConfigFile, Process, RawSession) {
    let file = ConfigFile::new(scratch, &format!("[api]\naddr = \"{address}\"\n"));
    let mut arguments = run_arguments(&scratch.join("data"));
    let api = arguments.iter().position(|argument| argument == "--api").expect("there");
    arguments.drain(api..api + 2);
    let node = start(scratch, &file, &arguments).await;
    assert_eq!(node.api, address);
    let mut frames = RawSession::hello(node.oap, &node.token).await;
    exchange_frame(&mut frames).await;
    (file, node, frames)
}

async fn exchange_frame(frames: &mut RawSession) {
    let read = Deadline::after(PATIENCE).run("reply", frames.echo(1, b"x")).await.expect("in time");
    assert_eq!(&read.payload[..], b"x");
}

#[tokio::test]
async fn a_new_address_moves_only_its_own_plane() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (old, new) = (own_address(), own_address());
    let (mut file, mut node, mut frames) = start_with_address(scratch.path(), old).await;
    assert_eq!(echo(old).await.expect("an answer").status, 200);
    file.rename_into_place(&format!("[api]\naddr = \"{new}\"\n"));
    eventually("an answer on the new address", async || echo(new).await.ok().filter(|reply| reply.status == 200)).await;
    let refused = echo(old).await;
    assert!(refused.is_err(), "the old address is closed");
    exchange_frame(&mut frames).await;
    node.locate(&scratch.path().join("data")).await;
    assert_eq!(node.api, new, "addresses.json follows");
    for service in ["oap", "workers"] {
        assert_eq!(node.metric(&format!("service_restarts_total{{service=\"{service}\"}}")).await, 0.0, "{service}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_does_not_end_the_node() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (old, taken) = (own_address(), holder.local_addr().expect("bound"));
    let (mut file, node, mut frames) = start_with_address(scratch.path(), old).await;
    file.rename_into_place(&format!("[api]\naddr = \"{taken}\"\n"));
    node.control("/reload").await;
    // Refused or failed, the operator must be able to see it and to put it right without a restart.
    eventually("a word about the taken address", async || node.stderr().contains(&taken.to_string()).then_some(()))
        .await;
    exchange_frame(&mut frames).await;
    file.rename_into_place(&format!("[api]\naddr = \"{old}\"\n"));
    node.control("/reload").await;
    eventually("an answer on the old address", async || echo(old).await.ok().filter(|reply| reply.status == 200)).await;
    exchange_frame(&mut frames).await;
}
