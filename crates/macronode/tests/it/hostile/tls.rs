//! HTTP/2 and TLS: what is offered is taken, what is old, plain or stalled is not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ron_kernel::clock;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, NamedGroup, ProtocolVersion, RootCertStore};
use tempfile::TempDir;
use testkit::Node;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::hostile::wire::{self, within};
use crate::hostile::{SLACK, assert_still_serves, start, wait_for_metric};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// An echo over HTTP/2 on this stream.
async fn echo_over_http2<S>(stream: S) -> http::Response<Bytes>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = async move {
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.expect("the node speaks HTTP/2");
        let request = Request::post("http://localhost/v1/echo").header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from_static(br#"{"message":"two"}"#))).expect("a request");
        let answer = async {
            let (head, body) = sender.send_request(request).await.expect("an answer").into_parts();
            let body = body.collect().await.expect("a whole answer").to_bytes();
            http::Response::from_parts(head, body)
        };
        tokio::select! {
            answer = answer => answer,
            ended = connection => panic!("the connection ended: {ended:?}"),
        }
    };
    within(SLACK, "an echo over HTTP/2", Box::pin(exchange)).await
}

#[tokio::test]
async fn http2_works_without_being_negotiated() {
    let node = start("").await;
    let stream = TcpStream::connect(node.api).await.expect("the node listens");
    let answer = echo_over_http2(stream).await;
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
    assert_eq!(answer.body().as_ref(), br#"{"message":"two"}"#);
    assert!(answer.headers().contains_key("x-corr-id"));
}

/// A node with TLS, the folder of its certificate, and a client side that trusts it.
struct Sealed {
    node: Node,
    _files: TempDir,
    roots: RootCertStore,
}

impl Sealed {
    async fn start() -> Sealed {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
        let files = tempfile::tempdir().expect("a scratch folder");
        let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
        std::fs::write(&certificate, pair.cert.pem()).expect("written");
        std::fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
        let config = format!("[api]\ntls_cert = {certificate:?}\ntls_key = {key:?}\n");
        let mut roots = RootCertStore::empty();
        roots.add(pair.cert.der().clone()).expect("a certificate");
        Sealed { node: start(&config).await, _files: files, roots }
    }

    async fn connect(&self, provider: CryptoProvider) -> std::io::Result<TlsStream<TcpStream>> {
        let config = ClientConfig::builder_with_provider(Arc::new(provider));
        let config = config.with_safe_default_protocol_versions().expect("TLS 1.3");
        let mut config = config.with_root_certificates(self.roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = TcpStream::connect(self.node.api).await.expect("the node listens");
        let name = ServerName::try_from("localhost").expect("a name");
        within(SLACK, "a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }

    async fn assert_still_serves(&self) {
        let stream = self.connect(aws_lc_rs::default_provider()).await.expect("a handshake");
        assert_eq!(echo_over_http2(stream).await.status(), 200);
    }
}

#[tokio::test]
async fn tls_is_1_3_with_http2_and_a_key_exchange_that_lasts() {
    let sealed = Sealed::start().await;
    let groups = [("what we prefer", aws_lc_rs::default_provider().kx_groups, NamedGroup::X25519MLKEM768)];
    let old = vec![aws_lc_rs::kx_group::X25519];
    let groups = groups.into_iter().chain([("what older clients have", old, NamedGroup::X25519)]);
    for (what, kx_groups, expected) in groups {
        let stream = sealed.connect(CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() }).await;
        let stream = stream.expect("a handshake");
        let session = stream.get_ref().1;
        assert_eq!(session.protocol_version(), Some(ProtocolVersion::TLSv1_3), "{what}");
        assert_eq!(session.alpn_protocol(), Some(b"h2".as_slice()), "{what}");
        assert_eq!(session.negotiated_key_exchange_group().map(|group| group.name()), Some(expected), "{what}");
        let answer = echo_over_http2(stream).await;
        assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2), "{what}");
    }
}

/// The first words of a client that knows no TLS newer than 1.2.
fn old_hello() -> Vec<u8> {
    let extension = |kind: u8, content: &[u8]| [&[0, kind, 0, content.len() as u8], content].concat();
    let groups = extension(10, &[0, 2, 0, 0x1d]);
    let points = extension(11, &[1, 0]);
    let signatures = extension(13, &[0, 4, 4, 3, 8, 4]);
    let extensions = [groups, points, signatures].concat();
    let mut hello = vec![3, 3];
    hello.extend_from_slice(&[7; 32]);
    hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    hello.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
    hello.extend_from_slice(&extensions);
    let handshake = [&[1, 0], (hello.len() as u16).to_be_bytes().as_slice(), &hello].concat();
    [&[0x16, 3, 1], (handshake.len() as u16).to_be_bytes().as_slice(), &handshake].concat()
}

#[tokio::test]
async fn old_plain_and_stalled_clients_do_not_get_in() {
    const ALERT: u8 = 21;
    const PROTOCOL_VERSION: u8 = 70;
    let sealed = Sealed::start().await;
    let api = sealed.node.api;
    let said_to = async |bytes: &[u8], limit: Duration| {
        let mut stream = TcpStream::connect(api).await.expect("the node listens");
        stream.write_all(bytes).await.expect("the node reads");
        within(limit, "closing", wire::read_to_close(&mut stream)).await
    };

    let alert = said_to(&old_hello(), SLACK).await;
    assert_eq!((alert.first(), alert.last()), (Some(&ALERT), Some(&PROTOCOL_VERSION)), "{alert:?}");
    let plain = said_to(&wire::echo("in the clear"), SLACK).await;
    assert!(!plain.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&plain));
    // A failed handshake is counted just after its connection is closed.
    wait_for_metric(&sealed.node, "io_errors_total{op=\"handshake\"}", |count| count >= 2.0).await;
    let timed_out = sealed.node.metric("io_timeouts_total{op=\"handshake\"}").await;
    assert_eq!(timed_out, 0.0, "plain bytes are known at once");
    sealed.assert_still_serves().await;

    for (what, bytes) in [("nothing", Vec::new()), ("half a hello", old_hello()[..20].to_vec())] {
        let started = clock::now();
        said_to(&bytes, HANDSHAKE_TIMEOUT + SLACK).await;
        assert!(started.elapsed() >= HANDSHAKE_TIMEOUT / 2, "{what}: closed for another reason");
    }
    wait_for_metric(&sealed.node, "io_timeouts_total{op=\"handshake\"}", |count| count == 2.0).await;
    sealed.assert_still_serves().await;
}

#[tokio::test]
async fn streams_of_one_connection_do_not_starve_the_others() {
    let node = start("").await;
    let stream = TcpStream::connect(node.api).await.expect("the node listens");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.expect("the node speaks HTTP/2");
    let work = async {
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..600 {
            let mut sender = sender.clone();
            answers.spawn(async move {
                sender.ready().await.expect("open");
                let request = Request::get("http://localhost/v1/work?ms=50").body(Full::<Bytes>::default());
                sender.send_request(request.expect("a request")).await.expect("an answer").status().as_u16()
            });
        }
        assert_still_serves(&node).await;
        while let Some(status) = answers.join_next().await {
            let status = status.expect("a stream ends");
            assert!([200, 429, 504].contains(&status), "{status}");
        }
    };
    tokio::select! {
        () = within(testkit::PATIENCE_MAX, "all streams", work) => {}
        ended = connection => panic!("the connection ended: {ended:?}"),
    }
    assert_still_serves(&node).await;
}
