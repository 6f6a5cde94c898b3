//! Lives after lives: killed and started again, and told to a service manager.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;
use testkit::bound;

use crate::operations::echo;
use crate::process::{BINARY, Process, command, run, run_arguments};
use testkit::PATIENCE_MAX as PATIENCE;

#[tokio::test]
async fn a_killed_node_starts_again_with_the_same_token() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let data_dir = folder.path().join("data");
    let mut tokens = Vec::new();
    for end in [Signal::KILL, Signal::TERM, Signal::KILL, Signal::INT] {
        let mut node = Process::start(folder.path(), &data_dir, &[]).await;
        assert_eq!(echo(node.api).await.expect("an answer").status, 200);
        for private in ["operator.token", "addresses.json"] {
            let mode = std::fs::metadata(data_dir.join(private)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{private}");
        }
        tokens.push(node.token.clone());
        node.signal(end);
        let expected = if end == Signal::KILL { None } else { Some(0) };
        assert_eq!(node.wait_exit().await.code(), expected, "{}", node.stderr());
    }
    assert_eq!(tokens[0].len(), 64);
    assert!(tokens.iter().all(|token| *token == tokens[0]), "the token is kept");
    let left: Vec<_> = std::fs::read_dir(&data_dir).expect("there").filter_map(Result::ok).collect();
    let unfinished = left.iter().filter(|file| file.file_name().to_string_lossy().ends_with(".new")).count();
    assert_eq!(unfinished, 0, "{left:?}");
}

#[tokio::test]
async fn a_node_that_was_held_still_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let node = Process::start(folder.path(), &folder.path().join("data"), &[]).await;
    node.signal(Signal::STOP);
    // Longer than any heartbeat: a debugger, a paused container or the snapshot of a machine takes such time.
    tokio::time::sleep(Duration::from_secs(6)).await;
    node.signal(Signal::CONT);
    assert_eq!(echo(node.api).await.expect("an answer").status, 200);
    // The supervisor judges at one of its next turns.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for service in ["http", "oap", "workers", "observe", "config"] {
        let restarts = node.metric(&format!("service_restarts_total{{service=\"{service}\"}}")).await;
        assert_eq!(restarts, 0.0, "{service} was not frozen on its own");
    }
    assert_eq!(echo(node.api).await.expect("an answer").status, 200);
}

#[tokio::test]
async fn a_damaged_token_stops_the_start_and_names_the_file() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    std::fs::create_dir(folder.path().join("data")).expect("made");
    std::fs::write(folder.path().join("data/operator.token"), "short").expect("written");
    let arguments = run_arguments(&folder.path().join("data"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(folder.path(), &arguments).await.expect(70, &["MN0018", "operator.token"]);
}

/// What a service manager hears.
struct Manager(UnixDatagram);

impl Manager {
    /// Waits for a message with this line; returns everything heard until then.
    fn hear(&self, line: &str) -> Vec<String> {
        let mut heard = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let received = self.0.recv(&mut buffer);
            let length = received.unwrap_or_else(|error| panic!("no {line} ({error}); heard {heard:?}"));
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let last = message.lines().any(|said| said == line);
            heard.push(message);
            if last {
                return heard;
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_hears_every_turn_of_a_life() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).expect("a socket"));
    manager.0.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut prepared = command(BINARY, folder.path());
    prepared.args(run_arguments(&folder.path().join("data")));
    prepared.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "1000000");
    let mut node = Process::spawn(prepared, folder.path());

    manager.hear("READY=1");
    node.locate(&folder.path().join("data")).await;
    assert_eq!(echo(node.api).await.expect("an answer").status, 200, "ready means ready");
    let fed = async || {
        let started = ron_kernel::clock::now();
        for _ in 0..3 {
            manager.hear("WATCHDOG=1");
        }
        let took = started.elapsed();
        bound(took < Duration::from_secs(4), || format!("three times the watchdog's interval took {took:?}"))
    };
    crate::alone().await.measure("the watchdog", fed).await;

    node.signal(Signal::HUP);
    let heard = manager.hear("RELOADING=1");
    let reloading = heard.last().expect("heard");
    assert!(reloading.contains("MONOTONIC_USEC="), "a reload says when: {reloading:?}");
    manager.hear("READY=1");

    node.signal(Signal::TERM);
    manager.hear("STOPPING=1");
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());
}
