//! One client's process: its lines are counted, its log is kept, its time is limited, its wish to kill is granted.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a client ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Checks that held.
    pub passed: u64,
    /// Names of those that did not.
    pub failed: Vec<String>,
    /// Ended by us because it took too long.
    pub timed_out: bool,
}

impl Ended {
    /// Checks ran, all held, and it ended by itself.
    pub fn is_good(&self) -> bool {
        self.code == Some(0) && self.passed > 0 && self.failed.is_empty() && !self.timed_out
    }
}

/// What a line of a client's output says to us.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Passed,
    Failed(&'a str),
    Note(&'a str),
    Kill,
    Nothing,
}

fn parse(line: &str) -> Said<'_> {
    if line == "@kill" {
        return Said::Kill;
    }
    match line.split_once(' ') {
        Some(("pass", _)) => Said::Passed,
        Some(("fail", name)) => Said::Failed(name),
        Some(("note:", note)) => Said::Note(note),
        _ => Said::Nothing,
    }
}

/// Runs it to its end or its limit; `restart` is called when it asks for the node to be killed.
pub fn run(
    mut command: Command,
    log: &Path,
    limit: Duration,
    mut restart: impl FnMut() -> Result<()>,
) -> Result<Ended> {
    std::fs::create_dir_all(log.parent().unwrap_or(log)).context("the folder of logs")?;
    File::create(log).context("a new log")?;
    let open = || File::options().append(true).open(log).context("the log");
    let mut written = open()?;
    // A group of its own, so that what it started can be ended with it.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(open()?);
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let watchdog = Watchdog::start(child.id(), limit);
    let mut ended = Ended { code: None, passed: 0, failed: Vec::new(), timed_out: false };
    let mut input = child.stdin.take().context("its input is a pipe")?;
    let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
    let mut restarted = Ok(());
    for line in output.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        writeln!(written, "{line}")?;
        match parse(&line) {
            Said::Passed => ended.passed += 1,
            Said::Failed(name) => ended.failed.push(name.to_owned()),
            Said::Note(note) => println!("  {note}"),
            Said::Kill if restarted.is_ok() => {
                restarted = restart();
                let answer = if restarted.is_ok() { "up" } else { "down" };
                // A client that has gone meanwhile tells so by its exit code.
                let _ = writeln!(input, "{answer}");
            }
            Said::Kill | Said::Nothing => {}
        }
    }
    ended.code = child.wait().context("waiting for the client")?.code();
    ended.timed_out = watchdog.stop();
    restarted.map(|()| ended)
}

/// Ends a process group that takes too long.
struct Watchdog {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Watchdog {
    fn start(pid: u32, limit: Duration) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_done);
        let thread = thread::spawn(move || {
            let mut waited = Duration::ZERO;
            while waited < limit {
                if seen.load(Ordering::Acquire) {
                    return false;
                }
                thread::sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
            if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // Gone in this very moment: as good as ended.
                let _ = kill_process_group(group, Signal::KILL);
            }
            true
        });
        Watchdog { is_done, thread }
    }

    /// Whether it had to act.
    fn stop(self) -> bool {
        self.is_done.store(true, Ordering::Release);
        self.thread.join().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Runs a script as a client; its log is removed.
    fn ended(name: &str, script: &str, limit: Duration, restart: impl FnMut() -> Result<()>) -> Ended {
        let folder = std::env::temp_dir().join(format!("xtask-job-{}-{name}", std::process::id()));
        let ended = run(shell(script), &folder.join("log"), limit, restart).expect("it runs");
        std::fs::remove_dir_all(folder).expect("cleaned up");
        ended
    }

    #[test]
    fn lines_are_understood() {
        for (line, expected) in [
            ("pass fifo 1.0s", Said::Passed),
            ("fail fifo", Said::Failed("fifo")),
            ("note: 5 kills", Said::Note("5 kills")),
            ("@kill", Said::Kill),
            ("@kill now", Said::Nothing),
            ("passed", Said::Nothing),
            ("", Said::Nothing),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn checks_are_counted_and_a_wish_to_kill_is_granted() {
        let mut kills = 0;
        let script = "echo pass one; echo @kill; read answer; echo fail $answer; exit 3";
        let ended = ended("count", script, Duration::from_secs(20), || {
            kills += 1;
            Ok(())
        });
        assert_eq!((ended.code, ended.passed, ended.timed_out, kills), (Some(3), 1, false, 1));
        assert_eq!(ended.failed, ["up"]);
        assert!(!ended.is_good());
    }

    #[test]
    fn a_client_and_its_children_are_ended_at_the_limit() {
        assert!(ended("limit", "sleep 60 & sleep 60", Duration::from_millis(200), || Ok(())).timed_out);
    }
}
