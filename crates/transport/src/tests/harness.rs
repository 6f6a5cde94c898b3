//! Two sides of a session in one process, and a side that says whatever a test wants.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Control, Frame, Hello};
use ron_kernel::clock;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::connect::Beginning;
use crate::records::{Outgoing, Side};
use crate::{
    Closed, ConnectError, Heard, NodeKey, PeerAddress, PostQuantum, Reader, Session, SessionLimits, Tls, accept,
    accept_on, dial, dial_on,
};

pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn tls(post_quantum: PostQuantum) -> Tls {
    Tls::new(&NodeKey::generate().expect("a key"), post_quantum).expect("TLS")
}

pub(crate) fn hello() -> Hello {
    Hello::new(oap::FRAME_BYTES_MAX as u32, 64)
}

pub(crate) fn frame(corr: u64, payload_bytes: usize) -> Frame {
    Frame::event(AppId::GOSSIP, corr, Bytes::from(vec![corr as u8; payload_bytes]))
}

/// The same frame, with its payload in two pieces.
pub(crate) fn frame_of_two(corr: u64, payload_bytes: usize, first: usize) -> Frame {
    let Frame { mut payload, .. } = frame(corr, payload_bytes);
    let head = payload.split_to(first.min(payload_bytes));
    Frame::event(AppId::GOSSIP, corr, head).followed_by(payload)
}

/// Runs both futures and gives back what both gave.
pub(crate) async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::join!(a, b)
}

/// The two sides, dialler first, over a pipe that holds this many bytes.
pub(crate) async fn pair_with(pipe_bytes: usize, limits: &SessionLimits) -> (Session, Session) {
    let (a, b) = tokio::io::duplex(pipe_bytes);
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (a_read, a_write) = tokio::io::split(a);
    let (b_read, b_write) = tokio::io::split(b);
    let dialling = dial_on(a_read, a_write, ADDRESS, node.node_id(), &dialler, hello(), limits);
    let accepting = accept_on(b_read, b_write, ADDRESS, &node, hello(), limits);
    let (dialled, accepted) = both(dialling, accepting).await;
    (dialled.expect("dialled"), accepted.expect("accepted"))
}

pub(crate) async fn pair() -> (Session, Session) {
    pair_with(64 * 1024, &SessionLimits::default()).await
}

/// The two sides over TCP, with what each came to.
pub(crate) async fn over_tcp(
    dialler: &Tls,
    node: &Tls,
    expected: &Tls,
) -> (Result<Session, ConnectError>, Result<Session, ConnectError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let limits = SessionLimits::default();
    let address = PeerAddress::new(expected.node_id(), &format!("127.0.0.1:{port}")).expect("an address");
    let accepting = async {
        let (tcp, _) = listener.accept().await.expect("accepted");
        accept(tcp, node, hello(), &limits).await
    };
    both(dial(&address, dialler, hello(), &limits), accepting).await
}

/// Runs a writer beside the test; it ends with the set.
pub(crate) fn run(set: &mut JoinSet<Closed>, writer: crate::Writer) {
    set.spawn(writer.run());
}

/// Reads until the session ends; all that was heard, and how it ended.
pub(crate) async fn hear_all(reader: &mut Reader) -> (Vec<Heard>, Closed) {
    let mut heard = Vec::new();
    loop {
        if let Err(closed) = reader.next_batch(&mut heard).await {
            return (heard, closed);
        }
    }
}

/// The numbers of the frames among what was heard.
pub(crate) fn numbers(heard: &[Heard]) -> Vec<u64> {
    let number = |heard: &Heard| match heard {
        Heard::Frame(frame) => Some(frame.corr),
        _ => None,
    };
    heard.iter().filter_map(number).collect()
}

/// A side that has TLS and says what a test wants, byte by byte.
pub(crate) struct RawPeer {
    beginning: Beginning,
}

impl RawPeer {
    /// Dials over a pipe; the other end of it is to be accepted. TLS is done when this is.
    pub(crate) async fn dial(pipe: DuplexStream, node: &Tls, as_node: Option<&Tls>) -> Self {
        let limits = SessionLimits { handshake_timeout: Duration::from_secs(3600), ..SessionLimits::default() };
        let anonymous = crate::tls::ClientTls::anonymous(PostQuantum::Hybrid);
        let client = as_node.map_or(&anonymous, Tls::client);
        let side = crate::connect::client_side(client, node.node_id()).expect("a side");
        RawPeer::with(pipe, side, &limits).await
    }

    async fn with(pipe: DuplexStream, side: Side, limits: &SessionLimits) -> Self {
        let (read, write) = tokio::io::split(pipe);
        let mut beginning = Beginning::new(read, write, side, PostQuantum::Hybrid, limits);
        beginning.handshake().await.expect("TLS");
        beginning.source.decoder.set_frame_bytes_max(oap::FRAME_BYTES_MAX);
        RawPeer { beginning }
    }

    /// Bytes inside TLS.
    pub(crate) async fn say(&mut self, plain: &[u8]) {
        let sealed = self.sealed(plain);
        self.say_raw(&sealed).await;
    }

    /// The end of TLS, and not of the connection.
    pub(crate) async fn say_end(&mut self) {
        let mut out = Outgoing::default();
        self.beginning.records.seal_end(&mut out).expect("sealed");
        self.say_raw(out.filled()).await;
    }

    /// Bytes under TLS. The other side may be gone.
    pub(crate) async fn say_raw(&mut self, bytes: &[u8]) {
        let _ = self.beginning.writer.write_all(bytes).await;
    }

    pub(crate) fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Outgoing::default();
        self.beginning.records.seal(plain, &mut out).expect("sealed");
        out.filled().to_vec()
    }

    /// Has the keys of this direction changed with what is said next.
    pub(crate) fn refresh_keys(&mut self) {
        self.beginning.records.refresh_keys();
    }

    /// The next frame of the other side that is no PING; nothing at its end.
    pub(crate) async fn hear(&mut self) -> Option<Frame> {
        loop {
            match self.beginning.source.decoder.next().expect("frames") {
                Some(frame) if matches!(Control::parse(&frame), Ok(Control::Ping { .. })) => {}
                Some(frame) => return Some(frame),
                None => self.beginning.fill().await.ok()?,
            }
        }
    }
}

/// A node's side and a raw one that has said HELLO and heard it.
pub(crate) async fn raw_pair(pipe_bytes: usize, limits: &SessionLimits) -> (RawPeer, Session) {
    let (a, b) = tokio::io::duplex(pipe_bytes);
    let node = tls(PostQuantum::Hybrid);
    let (read, write) = tokio::io::split(b);
    let dialling = async {
        let mut raw = RawPeer::dial(a, &node, None).await;
        raw.say(&Control::Hello(hello()).to_frame().to_bytes()).await;
        raw.hear().await.expect("their HELLO");
        raw
    };
    let (raw, session) = both(dialling, accept_on(read, write, ADDRESS, &node, hello(), limits)).await;
    (raw, session.expect("a session"))
}

/// What a node's side makes of a raw one.
pub(crate) async fn accept_raw<F: Future<Output = ()>>(
    as_node: Option<&Tls>,
    act: impl FnOnce(RawPeer) -> F,
) -> ConnectError {
    let (a, b) = tokio::io::duplex(64 * 1024);
    let node = tls(PostQuantum::Hybrid);
    let (read, write) = tokio::io::split(b);
    let limits = SessionLimits::default();
    let acting = async { act(RawPeer::dial(a, &node, as_node).await).await };
    let accepting = accept_on(read, write, ADDRESS, &node, hello(), &limits);
    let ((), outcome) = both(acting, accepting).await;
    outcome.err().expect("refused")
}

/// Seconds since a moment, of the paused clock.
pub(crate) fn seconds_since(began: tokio::time::Instant) -> f64 {
    (clock::now() - began).as_secs_f64()
}
