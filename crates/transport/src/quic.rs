//! QUIC as a second carrier of sessions: the same identities, HELLO, bounds and deadlines, and a stream for each flow.
//!
//! [`Incoming::accept`] makes the same [`Session`] as [`crate::accept`], and [`crate::dial`] dials what is written as
//! `NODEID@quic:HOST:PORT`. Each side opens one stream for its control frames and up to [`LANES_MAX`] for the frames of
//! its flows, so that a packet that is lost holds up one flow and not the others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use oap::{Agreed, Control, Hello};
use quinn::crypto::rustls::HandshakeData;
use ron_kernel::Deadline;
use rustls::pki_types::CertificateDer;

use crate::address::PeerAddress;
use crate::closed::{BadHello, ConnectError, Stage};
use crate::connect::{judge, new_session, within_limits};
use crate::identity::NodeId;
use crate::limits::SessionLimits;
use crate::session::{Direction, Remote, Session, SessionFacts};
use crate::tls::{ClientTls, PostQuantum, Tls, group_name, pin};

mod config;
mod error;
mod input;
mod output;
#[cfg(test)]
pub(crate) mod tests;

pub use config::{LANES_MAX, session_bytes_max};
pub(crate) use input::Input;
pub(crate) use output::Output;

/// Priority of the control stream; all others have 0.
const CONTROL_PRIORITY: i32 = 1;

/// The UDP socket that a node is dialled at. Sessions outlive it.
pub struct Endpoint {
    inner: quinn::Endpoint,
    tls: Tls,
}

/// Somebody who wants a session, and has shown to be at the address it writes from. Dropped, it is refused.
pub struct Incoming {
    inner: quinn::Incoming,
    tls: Tls,
}

impl Endpoint {
    /// Listens on a UDP address. There has to be a tokio runtime.
    pub fn bind(address: SocketAddr, tls: &Tls) -> io::Result<Self> {
        Endpoint::from_socket(std::net::UdpSocket::bind(address)?, tls)
    }

    /// [`Endpoint::bind`] on a socket that is bound already.
    pub fn from_socket(socket: std::net::UdpSocket, tls: &Tls) -> io::Result<Self> {
        let server = config::server(tls, &SessionLimits::default()).map_err(io::Error::other)?;
        let runtime = Arc::new(quinn::TokioRuntime);
        let inner = quinn::Endpoint::new(config::endpoint(tls), Some(server), socket, runtime)?;
        Ok(Endpoint { inner, tls: tls.clone() })
    }

    /// An endpoint on a network of a test.
    #[cfg(test)]
    fn on(socket: Arc<dyn quinn::AsyncUdpSocket>, tls: &Tls) -> Self {
        let server = config::server(tls, &SessionLimits::default()).expect("settings");
        let (config, runtime) = (config::endpoint(tls), Arc::new(quinn::TokioRuntime));
        let inner = quinn::Endpoint::new_with_abstract_socket(config, Some(server), socket, runtime);
        Endpoint { inner: inner.expect("an endpoint"), tls: tls.clone() }
    }

    /// Address of the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The next one who wants a session; none after [`Endpoint::refuse_new`]. Cancel safe.
    ///
    /// Who writes from an address for the first time is sent away with a token and has to come back with it: what
    /// counts by address must not count for somebody else's, and a packet with a false address costs one answer that
    /// is smaller than itself.
    pub async fn incoming(&self) -> Option<Incoming> {
        loop {
            let inner = self.inner.accept().await?;
            if inner.remote_address_validated() {
                return Some(Incoming { inner, tls: self.tls.clone() });
            }
            // What cannot be sent away with a token is refused, by being dropped.
            let _ = inner.retry();
        }
    }

    /// Takes nobody any more, while sessions go on.
    pub fn refuse_new(&self) {
        self.inner.set_server_config(None);
    }
}

/// Dials a node from a socket of its own, as over TCP; the socket ends with the session.
pub(crate) async fn dial(
    peer: &PeerAddress,
    tls: &ClientTls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    // The way there has a time of its own, as over TCP.
    let address = Deadline::after(limits.handshake_timeout)
        .run("connect", address_of(peer))
        .await
        .map_err(|_| ConnectError::Timeout { stage: Stage::Connect })??;
    let any = if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = quinn::Endpoint::client(SocketAddr::new(any, 0))?;
    dial_from(&socket, address, peer.node_id, tls, hello, limits).await
}

/// The first address of a name.
async fn address_of(peer: &PeerAddress) -> io::Result<SocketAddr> {
    let mut found = tokio::net::lookup_host((peer.host.as_str(), peer.port)).await?;
    found.next().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

async fn dial_from(
    socket: &quinn::Endpoint,
    address: SocketAddr,
    node_id: NodeId,
    tls: &ClientTls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let deadline = Deadline::after(limits.handshake_timeout);
    let expected = tls.pin_of(node_id);
    let config = config::client(tls, Arc::clone(&expected), limits)?;
    // The name is neither sent nor checked: the pin takes its place.
    let connecting = socket.connect_with(config, address, "oap.invalid").map_err(io::Error::other)?;
    let connection = connected(connecting, deadline, tls.post_quantum()).await;
    // The library keeps the text of an error and not the error; the pin itself knows whom it has refused.
    let connection = connection.map_err(|error| match expected.refused() {
        Some(wrong) => ConnectError::WrongPin { expected: wrong.expected, got: wrong.got },
        None => error,
    })?;
    establish(connection, Direction::Out, tls.post_quantum(), hello, deadline, limits).await
}

impl Incoming {
    /// Where it writes from.
    pub fn address(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// Refuses it.
    pub fn refuse(self) {
        self.inner.refuse();
    }

    /// TLS and HELLO within [`SessionLimits::handshake_timeout`].
    ///
    /// A side with a certificate is the node whose key it has; whether that node is welcome is for the caller to judge.
    pub async fn accept(self, hello: Hello, limits: &SessionLimits) -> Result<Session, ConnectError> {
        let deadline = Deadline::after(limits.handshake_timeout);
        let Incoming { inner, tls } = self;
        let policy = tls.post_quantum();
        let config = Arc::new(config::server(&tls, limits)?);
        let connecting = inner.accept_with(config).map_err(|lost| error::of(lost, policy))?;
        let connection = connected(connecting, deadline, policy).await?;
        let hello = Hello { node_id: Some(tls.node_id().to_string()), ..hello };
        establish(connection, Direction::In, policy, hello, deadline, limits).await
    }
}

async fn connected(
    connecting: quinn::Connecting,
    deadline: Deadline,
    policy: PostQuantum,
) -> Result<quinn::Connection, ConnectError> {
    let outcome = deadline.run("quic_handshake", connecting).await;
    outcome.map_err(|_| ConnectError::Timeout { stage: Stage::Tls })?.map_err(|lost| error::of(lost, policy))
}

/// From the end of the handshake to the session.
async fn establish(
    connection: quinn::Connection,
    direction: Direction,
    policy: PostQuantum,
    hello: Hello,
    deadline: Deadline,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let tls_group = group_of(&connection)?;
    let (remote, address) = (remote_of(&connection)?, connection.remote_address());
    let hello = within_limits(hello, limits);
    let exchange = deadline.run("hello", exchange_hello(&connection, &hello, remote)).await;
    let exchanged = exchange.map_err(|_| ConnectError::Timeout { stage: Stage::Hello })?;
    let Exchanged { their_hello, agreed, mut input, output } = match (exchanged, connection.close_reason()) {
        // A dialling side is done with TLS before the other has seen its certificate, and may hear of a refusal now.
        (Err(ConnectError::Io(_)), Some(lost)) => return Err(error::of(lost, policy)),
        (exchanged, _) => exchanged?,
    };
    input.open(agreed.max_frame);
    let facts = SessionFacts { remote, direction, address, tls_group, agreed, their_hello };
    tracing::debug!(?remote, ?direction, %address, tls_group, "session open over QUIC");
    Ok(new_session(facts, crate::reader::Input::Quic(input), crate::writer::Output::Quic(output), limits))
}

/// The group of the key exchange, if this protocol is what the other side means.
fn group_of(connection: &quinn::Connection) -> Result<&'static str, ConnectError> {
    let handshake = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    match handshake {
        Some(handshake) if handshake.protocol.as_deref() == Some(oap::ALPN) => {
            Ok(group_name(handshake.negotiated_key_exchange_group))
        }
        _ => Err(rustls::Error::NoApplicationProtocol.into()),
    }
}

/// The node whose certificate was shown, if one was.
fn remote_of(connection: &quinn::Connection) -> Result<Remote, ConnectError> {
    let shown = connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'static>>>().ok());
    match shown.as_deref().map(Vec::as_slice) {
        Some([certificate, rest @ ..]) => Ok(Remote::Node(pin::node_of(certificate, rest)?)),
        _ => Ok(Remote::Client),
    }
}

/// What the exchange of HELLO comes to.
struct Exchanged {
    their_hello: Hello,
    agreed: Agreed,
    input: Input,
    output: Output,
}

/// Both sides say HELLO on their first stream without waiting for the other's; a refusal is said before the end.
async fn exchange_hello(
    connection: &quinn::Connection,
    ours: &Hello,
    remote: Remote,
) -> Result<Exchanged, ConnectError> {
    let mut control = connection.open_uni().await.map_err(io::Error::from)?;
    // Fails only for a stream that has ended.
    let _ = control.set_priority(CONTROL_PRIORITY);
    control.write_chunk(Control::Hello(ours.clone()).to_frame().to_bytes()).await.map_err(io::Error::from)?;
    let mut input = Input::new(connection);
    let outcome = match input.first_frame().await?.and_then(|frame| Ok(Control::parse(&frame)?)) {
        Ok(Control::GoAway { code, reason, .. }) => return Err(ConnectError::Refused(code, reason)),
        Ok(Control::Hello(theirs)) => judge(ours, theirs, remote),
        Ok(_) => Err(BadHello::Absent.into()),
        Err(bad) => Err(bad.into()),
    };
    match outcome {
        Ok((their_hello, agreed)) => {
            let output = Output::new(connection.clone(), control);
            Ok(Exchanged { their_hello, agreed, input, output })
        }
        Err(error) => {
            let (code, reason) = (error.farewell_code(), error.to_string());
            let farewell = Control::GoAway { code, last_corr: 0, reason }.to_frame().to_bytes();
            let _ = control.write_chunk(farewell).await;
            let _ = control.finish();
            // Until it has arrived: the end of the connection would overtake it.
            let _ = control.stopped().await;
            Err(error)
        }
    }
}
