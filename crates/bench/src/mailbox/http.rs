//! A lean HTTP/1.1 client for the hot loop: requests are bytes made once, of answers only what is needed is read.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::cell::Payload;
use super::drive::Client;

/// Pause of a client after the node said that it is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// A refusal this often in a row is no longer a matter of waiting.
const BUSY_MAX: usize = 2_000;
/// Maximum bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const VISIBILITY_MS: u64 = 120_000;
/// Status of an answer that has no body, and so no length.
const NO_CONTENT: u16 = 204;

/// Requests that had to be sent again because the node was busy.
static REFUSALS: AtomicU64 = AtomicU64::new(0);

/// Number of requests of this run that were refused and sent again.
pub fn refusals() -> u64 {
    REFUSALS.load(Ordering::Relaxed)
}

/// Address and token of a node.
#[derive(Clone, Debug)]
pub struct NodeAccess {
    /// Address of the public plane.
    pub address: SocketAddr,
    /// The operator token; empty where none is asked for.
    pub token: String,
}

/// One keep-alive connection to a server.
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    /// The server said that it closes this one; the next request goes over a new one.
    is_closing: bool,
    buffer: BytesMut,
    /// Range of the last answer's body in the buffer.
    body: Range<usize>,
}

/// Status line and length of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    body_at: usize,
    body_bytes: usize,
    closes: bool,
}

impl NodeAccess {
    /// Bytes of a whole POST request.
    pub fn post(&self, path: &str, json: &str) -> Vec<u8> {
        let mut request = self.head("POST", path, json.len()).into_bytes();
        request.extend_from_slice(json.as_bytes());
        request
    }

    /// Bytes of a whole DELETE request.
    pub fn delete(&self, path: &str) -> Vec<u8> {
        self.head("DELETE", path, 0).into_bytes()
    }

    fn head(&self, method: &str, path: &str, body_bytes: usize) -> String {
        let authorization =
            if self.token.is_empty() { String::new() } else { format!("authorization: Bearer {}\r\n", self.token) };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{authorization}content-type: application/json\r\n\
             content-length: {body_bytes}\r\n\r\n",
            self.address
        )
    }
}

impl Connection {
    /// Connects to a server.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let (stream, buffer) = (connect(address).await?, BytesMut::with_capacity(16 * 1024));
        Ok(Connection { address, stream, is_closing: false, buffer, body: 0..0 })
    }

    /// Writes a request and reads the whole answer; its body is there until the next request.
    async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        if self.is_closing {
            self.stream = connect(self.address).await?;
        }
        self.buffer.clear();
        self.stream.write_all(request).await?;
        let mut head = None;
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await?;
            anyhow::ensure!(read > 0, "the server closed the connection");
            if head.is_none() {
                head = parse_head(&self.buffer)?;
            }
            if let Some(Head { status, body_at, body_bytes, closes }) = head
                && self.buffer.len() >= body_at + body_bytes
            {
                self.is_closing = closes;
                self.body = body_at..body_at + body_bytes;
                return Ok(status);
            }
        }
    }

    /// The body of a good answer; waits and asks again while the server is busy.
    pub async fn ask(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        for _ in 0..BUSY_MAX {
            match self.exchange(request).await? {
                200 | 201 | NO_CONTENT => return Ok(&self.buffer[self.body.clone()]),
                429 | 503 => {
                    REFUSALS.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                status => anyhow::bail!("status {status}: {}", self.said()),
            }
        }
        anyhow::bail!("refused {BUSY_MAX} times: {}", self.said())
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.buffer[self.body.clone()]).into_owned()
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// None while the head is not complete.
fn parse_head(bytes: &[u8]) -> anyhow::Result<Option<Head>> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        anyhow::ensure!(bytes.len() <= HEAD_BYTES_MAX, "an answer without end of head");
        return Ok(None);
    };
    let status = bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let status = status.filter(|_| bytes.starts_with(b"HTTP/1.1 ")).context("not an HTTP/1.1 answer")?;
    let length = header(&bytes[..end], b"content-length:").or_else(|| (status == NO_CONTENT).then_some(b"0"));
    let length = length.with_context(|| format!("an answer of unknown length (status {status})"))?;
    let body_bytes = std::str::from_utf8(length)?.parse()?;
    let closes = header(&bytes[..end], b"connection:").is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
    Ok(Some(Head { status, body_at: end + 4, body_bytes, closes }))
}

/// The value of the first header of this name, which ends with its colon.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = head.split(|&byte| byte == b'\n').skip(1);
    let line = lines.find(|line| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name))?;
    Some(line[name.len()..].trim_ascii())
}

/// Index of the first occurrence of `wanted`.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// The text of the first JSON field of this name, which has no escapes: receipts and ids have none.
pub fn text_field<'a>(body: &'a [u8], quoted_name: &str) -> Option<&'a str> {
    let mut rest = &body[find(body, quoted_name.as_bytes())? + quoted_name.len()..];
    for expected in [b':', b'"'] {
        rest = rest.trim_ascii_start().strip_prefix(&[expected])?;
    }
    std::str::from_utf8(&rest[..rest.iter().position(|&byte| byte == b'"')?]).ok()
}

/// The requests every client of a cell repeats.
pub struct Requests {
    node: NodeAccess,
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl Requests {
    /// The requests for one topic and payload, written beforehand.
    pub fn new(node: NodeAccess, topic: &str, payload: &Payload) -> Requests {
        let send = format!(r#"{{"topic":"{topic}","payload_b64":"{}"}}"#, payload.base64);
        let receive =
            format!(r#"{{"topic":"{topic}","visibility_ms":{VISIBILITY_MS},"max_messages":1,"wait_ms":1000}}"#);
        Requests { send: node.post("/v1/send", &send), receive: node.post("/v1/recv", &receive), node }
    }
}

/// One task with a connection of its own: HTTP/1.1 carries one request at a time.
pub struct HttpClient {
    connection: Connection,
    requests: Arc<Requests>,
}

impl HttpClient {
    /// That many, each with its connection.
    pub async fn open(count: usize, requests: Requests) -> anyhow::Result<Vec<HttpClient>> {
        let requests = Arc::new(requests);
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            let connection = Connection::open(requests.node.address).await?;
            clients.push(HttpClient { connection, requests: Arc::clone(&requests) });
        }
        Ok(clients)
    }
}

impl Client for HttpClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let body = self.connection.ask(&self.requests.send).await?;
        anyhow::ensure!(find(body, b"\"msg_id\"").is_some(), "no msg_id: {}", String::from_utf8_lossy(body));
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let acknowledge = loop {
            let body = self.connection.ask(&self.requests.receive).await?;
            if let Some(receipt) = text_field(body, "\"receipt\"") {
                break self.requests.node.post("/v1/ack", &format!(r#"{{"receipts":["{receipt}"]}}"#));
            }
        };
        let body = self.connection.ask(&acknowledge).await?;
        anyhow::ensure!(find(body, b"\"error\"").is_none(), "not acknowledged: {}", String::from_utf8_lossy(body));
        Ok(())
    }
}

/// Sends `count` messages in batches over several connections.
pub async fn fill(node: &NodeAccess, topic: &str, payload: &Payload, count: u64) -> anyhow::Result<()> {
    const CONNECTIONS: u64 = 8;
    const BATCH: u64 = 100;
    let request: Arc<[u8]> = Arc::from(batch_request(node, topic, payload, BATCH as usize));
    let batches = count.div_ceil(BATCH);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..CONNECTIONS {
        let share = batches / CONNECTIONS + u64::from(number < batches % CONNECTIONS);
        let (request, address) = (Arc::clone(&request), node.address);
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for _ in 0..share {
                let body = connection.ask(&request).await?;
                anyhow::ensure!(find(body, b"\"error\"").is_none(), "refused: {}", String::from_utf8_lossy(body));
            }
            Ok(())
        });
    }
    tasks.join_all().await.into_iter().collect()
}

fn batch_request(node: &NodeAccess, topic: &str, payload: &Payload, messages: usize) -> Vec<u8> {
    let message = format!(r#"{{"payload_b64":"{}"}}"#, payload.base64);
    let all = vec![message; messages].join(",");
    node.post("/v1/send:batch", &format!(r#"{{"topic":"{topic}","messages":[{all}]}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeAccess {
        NodeAccess { address: SocketAddr::from(([127, 0, 0, 1], 80)), token: "secret".to_owned() }
    }

    #[test]
    fn heads_are_read_when_they_are_complete() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length:  12\r\n\r\nbody";
        let head = Head { status: 200, body_at: 57, body_bytes: 12, closes: false };
        assert_eq!(parse_head(answer).expect("sound"), Some(head));
        let last = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: Close\r\n\r\n";
        assert!(parse_head(last).expect("sound").is_some_and(|head| head.closes));
        assert_eq!(parse_head(&answer[..50]).expect("unfinished"), None);
        for bad in [
            &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"[..],
            b"HTTP/1.1 abc\r\ncontent-length: 1\r\n\r\n",
            b"SSH-2.0-x 200\r\ncontent-length: 1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            &[b'a'; HEAD_BYTES_MAX + 1],
        ] {
            assert!(parse_head(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_field_is_found_with_and_without_spaces() {
        for (body, expected) in [
            (r#"{"messages":[{"receipt":"abc","fence":1}]}"#, Some("abc")),
            (r#"{"messages":[{"receipt" : "abc"}]}"#, Some("abc")),
            (r#"{"messages":[]}"#, None),
            (r#"{"receipt":null}"#, None),
            (r#"{"receipt":"abc"#, None),
        ] {
            assert_eq!(text_field(body.as_bytes(), "\"receipt\""), expected, "{body}");
        }
    }

    #[test]
    fn requests_are_valid_json_of_the_stated_length() {
        let (payload, node) = (Payload::new(10), node());
        let requests = Requests::new(node.clone(), "orders", &payload);
        let batch = batch_request(&node, "orders", &payload, 3);
        for request in [&requests.send, &requests.receive, &batch] {
            let text = std::str::from_utf8(request).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
            assert!(head.contains("authorization: Bearer secret"), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
            assert_eq!(body["topic"], "orders");
        }
        assert!(std::str::from_utf8(&batch).is_ok_and(|text| text.matches("payload_b64").count() == 3));
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let node = NodeAccess { address: listener.local_addr().expect("bound"), token: String::new() };
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = [0; 4096];
            for answer in [
                "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy",
                "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"msg_id\":\"1\"}",
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno",
            ] {
                let read = stream.read(&mut request).await.expect("a request");
                assert!(request[..read].starts_with(b"POST /v1/send HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.expect("a client");
            }
        };
        let client = async {
            let requests = Requests::new(node, "orders", &Payload::new(1));
            let mut clients = HttpClient::open(1, requests).await.expect("open");
            clients[0].send().await.expect("accepted at the second try");
            let error = clients[0].send().await.expect_err("refused for good");
            assert!(error.to_string().contains("status 400: no"), "{error}");
        };
        tokio::join!(server, client);
    }
}
