//! A small HTTP client for one node: one request, one connection, one deadline.

mod api;
mod identity;
pub mod sse;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response};
use http_body_util::Full;
use macronode_client::http::{Endpoint, Link, LinkError};
use ron_kernel::Deadline;
use serde::Deserialize;
use zeroize::Zeroizing;

pub use api::{ApiClient, PATIENCE};

use crate::cli::ClientArgs;
use crate::commands::view::Status;
use crate::config::{self, Config, Sources};
use crate::data_dir::TOKEN_FILE;
use crate::errors::{Code, Failure};

/// The time of one request from the connection to the last byte of the answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The variable with the token of a client; no key of the configuration.
const TOKEN_VARIABLE: &str = "MACRO_TOKEN";

/// One node, as the command line named it.
pub struct Client {
    endpoint: Endpoint,
    token_file: PathBuf,
    /// Whether the token file was found beside the node's data and not named by the user.
    is_token_found: bool,
    /// Name of the node's plane, for messages.
    plane: &'static str,
}

/// Answer of a node to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body of the answer.
    pub body: Bytes,
}

/// Contents of the file of bound addresses in the data directory.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Addresses {
    /// The admin plane.
    pub admin: Option<String>,
    /// The public HTTP plane.
    pub api: Option<String>,
    /// The framed plane.
    pub oap: Option<String>,
    /// Process that wrote them down.
    pub pid: Option<u32>,
}

impl Client {
    /// Finds the node: the address given, else the one in its data directory, else the configured one.
    pub fn find(args: &ClientArgs) -> Result<Client, Failure> {
        let config = configured();
        let data_dir = args.data_dir.clone().unwrap_or_else(|| config.data_dir.clone());
        let token_file = args.token_file.clone().unwrap_or_else(|| data_dir.join(TOKEN_FILE));
        let scheme = if config.admin.tls_cert.is_some() { "https" } else { "http" };
        let written = args.admin.clone().unwrap_or_else(|| {
            let known = addresses(&data_dir).admin.unwrap_or_else(|| config.admin.addr.to_string());
            format!("{scheme}://{known}")
        });
        let client = Client::to(&written, args.ca.as_deref().or(config.admin.tls_cert.as_deref()), token_file)?;
        Ok(Client { is_token_found: args.token_file.is_none(), ..client })
    }

    /// The node at `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn to(written: &str, root: Option<&Path>, token_file: PathBuf) -> Result<Client, Failure> {
        let named = |cause: String| match root {
            Some(path) => Failure::new(Code::TlsUnusable, format!("{}: {cause}", path.display())),
            None => Failure::new(Code::TlsUnusable, format!("{cause}: give --ca FILE")),
        };
        let pem = root.filter(|_| written.starts_with("https://")).map(std::fs::read).transpose();
        let pem = pem.map_err(|error| named(error.to_string()))?;
        let endpoint = Endpoint::new(written, pem.as_deref()).map_err(|error| match error {
            LinkError::Root(cause) => named(cause),
            error => Failure::new(Code::NoNode, error.to_string()),
        })?;
        Ok(Client { endpoint, token_file, is_token_found: false, plane: "admin" })
    }

    /// Address that is asked, for messages.
    pub fn address(&self) -> &str {
        self.endpoint.address()
    }

    /// Base URL of the plane.
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// Sends a GET; needs no token.
    pub async fn get(&self, path: &str) -> Result<NodeAnswer, Failure> {
        self.send(self.request(Method::GET, path)?).await
    }

    /// Readiness of the node, with the answer that says so; an error if what answers is no admin plane.
    pub async fn status(&self) -> Result<(Status, NodeAnswer), Failure> {
        let answer = self.get("/readyz").await?;
        let status: Status = match answer.status {
            200 | 503 => serde_json::from_slice(&answer.body).unwrap_or_default(),
            _ => Status::default(),
        };
        match status.state.is_empty() {
            true => Err(self.silent(&format!("/readyz is answered with {}, and without a state", answer.status))),
            false => Ok((status, answer)),
        }
    }

    /// An error unless the node proves that it knows the operator token found here.
    pub async fn check_own(&self) -> Result<(), Failure> {
        let token = read_token(&self.token_file)?;
        self.check_identity("/identity", &token, &self.token_file.display().to_string()).await
    }

    /// Asks for something to be done, with the operator token.
    pub async fn post(&self, path: &str) -> Result<NodeAnswer, Failure> {
        let token = read_token(&self.token_file)?;
        if self.is_token_found {
            self.check_identity("/identity", &token, &self.token_file.display().to_string()).await?;
        }
        let mut request = self.request(Method::POST, path)?;
        let value = Zeroizing::new(format!("Bearer {}", token.trim()));
        let mut value = http::HeaderValue::from_str(&value).map_err(|_| {
            Failure::new(Code::TokenUnusable, format!("{} is not an operator token", self.token_file.display()))
        })?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
        let answer = self.send(request).await?;
        match answer.status {
            401 | 403 => Err(Failure::new(
                Code::TokenUnusable,
                format!(
                    "the node at {} refused the operator token of {}: is it the token of this node?",
                    self.address(),
                    self.token_file.display()
                ),
            )),
            _ => Ok(answer),
        }
    }

    fn request(&self, method: Method, path: &str) -> Result<Request<Full<Bytes>>, Failure> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address())
            .header(CONNECTION, "close")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::default())
            .map_err(|error| Failure::new(Code::NodeRefused, format!("cannot ask for {path}: {error}")))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<NodeAnswer, Failure> {
        let mut link = Link::default();
        self.exchange(&mut link, "admin request", request, DEADLINE).await
    }

    /// One request over a connection that may serve again.
    async fn exchange(
        &self,
        link: &mut Link,
        what: &'static str,
        request: Request<Full<Bytes>>,
        within: Duration,
    ) -> Result<NodeAnswer, Failure> {
        let exchange = Box::pin(link.exchange(&self.endpoint, request));
        match Deadline::after(within).run(what, exchange).await {
            Ok(Ok(response)) => Ok(response.into()),
            Ok(Err(error)) => Err(self.unanswered(&error)),
            Err(_) => Err(self.silent(&format!("no answer within {} s", within.as_secs()))),
        }
    }

    fn unanswered(&self, error: &LinkError) -> Failure {
        match error {
            LinkError::Connect(error) => self.unreachable(error),
            LinkError::Tls(error) => {
                let message = format!("no trusted TLS with {}: {error}; name its root with --ca FILE", self.address());
                Failure::new(Code::TlsUnusable, message)
            }
            error => self.silent(&error.to_string()),
        }
    }

    fn unreachable(&self, error: &std::io::Error) -> Failure {
        let cause = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => String::new(),
            _ => format!(" ({error})"),
        };
        let address = self.address();
        let message = format!("no node answers at {address}{cause}: is it running? start one with `macronode run`");
        Failure::new(Code::NoNode, message)
    }

    fn silent(&self, cause: &str) -> Failure {
        let (address, plane) = (self.address(), self.plane);
        let hint = format!("is it the {plane} plane of a node, and without TLS? with TLS write https://");
        Failure::new(Code::NoNode, format!("what listens at {address} does not answer like a node ({cause}): {hint}"))
    }
}

impl From<Response<Bytes>> for NodeAnswer {
    fn from(response: Response<Bytes>) -> Self {
        NodeAnswer { status: response.status().as_u16(), body: response.into_body() }
    }
}

impl NodeAnswer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON of this shape.
    pub fn read<T: for<'de> Deserialize<'de>>(&self, path: &str) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let message = format!("the answer to {path} is not of this version ({error}); compare `macronode version`");
            Failure::new(Code::NodeRefused, message)
        })
    }

    /// An error unless the status says success.
    pub fn expect_success(self, path: &str) -> Result<NodeAnswer, Failure> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let reason = problem["detail"].as_str().or_else(|| problem["title"].as_str()).unwrap_or("no reason given");
        Err(Failure::new(Code::NodeRefused, format!("the node refused {path}: {} {reason}", self.status)))
    }
}

/// The configuration of a node beside which this command runs. It may be asked about even if its file is broken by now.
pub fn configured() -> Config {
    let mut sources = Sources::of_process(None, toml::Table::new());
    sources.env.retain(|(name, _)| name != TOKEN_VARIABLE);
    config::load(&sources).map_or_else(|_| Config::default(), |loaded| loaded.config)
}

/// Where the node with this data directory listens, or listened when it last ran.
pub fn addresses(data_dir: &Path) -> Addresses {
    let text = std::fs::read(data_dir.join("addresses.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn read_token(path: &Path) -> Result<Zeroizing<String>, Failure> {
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| {
        let message = format!(
            "cannot read the operator token {}: {error}; give the node's --data-dir, or --token-file FILE",
            path.display()
        );
        Failure::new(Code::TokenUnusable, message)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one connection with these bytes and returns what was asked.
    async fn serve_once(listener: TcpListener, answer: &[u8]) -> String {
        let (stream, _) = listener.accept().await.expect("a connection");
        converse(stream, answer).await
    }

    async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> String {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(stream.read_u8().await.expect("a request"));
        }
        stream.write_all(answer).await.expect("the client reads");
        stream.flush().await.expect("the client reads");
        String::from_utf8(asked).expect("text")
    }

    async fn listen() -> (TcpListener, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        (listener, Client::to(&address, None, PathBuf::from("/nowhere/operator.token")).expect("an address"))
    }

    #[tokio::test]
    async fn a_reading_request_is_answered_without_a_token() {
        let (listener, client) = listen().await;
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}";
        let (asked, answer) = tokio::join!(serve_once(listener, answer), client.get("/readyz"));
        assert!(asked.starts_with("GET /readyz HTTP/1.1\r\n"), "{asked}");
        assert!(!asked.contains("authorization"), "{asked}");
        assert_eq!(answer, Ok(NodeAnswer { status: 503, body: Bytes::from_static(b"{}") }));
    }

    #[tokio::test]
    async fn a_changing_request_carries_the_token_and_a_refusal_says_so() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let token = folder.path().join("operator.token");
        std::fs::write(&token, "abc\n").expect("written");
        let (listener, mut client) = listen().await;
        client.token_file = token;
        let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        let (asked, answer) = tokio::join!(serve_once(listener, refusal), client.post("/drain"));
        assert!(asked.contains("authorization: Bearer abc\r\n"), "{asked}");
        assert_eq!(answer.map_err(|failure| failure.code), Err(Code::TokenUnusable));
    }

    #[tokio::test]
    async fn a_token_that_was_found_is_sent_only_to_the_node_that_knows_it() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(folder.path().join(TOKEN_FILE), "abc\n").expect("written");
        let (listener, _) = listen().await;
        let address = listener.local_addr().expect("bound").to_string();
        let data_dir = Some(folder.path().to_owned());
        let found = Client::find(&ClientArgs { admin: Some(address), data_dir, ..ClientArgs::default() });
        let liar = format!(r#"{{"proof":"{}"}}"#, "0".repeat(64));
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{liar}", liar.len());
        let client = found.expect("an address");
        let (asked, refused) = tokio::join!(serve_once(listener, answer.as_bytes()), client.post("/drain"));
        assert!(asked.starts_with("GET /identity?nonce=") && !asked.contains("abc"), "{asked}");
        let failure = refused.expect_err("a liar");
        assert!(failure.code == Code::TokenUnusable && failure.message.contains("was not sent"), "{failure}");
    }

    #[tokio::test]
    async fn without_a_token_nothing_is_sent() {
        let client = Client::to("127.0.0.1:1", None, PathBuf::from("/nowhere/operator.token")).expect("an address");
        let failure = client.post("/drain").await.expect_err("there is no token");
        assert_eq!(failure.code, Code::TokenUnusable);
        assert!(failure.message.contains("--token-file"), "{failure}");
    }

    #[tokio::test]
    async fn nobody_at_the_address() {
        let (listener, client) = listen().await;
        drop(listener);
        let expected =
            format!("MN0017 no node answers at {}: is it running? start one with `macronode run`", client.address());
        assert_eq!(client.get("/readyz").await.expect_err("nobody").to_string(), expected);
    }

    #[tokio::test]
    async fn something_else_at_the_address() {
        let (listener, client) = listen().await;
        let (_, answer) = tokio::join!(serve_once(listener, b"220 mail ready\r\n"), client.get("/readyz"));
        let text = answer.expect_err("not a node").to_string();
        assert!(text.contains("does not answer like a node"), "{text}");
    }

    #[tokio::test]
    async fn another_plane_at_the_address_is_no_status() {
        for answer in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 16\r\n\r\n{\"status\": 404 }"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        ] {
            let (listener, client) = listen().await;
            let (_, status) = tokio::join!(serve_once(listener, answer), client.status());
            let text = status.expect_err("not the admin plane").to_string();
            assert!(text.contains("does not answer like a node") && text.contains("admin plane"), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_given_up_after_the_deadline() {
        let (listener, client) = listen().await;
        let text = client.get("/readyz").await.expect_err("silence").to_string();
        assert!(text.contains("no answer within 5 s"), "{text}");
        drop(listener);
    }

    #[tokio::test]
    async fn https_trusts_the_given_root_and_no_other() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (node, stranger) = (made(), made());
        let key = rustls::pki_types::PrivateKeyDer::try_from(node.signing_key.serialize_der()).expect("a key");
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|server| server.with_no_client_auth().with_single_cert(vec![node.cert.der().clone()], key));
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server.expect("a server")));
        let folder = tempfile::tempdir().expect("a temporary directory");
        for (root, trusted) in [(node.cert.pem(), true), (stranger.cert.pem(), false)] {
            let path = folder.path().join("root.pem");
            std::fs::write(&path, root).expect("written");
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = format!("https://localhost:{}", listener.local_addr().expect("bound").port());
            let client = Client::to(&address, Some(&path), PathBuf::new()).expect("an address");
            let serve = async {
                let (stream, _) = listener.accept().await.expect("a connection");
                if let Ok(stream) = acceptor.accept(stream).await {
                    converse(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            };
            let (_, answer) = tokio::join!(serve, client.get("/version"));
            let outcome = answer.map(|answer| answer.text()).map_err(|failure| failure.code);
            assert_eq!(outcome, if trusted { Ok("ok".to_owned()) } else { Err(Code::TlsUnusable) });
        }
    }

    #[test]
    fn addresses_are_read_as_written() {
        let address =
            |written: &str| Client::to(written, None, PathBuf::new()).map(|client| client.address().to_owned());
        assert_eq!(address("http://node.example:80/"), Ok("node.example:80".to_owned()));
        for written in ["127.0.0.1", "ftp://x:1", ":80", "x:99999"] {
            assert_eq!(address(written).map_err(|failure| failure.code), Err(Code::NoNode), "{written}");
        }
        let failure = Client::to("https://127.0.0.1:1", None, PathBuf::new()).map(|_| ()).expect_err("no root");
        assert!(failure.message.contains("--ca"), "{failure}");
    }

    #[test]
    fn a_refusal_carries_the_nodes_reason() {
        let body = Bytes::from_static(br#"{"title":"Not Found","detail":"no service htpp"}"#);
        let failure = NodeAnswer { status: 404, body }.expect_success("/services/htpp/restart").expect_err("refused");
        assert_eq!(failure.to_string(), "MN0019 the node refused /services/htpp/restart: 404 no service htpp");
    }
}
