//! HTTP/2, in the clear and under TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ron_api::{HttpLimits, tls_config};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{Node, echo, within};

/// An HTTP/2 client; the set drives its connection.
struct Http2 {
    requests: SendRequest<Full<Bytes>>,
    connection: JoinSet<()>,
}

async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Http2 {
    let (requests, connection) =
        within("preface", handshake(TokioExecutor::new(), TokioIo::new(stream))).await.expect("http/2");
    let mut driver = JoinSet::new();
    driver.spawn(async {
        let _ = connection.await;
    });
    Http2 { requests, connection: driver }
}

impl Http2 {
    async fn get(&mut self, target: &str) -> (Response<()>, String) {
        let request = Request::get(format!("http://localhost{target}")).body(Full::default()).expect("a request");
        self.ask(request).await
    }

    async fn ask(&mut self, request: Request<Full<Bytes>>) -> (Response<()>, String) {
        let answer: Response<Incoming> =
            within("answer", self.requests.send_request(request)).await.expect("an answer");
        let (parts, body) = answer.into_parts();
        let body = within("body", body.collect()).await.expect("a body").to_bytes();
        (Response::from_parts(parts, ()), String::from_utf8(body.to_vec()).expect("text"))
    }
}

async fn tls_node(limits: HttpLimits) -> (Node, Arc<RootCertStore>) {
    let mine = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let config = tls_config(mine.cert.pem().as_bytes(), mine.signing_key.serialize_pem().as_bytes()).expect("usable");
    let mut roots = RootCertStore::empty();
    roots.add(mine.cert.der().clone()).expect("a certificate");
    (Node::start_with(limits, Some(config)).await, Arc::new(roots))
}

async fn tls_connect(node: &Node, roots: &Arc<RootCertStore>, protocols: &[&str]) -> TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small window");
    let stream = within("connect", socket.connect(node.address)).await.expect("connected");
    let name = ServerName::try_from("localhost").expect("a name");
    within("handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await.expect("a handshake")
}

#[tokio::test]
async fn http2_in_the_clear_gets_the_same_layers() {
    let node = Node::start(HttpLimits { header_bytes_max: 1024, body_bytes_max: 1000, ..HttpLimits::default() }).await;
    let stream = within("connect", TcpStream::connect(node.address)).await.expect("connected");
    let mut client = http2(stream).await;
    let (answer, body) = client.get("/call").await;
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));
    assert!(body.contains("/call"));
    assert!(answer.headers().contains_key("x-corr-id"));
    assert_eq!(client.get("/nowhere").await.0.status(), StatusCode::NOT_FOUND);
    assert_eq!(client.get("/panic").await.0.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let padded = Request::get("http://localhost/call").header("x-padding", "p".repeat(2000));
    let (answer, body) = client.ask(padded.body(Full::default()).expect("a request")).await;
    assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert!(body.contains("E_FRAME_TOO_LARGE"), "{body}");
    let long = Request::post("http://localhost/length").body(Full::from(vec![0; 2000])).expect("a request");
    assert_eq!(client.ask(long).await.0.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let metrics = node.metrics();
    assert_eq!(metrics.tasks_spawned.at("http_stream").get(), 5);
    assert_eq!(metrics.connections_open.at("http").get(), 1);
}

#[tokio::test]
async fn http2_streams_are_answered_in_a_drain_and_the_connection_ends() {
    let mut node = Node::start(HttpLimits::default()).await;
    let stream = within("connect", TcpStream::connect(node.address)).await.expect("connected");
    let mut client = http2(stream).await;
    let mut requests = client.requests.clone();
    let request = Request::get("http://localhost/hold").header("x-request-deadline-ms", "20000");
    let request = request.body(Full::<Bytes>::default()).expect("a request");
    let mut held = JoinSet::new();
    held.spawn(async move { requests.send_request(request).await.map(|answer| answer.status()) });
    node.until_in_flight(1).await;
    node.begin_drain().await;
    node.release.add_permits(1);
    let status = within("answer", held.join_next()).await.expect("one").expect("no panic").expect("an answer");
    assert_eq!(status, StatusCode::OK);
    within("the end", client.connection.join_next()).await;
    assert_eq!(node.ended().await.code, 0);
    assert_eq!(node.metrics().tasks_aborted.at("http_connection").get(), 0);
}

#[tokio::test]
async fn tls_is_version_1_3_with_http2_preferred_and_hybrid_key_exchange() {
    let (node, roots) = tls_node(HttpLimits::default()).await;
    let stream = tls_connect(&node, &roots, &["http/1.1", "h2"]).await;
    let session = stream.get_ref().1;
    assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(session.alpn_protocol(), Some(b"h2".as_slice()));
    let group = session.negotiated_key_exchange_group().map(|group| group.name());
    assert_eq!(group, Some(rustls::NamedGroup::X25519MLKEM768));
    let mut client = http2(Box::new(stream)).await;
    let (answer, _) = client.get("/call").await;
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));

    let plain = tls_connect(&node, &roots, &["http/1.1"]).await;
    assert_eq!(plain.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
}

#[tokio::test]
async fn a_handshake_that_stalls_or_fails_is_counted() {
    let (node, _) =
        tls_node(HttpLimits { handshake_timeout: Duration::from_millis(200), ..HttpLimits::default() }).await;
    assert_eq!(node.connect().await.closed().await, 0);
    assert_eq!(node.metrics().io_timeouts.at("handshake").get(), 1);
    let mut plain = node.connect().await;
    plain.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    plain.closed().await;
    assert_eq!(node.metrics().io_errors.at("handshake").get(), 1);
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_found_out_under_tls_too() {
    let (node, roots) = tls_node(HttpLimits { write_stall: Duration::from_millis(300), ..HttpLimits::default() }).await;
    let mut stream = tls_connect(&node, &roots, &["http/1.1"]).await;
    // More than the buffers on the way hold.
    let request = echo(&format!("{{\"message\":\"{}\"}}", "x".repeat(3 << 20)));
    within("send", stream.write_all(&request)).await.expect("the node reads");
    let stalls = node.metrics().io_timeouts.at("write");
    within("a stall", async {
        while stalls.get() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // What was on the way may still arrive; then there is an end that TLS did not announce.
    let mut rest = Vec::new();
    within("the end", stream.read_to_end(&mut rest)).await.expect_err("cut off");
    assert!(!rest.is_empty() && rest.len() < request.len(), "{}", rest.len());
}

#[tokio::test]
async fn a_refused_tls_connection_is_dropped() {
    let (node, roots) = tls_node(HttpLimits { connections_max: 1, ..HttpLimits::default() }).await;
    let _first = tls_connect(&node, &roots, &["h2"]).await;
    assert_eq!(node.connect().await.closed().await, 0);
    assert_eq!(node.metrics().connections_refused.at("total").get(), 1);
}
