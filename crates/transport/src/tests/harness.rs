//! Two sides of a session in one process over either carrier, and a side that says whatever a test wants.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Control, Frame, Hello};
use ron_kernel::clock;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::quic::Endpoint;
use crate::quic::tests::harness as packets;
use crate::{
    Carrier, Closed, ConnectError, Heard, NodeKey, PeerAddress, PostQuantum, Reader, Session, SessionLimits, Tls,
    accept, dial,
};

pub(crate) mod pipe;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Bytes that a pipe holds where nothing depends on it.
pub(crate) const PIPE_BYTES: usize = 64 * 1024;

/// What the two sides come to, dialler first.
pub(crate) type Outcomes = (Result<Session, ConnectError>, Result<Session, ConnectError>);

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

/// What two sides come to that say these first frames, in memory: over a pipe that holds this many bytes, or over a
/// network of packets, where the windows of the streams bound what is under way.
pub(crate) async fn outcomes_in_memory(
    carrier: Carrier,
    pipe_bytes: usize,
    hellos: [Hello; 2],
    limits: &SessionLimits,
) -> Outcomes {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    match carrier {
        Carrier::Tcp => pipe::outcomes(pipe_bytes, &dialler, &node, hellos, limits).await,
        Carrier::Quic => packets::Sides::new(&dialler, &node).outcomes(hellos, limits).await,
    }
}

/// The two sides in memory, dialler first.
pub(crate) async fn pair_with(carrier: Carrier, pipe_bytes: usize, limits: &SessionLimits) -> (Session, Session) {
    let (dialled, accepted) = outcomes_in_memory(carrier, pipe_bytes, [hello(), hello()], limits).await;
    (dialled.expect("dialled"), accepted.expect("accepted"))
}

pub(crate) async fn pair(carrier: Carrier) -> (Session, Session) {
    pair_with(carrier, PIPE_BYTES, &SessionLimits::default()).await
}

/// The socket at which a node is dialled, on loopback.
pub(crate) enum Socket {
    Tcp(TcpListener),
    Quic(Endpoint),
}

impl Socket {
    pub(crate) async fn bind(carrier: Carrier, node: &Tls) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        match carrier {
            Carrier::Tcp => Socket::Tcp(TcpListener::bind(address).await.expect("bound")),
            Carrier::Quic => Socket::Quic(Endpoint::bind(address, node).expect("bound")),
        }
    }

    /// Its address for those who expect this node there.
    pub(crate) fn address(&self, expected: &Tls) -> PeerAddress {
        let address = match self {
            Socket::Tcp(listener) => listener.local_addr().expect("bound").to_string(),
            Socket::Quic(endpoint) => format!("quic:{}", endpoint.local_addr().expect("bound")),
        };
        PeerAddress::new(expected.node_id(), &address).expect("an address")
    }

    pub(crate) async fn accept(&self, node: &Tls, limits: &SessionLimits) -> Result<Session, ConnectError> {
        match self {
            Socket::Tcp(listener) => {
                let (tcp, _) = listener.accept().await.expect("accepted");
                accept(tcp, node, hello(), limits).await
            }
            Socket::Quic(endpoint) => endpoint.incoming().await.expect("somebody").accept(hello(), limits).await,
        }
    }
}

/// What the two sides come to over sockets; a session outlives the socket at which it was accepted.
pub(crate) async fn over_sockets(carrier: Carrier, dialler: &Tls, node: &Tls, expected: &Tls) -> Outcomes {
    let (socket, limits) = (Socket::bind(carrier, node).await, SessionLimits::default());
    let address = socket.address(expected);
    both(dial(&address, dialler, hello(), &limits), socket.accept(node, &limits)).await
}

/// The two sides of a session over sockets, dialler first.
pub(crate) async fn pair_over_sockets(carrier: Carrier) -> (Session, Session) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (dialled, accepted) = over_sockets(carrier, &dialler, &node, &node).await;
    (dialled.expect("dialled"), accepted.expect("accepted"))
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

/// A side that has shown who it is and says what a test wants, byte by byte.
pub(crate) enum RawPeer {
    Tcp(pipe::RawPeer),
    Quic(packets::RawPeer),
}

impl RawPeer {
    /// Bytes of control frames. The other side may be gone.
    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        match self {
            RawPeer::Tcp(raw) => raw.say(bytes).await,
            RawPeer::Quic(raw) => raw.say(bytes).await,
        }
    }

    /// Bytes of other frames, all of one flow. The other side may be gone.
    pub(crate) async fn say_in_flow(&mut self, bytes: &[u8]) {
        match self {
            RawPeer::Tcp(raw) => raw.say(bytes).await,
            RawPeer::Quic(raw) => raw.say_in_flow(bytes).await,
        }
    }

    /// The next control frame of the other side that is no PING; nothing at its end.
    pub(crate) async fn hear(&mut self) -> Option<Frame> {
        match self {
            RawPeer::Tcp(raw) => raw.hear().await,
            RawPeer::Quic(raw) => raw.hear().await,
        }
    }

    /// The next frame of the other side's first flow.
    pub(crate) async fn hear_in_flow(&mut self) -> Option<Frame> {
        match self {
            RawPeer::Tcp(raw) => raw.hear().await,
            RawPeer::Quic(raw) => raw.hear_in_flow().await,
        }
    }

    /// The code of the farewell that comes next, and that nothing follows it.
    pub(crate) async fn farewell(&mut self) -> Option<u16> {
        farewell(async || self.hear().await).await
    }

    /// Has the keys of this direction changed with what is said next.
    pub(crate) fn refresh_keys(&mut self) {
        match self {
            RawPeer::Tcp(raw) => raw.refresh_keys(),
            RawPeer::Quic(raw) => raw.connection.force_key_update(),
        }
    }

    /// Ends the connection, and not in order.
    pub(crate) fn cut_off(self) {
        match self {
            RawPeer::Tcp(raw) => drop(raw),
            RawPeer::Quic(raw) => raw.connection.close(0u8.into(), b""),
        }
    }
}

/// The code of the farewell that is heard next, and that nothing follows it.
pub(crate) async fn farewell(mut hear: impl AsyncFnMut() -> Option<Frame>) -> Option<u16> {
    let control = Control::parse(&hear().await?).expect("a control frame");
    let Control::GoAway { code, .. } = control else { panic!("{control:?}") };
    assert!(hear().await.is_none(), "then it ends");
    Some(code)
}

/// A node's side and a raw one that has said HELLO and heard it.
pub(crate) async fn raw_pair(carrier: Carrier, pipe_bytes: usize, limits: &SessionLimits) -> (RawPeer, Session) {
    match carrier {
        Carrier::Tcp => {
            let (raw, session) = pipe::raw_pair(pipe_bytes, limits).await;
            (RawPeer::Tcp(raw), session)
        }
        Carrier::Quic => {
            let (raw, session, _) = packets::raw_pair(limits).await;
            (RawPeer::Quic(raw), session)
        }
    }
}

/// What a node's side makes of a raw one.
pub(crate) async fn accept_raw<F: Future<Output = ()>>(
    carrier: Carrier,
    as_node: Option<&Tls>,
    act: impl FnOnce(RawPeer) -> F,
) -> ConnectError {
    match carrier {
        Carrier::Tcp => pipe::accept_raw(as_node, |raw| act(RawPeer::Tcp(raw))).await,
        Carrier::Quic => packets::accept_raw(as_node, |raw| act(RawPeer::Quic(raw))).await,
    }
}

/// What a session makes of these bytes of control frames and of other frames: the numbers of the frames it heard, how
/// it ended, and the code that the sender is told.
pub(crate) async fn refusal(carrier: Carrier, control: &[u8], in_flow: &[u8]) -> (Vec<u64>, Closed, Option<u16>) {
    let (mut raw, session) = raw_pair(carrier, PIPE_BYTES, &SessionLimits::default()).await;
    let mut set = JoinSet::new();
    run(&mut set, session.writer);
    let mut reader = session.reader;
    raw.say(control).await;
    raw.say_in_flow(in_flow).await;
    let (heard, closed) = hear_all(&mut reader).await;
    let told = raw.farewell().await;
    assert!(session.outbox.push(1, frame(2, 1)).is_err(), "nothing is taken any more");
    (numbers(&heard), closed, told)
}

/// Seconds since a moment, of the paused clock.
pub(crate) fn seconds_since(began: tokio::time::Instant) -> f64 {
    (clock::now() - began).as_secs_f64()
}
