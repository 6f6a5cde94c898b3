//! Servers of others as child processes: ended by their own number, whatever happens to this one.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use ron_kernel::{Deadline, clock};
use rustix::process::{Pid, Signal, kill_process};

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time between the signal that asks for an end and the kill.
const POLITE: Duration = Duration::from_secs(5);

/// One server. Dropping it ends the process.
pub struct Running {
    child: Child,
    name: String,
    log: PathBuf,
    ending: Signal,
}

/// Description of a process to start.
pub struct Start<'a> {
    /// Name for messages and the log file.
    pub name: &'a str,
    /// Path of the program.
    pub program: &'a Path,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Environment variables beside those of this process.
    pub variables: Vec<(String, String)>,
    /// The user to be; none is the present one.
    pub user: Option<&'a str>,
    /// Working directory, in which the output is kept as well.
    pub folder: &'a Path,
    /// Signal that asks the process to end.
    pub ending: Signal,
}

impl Start<'_> {
    /// Starts it. `setpriv` ties its life to ours, so that it does not outlive a bench that was killed.
    pub fn spawn(&self) -> anyhow::Result<Running> {
        let log = self.folder.join(format!("{}.log", self.name));
        let mut command = Command::new("setpriv");
        if let Some(user) = self.user {
            // Changing the user forgets the tie, so it is made after it.
            command.args(["--reuid", user, "--regid", user, "--init-groups", "--", "setpriv"]);
        }
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(self.program)
            .args(&self.arguments)
            .envs(self.variables.iter().cloned());
        command.current_dir(self.folder).stdin(Stdio::null());
        // Both append, so that neither writes over the other.
        File::create(&log)?;
        let appending = || File::options().append(true).open(&log);
        command.stdout(appending()?).stderr(appending()?);
        let child = command.spawn().with_context(|| format!("{} cannot be started", self.name))?;
        Ok(Running { child, name: self.name.to_owned(), log, ending: self.ending })
    }
}

impl Running {
    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Output of the process so far.
    pub fn said(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until something is true; fails when the process ends before, or when it takes too long.
    pub async fn until(&mut self, what: &str, within: Duration, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
        let deadline = Deadline::after(within);
        while !done() {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("{} ended ({status}) instead of {what}: {}", self.name, last_lines(&self.said()));
            }
            anyhow::ensure!(!deadline.has_passed(), "{} was not {what} within {within:?}", self.name);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Waits until it accepts connections.
    pub async fn until_listening(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        self.until("listening", Duration::from_secs(60), || std::net::TcpStream::connect(address).is_ok()).await
    }

    /// Ends it with a signal and waits; how long that took.
    pub fn end(mut self, signal: Signal, within: Duration) -> anyhow::Result<Duration> {
        let began = clock::now();
        self.signal(signal);
        anyhow::ensure!(self.has_ended(within), "{} did not end within {within:?}", self.name);
        Ok(began.elapsed())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Not reaped yet, so the number is still its own.
            let _ = kill_process(pid, signal);
        }
    }

    fn has_ended(&mut self, within: Duration) -> bool {
        let deadline = Deadline::after(within);
        loop {
            match self.child.try_wait() {
                Ok(None) if !deadline.has_passed() => std::thread::sleep(LOOK_EVERY),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(self.ending);
        if !self.has_ended(POLITE) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(folder: &Path, arguments: &[&str]) -> anyhow::Result<Running> {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (program, variables) = (Path::new("/bin/sh"), Vec::new());
        Start { name: "child", program, arguments, variables, user: None, folder, ending: Signal::TERM }.spawn()
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = start(folder.path(), &["-c", "trap '' TERM; exec sleep 60"]).expect("sh");
        let process = PathBuf::from(format!("/proc/{}", running.pid()));
        assert!(process.exists());
        running.end(Signal::KILL, POLITE).expect("nobody survives that");
        assert!(!process.exists());
        let running = start(folder.path(), &["-c", "exec sleep 60"]).expect("sh");
        let process = PathBuf::from(format!("/proc/{}", running.pid()));
        drop(running);
        assert!(!process.exists());
    }

    #[tokio::test]
    async fn a_child_that_ends_early_is_quoted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut running = start(folder.path(), &["-c", "echo started; echo no such option >&2; exit 3"]).expect("sh");
        let error = running.until("listening", POLITE, || false).await.expect_err("it ended");
        assert!(error.to_string().contains("started / no such option"), "{error}");
    }

    #[test]
    fn only_the_last_lines_are_quoted() {
        assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n"), "2 / 3 / 4 / 5 / 6");
        assert_eq!(last_lines(""), "");
    }
}
