//! A client that may break every rule: bytes out, and whatever comes back.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ron_kernel::Deadline;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header; the name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Checks that this is a problem body that agrees with the answer it came in.
    pub fn assert_problem(&self, status: u16, code: &str, about: &str) {
        let body = self.json();
        assert_eq!(self.status, status, "{about}: {body}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{about}");
        assert_eq!((&body["status"], &body["code"]), (&status.into(), &code.into()), "{about}: {body}");
        assert!(body["title"].is_string() && body["detail"].is_string(), "{about}: {body}");
        assert_eq!(body["corr_id"].as_str(), self.header("x-corr-id"), "{about}: {body}");
        assert!(body["corr_id"].as_str().is_some_and(|id| !id.is_empty()), "{about}: {body}");
    }
}

/// The value of the future, which must be there in time.
pub async fn within<T>(limit: Duration, what: &'static str, future: impl Future<Output = T>) -> T {
    Deadline::after(limit).run(what, future).await.unwrap_or_else(|_| panic!("{what} took longer than {limit:?}"))
}

/// A request as bytes; a body gets its length.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// An echo request.
pub fn echo(message: &str) -> Vec<u8> {
    let body = serde_json::json!({ "message": message }).to_string();
    request("POST", "/v1/echo", &[("content-type", "application/json")], body.as_bytes())
}

/// Sends these bytes on a new connection and reads one answer; none if the node closed without one.
pub async fn send(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let stream = TcpStream::connect(address).await.expect("the node listens");
    exchange(stream, bytes).await
}

/// Sends these bytes and reads one answer while they are still going out.
pub async fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Option<Answer> {
    let (mut reading, mut writing) = stream.split();
    // A refusal may come, and the connection close, long before everything is sent.
    let send = async {
        let _ = writing.write_all(bytes).await;
        std::future::pending::<()>().await
    };
    tokio::select! {
        answer = read_answer(&mut reading) => answer.ok().flatten(),
        () = send => None,
    }
}

/// Reads one answer; none if the stream ends before it begins.
pub async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Answer>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte).await? {
            0 if head.is_empty() => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => head.push(byte[0]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(pair).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(Some(Answer { status, headers, body }))
}

/// Reads until the peer closes or resets, and returns what came.
pub async fn read_to_close(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset is a way of closing.
    let _ = stream.read_to_end(&mut all).await;
    all
}
