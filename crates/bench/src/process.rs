//! The processes a run starts beside itself: servers of this binary, where the node's binary is, when it is ready.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// A server of this binary in its own process. Dropping it ends the process.
pub struct Server {
    /// Address the process listens on.
    pub address: SocketAddr,
    child: Child,
    /// The server leaves when this closes, so that it never outlives a run that was killed.
    _leash: Option<ChildStdin>,
}

impl Server {
    /// Starts this binary with a hidden subcommand that prints its port.
    pub fn start(subcommand: &str) -> anyhow::Result<Server> {
        Server::start_with(subcommand, &[])
    }

    /// The same with arguments.
    pub fn start_with(subcommand: &str, arguments: &[&str]) -> anyhow::Result<Server> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(subcommand)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{subcommand} cannot be started"))?;
        let (leash, stdout) = (child.stdin.take(), child.stdout.take());
        let mut server = Server { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), child, _leash: leash };
        let mut line = String::new();
        BufReader::new(stdout.context("stdout is a pipe")?).read_line(&mut line)?;
        let port = line.trim().parse().with_context(|| format!("{subcommand} said {line:?} instead of its port"))?;
        server.address.set_port(port);
        Ok(server)
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a measurement until it is done or interrupted; either way it is dropped, and with it every process it started.
pub fn run_until_interrupted<T>(measuring: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = Box::pin(measuring) => outcome,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminated.recv() => anyhow::bail!("terminated"),
        }
    })
}

/// The node's binary of the same build, beside this one.
pub fn node_binary() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let binary = own.with_file_name("macronode");
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    anyhow::ensure!(binary.is_file(), "there is no macronode beside this binary; cargo build{release} -p macronode");
    Ok(binary)
}

/// A port that was free a moment ago, for a server that must be told its port before it starts.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Whether the node with this admin plane takes work, and each of its services does.
pub fn is_ready(admin: SocketAddr) -> bool {
    let all_serve = |answer: String| answer.starts_with("HTTP/1.1 200") && !answer.contains("\"serving\":false");
    ask_readiness(admin).is_ok_and(all_serve)
}

fn ask_readiness(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Time the threads a process has now were on a core.
pub fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between being listed and being read.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        nanos += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_a_core() {
        assert!(cpu_time(std::process::id()).expect("our own numbers") > Duration::ZERO);
        assert!(cpu_time(u32::MAX).is_err());
    }
}
