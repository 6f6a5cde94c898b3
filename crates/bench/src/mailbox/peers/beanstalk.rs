//! beanstalkd over its own text protocol: put, reserve, delete, one connection for each task.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::{Buf as _, BytesMut};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::install::{of_debian, on_path, version};
use crate::mailbox::cell::Payload;
use crate::mailbox::child::{Running, Start};
use crate::mailbox::drive::Client;
use crate::mailbox::target::{Id, Promise, System, Target};
use crate::process::free_address;

const LINE_BYTES_MAX: usize = 224;

/// A new server for each cell: it cannot empty a queue but job by job.
struct Beanstalk {
    program: PathBuf,
    folder: PathBuf,
    arguments: &'static [&'static str],
    running: Option<(Running, SocketAddr)>,
}

struct BeanstalkClient {
    stream: TcpStream,
    buffer: BytesMut,
    put: Arc<[u8]>,
}

/// Both settings of beanstalkd, as two systems.
pub async fn start(folder: PathBuf) -> anyhow::Result<Vec<System>> {
    let program = of_debian("beanstalkd", || on_path("beanstalkd"))?;
    let name = format!("beanstalkd {}", version(&program, "-v"));
    let server =
        |name, arguments| Beanstalk { program: program.clone(), folder: folder.join(name), arguments, running: None };
    let mut always = server("always", &["-f0"]);
    always.prepare().await?;
    always.finish().await?;
    Ok(vec![
        System::new(Id::BeanstalkAlways, name.as_str(), "-b, -f0", Promise::Synced, always),
        System::new(
            Id::BeanstalkDefault,
            name.as_str(),
            "-b (sync every 50 ms)",
            Promise::Written,
            server("default", &[]),
        ),
    ])
}

impl Target for Beanstalk {
    type Client = BeanstalkClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        fs::create_dir_all(self.folder.join("log"))?;
        let address = free_address()?;
        let mut arguments: Vec<String> = self.arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let log = self.folder.join("log").display().to_string();
        arguments.extend(["-l".to_owned(), ip, "-p".to_owned(), port, "-b".to_owned(), log]);
        let mut running = Start {
            name: "beanstalkd",
            program: &self.program,
            arguments,
            variables: Vec::new(),
            user: None,
            folder: &self.folder,
            ending: Signal::KILL,
        }
        .spawn()?;
        running.until_listening(address).await?;
        self.running = Some((running, address));
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<BeanstalkClient>> {
        let (_, address) = self.running.as_ref().context("prepared before")?;
        let mut put = format!("put 0 0 120 {}\r\n", payload.bytes.len()).into_bytes();
        put.extend_from_slice(&payload.bytes);
        put.extend_from_slice(b"\r\n");
        let put: Arc<[u8]> = Arc::from(put);
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            clients.push(BeanstalkClient { stream, buffer: BytesMut::new(), put: Arc::clone(&put) });
        }
        Ok(clients)
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        self.running = None;
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl BeanstalkClient {
    /// Reads one line, without its end.
    async fn line(&mut self) -> anyhow::Result<String> {
        loop {
            if let Some(line) = take_line(&mut self.buffer)? {
                return Ok(line);
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await?;
        anyhow::ensure!(read > 0, "beanstalkd closed the connection");
        Ok(())
    }

    async fn skip(&mut self, bytes: usize) -> anyhow::Result<()> {
        while self.buffer.len() < bytes {
            self.more().await?;
        }
        self.buffer.advance(bytes);
        Ok(())
    }
}

impl Client for BeanstalkClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.put).await?;
        let answer = self.line().await?;
        anyhow::ensure!(answer.starts_with("INSERTED "), "{answer}");
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(b"reserve\r\n").await?;
        let answer = self.line().await?;
        let (job, bytes) = reserved(&answer).with_context(|| answer.clone())?;
        self.skip(bytes + 2).await?;
        self.stream.write_all(format!("delete {job}\r\n").as_bytes()).await?;
        let answer = self.line().await?;
        anyhow::ensure!(answer == "DELETED", "{answer}");
        Ok(())
    }
}

fn take_line(buffer: &mut BytesMut) -> anyhow::Result<Option<String>> {
    let Some(end) = buffer.windows(2).position(|window| window == b"\r\n") else {
        anyhow::ensure!(buffer.len() <= LINE_BYTES_MAX, "a line without end");
        return Ok(None);
    };
    let line = buffer.split_to(end);
    buffer.advance(2);
    Ok(Some(std::str::from_utf8(&line)?.to_owned()))
}

/// Number and length of the job in `RESERVED <number> <length>`.
fn reserved(answer: &str) -> Option<(u64, usize)> {
    let (job, bytes) = answer.strip_prefix("RESERVED ")?.split_once(' ')?;
    Some((job.parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_one_by_one() {
        let mut buffer = BytesMut::from(&b"RESERVED 7 5\r\nhello\r\nDEL"[..]);
        let line = take_line(&mut buffer).expect("a line").expect("complete");
        assert_eq!(reserved(&line), Some((7, 5)));
        assert_eq!(take_line(&mut buffer).expect("a line").as_deref(), Some("hello"));
        assert_eq!(take_line(&mut buffer).expect("not yet"), None);
        assert!(take_line(&mut BytesMut::from(&[b'a'; LINE_BYTES_MAX + 1][..])).is_err());
    }

    #[test]
    fn other_answers_are_no_jobs() {
        for answer in ["TIMED_OUT", "RESERVED x 5", "RESERVED 5", "FOUND 1 2"] {
            assert_eq!(reserved(answer), None, "{answer}");
        }
    }
}
