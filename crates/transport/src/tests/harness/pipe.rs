//! Two sides over a pipe in memory, with TLS as over TCP, and a side that says whatever a test wants inside and under
//! TLS.

use std::net::SocketAddr;
use std::time::Duration;

use oap::{Control, Frame, Hello};
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::{Outcomes, PIPE_BYTES, both, hello, tls};
use crate::connect::Beginning;
use crate::records::{Outgoing, Side};
use crate::{ConnectError, PostQuantum, Session, SessionLimits, Tls, accept_on, dial_on};

/// A pipe has no addresses; sessions are told this one.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

/// Accepts at one end of a pipe.
pub(crate) async fn accept(
    pipe: DuplexStream,
    node: &Tls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let (read, write) = tokio::io::split(pipe);
    accept_on(read, write, ADDRESS, node, hello, limits).await
}

/// Dials a node at one end of a pipe.
pub(crate) async fn dial(
    pipe: DuplexStream,
    dialler: &Tls,
    node: &Tls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let (read, write) = tokio::io::split(pipe);
    dial_on(read, write, ADDRESS, node.node_id(), dialler, hello, limits).await
}

/// What the two sides come to that say these first frames.
pub(crate) async fn outcomes(
    pipe_bytes: usize,
    dialler: &Tls,
    node: &Tls,
    [ours, theirs]: [Hello; 2],
    limits: &SessionLimits,
) -> Outcomes {
    let (a, b) = tokio::io::duplex(pipe_bytes);
    both(dial(a, dialler, node, ours, limits), accept(b, node, theirs, limits)).await
}

/// What a node makes of a dialling side with settings of its own.
pub(crate) async fn refusal_of(config: rustls::ClientConfig, node: &Tls) -> ConnectError {
    let name = rustls::pki_types::ServerName::try_from("oap.invalid").expect("a name");
    let side = rustls::client::UnbufferedClientConnection::new(config.into(), name).expect("a side");
    let (a, b) = tokio::io::duplex(PIPE_BYTES);
    let limits = SessionLimits::default();
    let (read, write) = tokio::io::split(a);
    let mut dialler = Beginning::new(read, write, Side::Client(Box::new(side)), PostQuantum::Hybrid, &limits);
    let (_, accepted) = both(dialler.handshake(), accept(b, node, hello(), &limits)).await;
    accepted.err().expect("refused")
}

/// A side that has TLS and says what a test wants, byte by byte.
pub(crate) struct RawPeer {
    beginning: Beginning,
}

impl RawPeer {
    /// Dials over a pipe; the other end of it is to be accepted. TLS is done when this is.
    async fn dial(pipe: DuplexStream, node: &Tls, as_node: Option<&Tls>) -> Self {
        let limits = SessionLimits { handshake_timeout: Duration::from_secs(3600), ..SessionLimits::default() };
        let anonymous = crate::tls::ClientTls::anonymous(PostQuantum::Hybrid);
        let client = as_node.map_or(&anonymous, Tls::client);
        let side = crate::connect::client_side(client, node.node_id()).expect("a side");
        let (read, write) = tokio::io::split(pipe);
        let mut beginning = Beginning::new(read, write, side, PostQuantum::Hybrid, &limits);
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
    pub(super) fn refresh_keys(&mut self) {
        self.beginning.records.refresh_keys();
    }

    /// The next frame of the other side that is no PING; nothing at its end.
    pub(super) async fn hear(&mut self) -> Option<Frame> {
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
    let dialling = async {
        let mut raw = RawPeer::dial(a, &node, None).await;
        raw.say(&Control::Hello(hello()).to_frame().to_bytes()).await;
        raw.hear().await.expect("their HELLO");
        raw
    };
    let (raw, session) = both(dialling, accept(b, &node, hello(), limits)).await;
    (raw, session.expect("a session"))
}

/// What a node's side makes of a raw one.
pub(super) async fn accept_raw<F: Future<Output = ()>>(
    as_node: Option<&Tls>,
    act: impl FnOnce(RawPeer) -> F,
) -> ConnectError {
    let (a, b) = tokio::io::duplex(PIPE_BYTES);
    let node = tls(PostQuantum::Hybrid);
    let limits = SessionLimits::default();
    let acting = async { act(RawPeer::dial(a, &node, as_node).await).await };
    let ((), outcome) = both(acting, accept(b, &node, hello(), &limits)).await;
    outcome.err().expect("refused")
}
