//! How a session begins: connection, TLS, HELLO, each within its time.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use oap::{Agreed, Control, FEATURE_ZSTD, Frame, HEADER_BYTES, HELLO_BYTES_MAX, Hello, negotiate};
use ron_kernel::Deadline;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, CertificateError, OtherError, PeerIncompatible};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::address::{Carrier, PeerAddress};
use crate::closed::{BadHello, ConnectError, Stage};
use crate::identity::NodeId;
use crate::limits::SessionLimits;
use crate::outbox::Outbox;
use crate::reader::{Dry, Input, Reader, Source};
use crate::records::{Outgoing, Records, Side};
use crate::scheduler::Bounds;
use crate::session::{Direction, Remote, Session, SessionFacts};
use crate::tls::{ClientTls, PostQuantum, Tls, group_name, pin};
use crate::writer::{Output, Writer};

/// The first frame of a connection: a kind byte and the JSON of HELLO.
pub(crate) const FIRST_FRAME_BYTES_MAX: usize = HEADER_BYTES + 1 + HELLO_BYTES_MAX;

/// Takes a connection that somebody else made: TLS and HELLO within [`SessionLimits::handshake_timeout`].
///
/// A side with a certificate is the node whose key it has; whether that node is welcome is for the caller to judge.
pub async fn accept(tcp: TcpStream, tls: &Tls, hello: Hello, limits: &SessionLimits) -> Result<Session, ConnectError> {
    tcp.set_nodelay(true)?;
    let address = tcp.peer_addr()?;
    let (reader, writer) = tcp.into_split();
    accept_on(reader, writer, address, tls, hello, limits).await
}

/// [`accept`] on another kind of connection.
pub async fn accept_on(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    address: SocketAddr,
    tls: &Tls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let side = Side::Server(Box::new(UnbufferedServerConnection::new(tls.server())?));
    let hello = Hello { node_id: Some(tls.node_id().to_string()), ..hello };
    let beginning = Beginning::new(reader, writer, side, tls.post_quantum(), limits);
    beginning.establish(Direction::In, address, hello, limits).await
}

/// Dials a node as a node. Another node than the one named in the address never gets a session.
pub async fn dial(
    peer: &PeerAddress,
    tls: &Tls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let hello = Hello { node_id: Some(tls.node_id().to_string()), ..hello };
    dial_by_carrier(peer, tls.client(), hello, limits).await
}

/// Dials a node as a client, which shows no certificate; what it may do, its token says.
pub async fn dial_as_client(
    node: &PeerAddress,
    post_quantum: PostQuantum,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let hello = Hello { node_id: None, ..hello };
    dial_by_carrier(node, &ClientTls::anonymous(post_quantum), hello, limits).await
}

/// [`dial`] on a connection that is there already.
pub async fn dial_on(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    address: SocketAddr,
    expected: NodeId,
    tls: &Tls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    let hello = Hello { node_id: Some(tls.node_id().to_string()), ..hello };
    let side = client_side(tls.client(), expected)?;
    let beginning = Beginning::new(reader, writer, side, tls.post_quantum(), limits);
    beginning.establish(Direction::Out, address, hello, limits).await
}

async fn dial_by_carrier(
    peer: &PeerAddress,
    tls: &ClientTls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    match peer.carrier {
        Carrier::Tcp => dial_tcp(peer, tls, hello, limits).await,
        // Boxed: it is larger than the other, and those who dial over TCP would carry it along.
        Carrier::Quic => Box::pin(crate::quic::dial(peer, tls, hello, limits)).await,
    }
}

async fn dial_tcp(
    peer: &PeerAddress,
    tls: &ClientTls,
    hello: Hello,
    limits: &SessionLimits,
) -> Result<Session, ConnectError> {
    // The way there has a time of its own: through a proxy or over DNS it may take as long as the handshake.
    let connecting = TcpStream::connect((peer.host.as_str(), peer.port));
    let tcp = Deadline::after(limits.handshake_timeout)
        .run("connect", connecting)
        .await
        .map_err(|_| ConnectError::Timeout { stage: Stage::Connect })??;
    tcp.set_nodelay(true)?;
    let address = tcp.peer_addr()?;
    let (reader, writer) = tcp.into_split();
    let beginning = Beginning::new(reader, writer, client_side(tls, peer.node_id)?, tls.post_quantum(), limits);
    beginning.establish(Direction::Out, address, hello, limits).await
}

pub(crate) fn client_side(tls: &ClientTls, expected: NodeId) -> Result<Side, ConnectError> {
    // Neither sent nor checked: the pin takes its place.
    let name = ServerName::try_from("oap.invalid").expect("a valid name");
    Ok(Side::Client(Box::new(UnbufferedClientConnection::new(tls.pinned_to(expected)?, name)?)))
}

/// A session before it is one.
pub(crate) struct Beginning {
    pub(crate) source: Source,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub(crate) records: Arc<Records>,
    post_quantum: PostQuantum,
    deadline: Deadline,
}

impl Beginning {
    pub(crate) fn new(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        side: Side,
        post_quantum: PostQuantum,
        limits: &SessionLimits,
    ) -> Self {
        let records = Arc::new(Records::new(side));
        Beginning {
            source: Source::new(Box::new(reader), Arc::clone(&records), FIRST_FRAME_BYTES_MAX),
            writer: Box::new(writer),
            records,
            post_quantum,
            deadline: Deadline::after(limits.handshake_timeout),
        }
    }

    async fn establish(
        mut self,
        direction: Direction,
        address: SocketAddr,
        hello: Hello,
        limits: &SessionLimits,
    ) -> Result<Session, ConnectError> {
        let deadline = self.deadline;
        let too_late = |stage| move |_| ConnectError::Timeout { stage };
        deadline.run("tls_handshake", self.handshake()).await.map_err(too_late(Stage::Tls))??;
        let remote = self.remote()?;
        let hello = within_limits(hello, limits);
        let exchange = self.exchange_hello(&hello, remote);
        let (their_hello, agreed) = deadline.run("hello", exchange).await.map_err(too_late(Stage::Hello))??;
        let tls_group = self
            .records
            .inspect(|common| common.negotiated_key_exchange_group().map_or("none", |group| group_name(group.name())));
        let facts = SessionFacts { remote, direction, address, tls_group, agreed, their_hello };
        tracing::debug!(?remote, ?direction, %address, tls_group, "session open");
        Ok(self.into_session(facts, limits))
    }

    /// TLS until both sides have finished, and have shown that they mean this protocol.
    pub(crate) async fn handshake(&mut self) -> Result<(), ConnectError> {
        // The dialling side speaks first.
        let begun = self.records.open(&mut [], 0, self.source.decoder.buffer());
        begun.map_err(|error| connect_error(error, self.post_quantum))?;
        loop {
            self.send_unsent().await?;
            if !self.records.is_handshaking() {
                break;
            }
            if let Err(dry) = self.fill().await {
                // The alert that was made of the error; whether it arrives is not worth another error.
                let _ = self.send_unsent().await;
                return Err(dry);
            }
        }
        let speaks_oap = self.records.inspect(|common| common.alpn_protocol() == Some(oap::ALPN));
        if speaks_oap { Ok(()) } else { Err(rustls::Error::NoApplicationProtocol.into()) }
    }

    /// The node whose certificate was shown, if one was.
    fn remote(&self) -> Result<Remote, ConnectError> {
        let node = self.records.inspect(|common| match common.peer_certificates() {
            Some([certificate, rest @ ..]) => pin::node_of(certificate, rest).map(Some),
            _ => Ok(None),
        });
        Ok(node?.map_or(Remote::Client, Remote::Node))
    }

    /// Both sides say HELLO without waiting for the other's; a refusal is said before the end.
    async fn exchange_hello(&mut self, ours: &Hello, remote: Remote) -> Result<(Hello, Agreed), ConnectError> {
        self.send(&Control::Hello(ours.clone()).to_frame()).await?;
        let outcome = match self.first_frame().await? {
            Ok(Control::GoAway { code, reason, .. }) => return Err(ConnectError::Refused(code, reason)),
            Ok(Control::Hello(theirs)) => judge(ours, theirs, remote),
            Ok(_) => Err(BadHello::Absent.into()),
            Err(bad) => Err(bad.into()),
        };
        if let Err(error) = &outcome {
            let (code, reason) = (error.farewell_code(), error.to_string());
            let _ = self.send(&Control::GoAway { code, last_corr: 0, reason }.to_frame()).await;
            let mut sealed = Outgoing::default();
            let _ = self.records.seal_end(&mut sealed);
            let _ = self.write(sealed.filled()).await;
            let _ = self.writer.shutdown().await;
        }
        outcome
    }

    async fn first_frame(&mut self) -> Result<Result<Control, BadHello>, ConnectError> {
        loop {
            match self.source.decoder.next() {
                Ok(Some(frame)) => return Ok(Control::parse(&frame).map_err(BadHello::from)),
                Ok(None) => self.fill().await?,
                Err(error) => return Ok(Err(error.into())),
            }
        }
    }

    fn into_session(mut self, facts: SessionFacts, limits: &SessionLimits) -> Session {
        self.source.decoder.set_frame_bytes_max(facts.agreed.max_frame);
        new_session(facts, self.source.into(), Output::tls(self.writer, self.records), limits)
    }

    pub(crate) async fn fill(&mut self) -> Result<(), ConnectError> {
        let filled = poll_fn(|context| self.source.poll_fill(context)).await;
        filled.map_err(|dry| match dry {
            Dry::End => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            Dry::Io(error) => error.into(),
            Dry::Tls(error) => connect_error(error, self.post_quantum),
            Dry::NotAgreed(what) => io::Error::new(io::ErrorKind::InvalidData, what).into(),
        })
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), ConnectError> {
        let mut sealed = Outgoing::default();
        self.records.seal(&frame.to_bytes(), &mut sealed)?;
        Ok(self.write(sealed.filled()).await?)
    }

    async fn send_unsent(&mut self) -> io::Result<()> {
        let mut unsent = Outgoing::default();
        self.records.take_unsent(&mut unsent);
        self.write(unsent.filled()).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await
    }
}

/// A session on a connection that has said and heard HELLO.
pub(crate) fn new_session(facts: SessionFacts, input: Input, output: Output, limits: &SessionLimits) -> Session {
    let frame_bytes_max = facts.agreed.max_frame;
    let bounds = Bounds {
        // A frame as large as agreed must fit, or it could never be sent.
        bytes_max: limits.egress_bytes_max.max(frame_bytes_max),
        frames_max: limits.egress_frames_max.max(1),
        control_bytes_max: limits.control_bytes_reserve,
    };
    let outbox = Outbox::new(bounds, frame_bytes_max);
    let limits = Arc::new(limits.clone());
    let inflates = facts.agreed.has(FEATURE_ZSTD);
    let reader = Reader::new(input, outbox.clone(), Arc::clone(&limits), inflates);
    let writer = Writer::new(output, outbox.clone(), limits);
    Session { facts: Arc::new(facts), reader, writer, outbox }
}

/// What is said to the other side: no larger frames than the limits allow.
pub(crate) fn within_limits(hello: Hello, limits: &SessionLimits) -> Hello {
    let frame_bytes_max = u32::try_from(limits.frame_bytes_max).unwrap_or(u32::MAX);
    Hello { max_frame: hello.max_frame.min(frame_bytes_max), ..hello }
}

/// Whether a HELLO fits ours, and fits who its sender is.
pub(crate) fn judge(ours: &Hello, theirs: Hello, remote: Remote) -> Result<(Hello, Agreed), ConnectError> {
    let claimed: Option<NodeId> = theirs.node_id.as_deref().and_then(|id| id.parse().ok());
    match (remote, claimed) {
        (Remote::Node(expected), Some(got)) if got != expected => return Err(ConnectError::WrongPin { expected, got }),
        (Remote::Client, Some(_)) => return Err(BadHello::Unproven.into()),
        _ => {}
    }
    let agreed = negotiate(ours, &theirs).map_err(BadHello::from)?;
    Ok((theirs, agreed))
}

fn connect_error(error: rustls::Error, post_quantum: PostQuantum) -> ConnectError {
    use rustls::Error::{AlertReceived, InvalidCertificate, PeerIncompatible as Incompatible};
    if let InvalidCertificate(CertificateError::Other(OtherError(inner))) = &error
        && let Some(wrong) = inner.downcast_ref::<pin::WrongPin>()
    {
        return ConnectError::WrongPin { expected: wrong.expected, got: wrong.got };
    }
    let no_group_in_common = matches!(
        error,
        Incompatible(PeerIncompatible::NoKxGroupsInCommon) | AlertReceived(AlertDescription::HandshakeFailure)
    );
    // A side that can do both has a group in common with every side of ours.
    if no_group_in_common && post_quantum != PostQuantum::Hybrid {
        return ConnectError::NotPostQuantum;
    }
    ConnectError::Tls(error)
}
