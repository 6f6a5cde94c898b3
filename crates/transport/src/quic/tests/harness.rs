//! Two sides of a session over QUIC, and a side that says whatever a test wants on whatever stream.

use std::sync::Arc;

use oap::{Control, Decoder, Frame, Hello};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, RecvStream, SendStream};

use super::network::Network;
use crate::quic::{Endpoint, config, dial_from};
use crate::tests::harness::{Outcomes, farewell};
pub(super) use crate::tests::harness::{SECOND, both, frame, hear_all, hello, numbers, run, seconds_since, tls};
use crate::tls::ClientTls;
use crate::{ConnectError, PostQuantum, Session, SessionLimits, Tls};

/// The two sides, dialler first, on a network in memory.
pub(crate) struct Sides {
    pub(super) network: Arc<Network>,
    pub(super) dialler: Endpoint,
    pub(super) node: Endpoint,
}

impl Sides {
    pub(crate) fn new(dialler: &Tls, node: &Tls) -> Self {
        let network = Arc::new(Network::default());
        let endpoint = |own, tls| Endpoint::on(network.socket(own), tls);
        Sides { dialler: endpoint(0, dialler), node: endpoint(1, node), network: Arc::clone(&network) }
    }

    pub(crate) async fn dial(&self, hello: Hello, limits: &SessionLimits) -> Result<Session, ConnectError> {
        let hello = Hello { node_id: Some(self.dialler.tls.node_id().to_string()), ..hello };
        let (address, node_id) = (Network::address(1), self.node.tls.node_id());
        dial_from(&self.dialler.inner, address, node_id, self.dialler.tls.client(), hello, limits).await
    }

    pub(super) async fn accept(&self, hello: Hello, limits: &SessionLimits) -> Result<Session, ConnectError> {
        self.node.incoming().await.expect("somebody").accept(hello, limits).await
    }

    /// From now on all packets are lost.
    pub(crate) fn cut_off(&self) {
        self.network.lose(true);
    }

    /// What the two sides come to that say these first frames.
    pub(crate) async fn outcomes(&self, [ours, theirs]: [Hello; 2], limits: &SessionLimits) -> Outcomes {
        both(self.dial(ours, limits), self.accept(theirs, limits)).await
    }
}

/// The two sides of a session, dialler first, and their network.
pub(super) async fn pair() -> (Session, Session, Arc<Network>) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let sides = Sides::new(&dialler, &node);
    let (dialled, accepted) = sides.outcomes([hello(), hello()], &SessionLimits::default()).await;
    (dialled.expect("dialled"), accepted.expect("accepted"), sides.network)
}

/// What a node makes of a dialling side with settings of its own.
pub(crate) async fn refusal_of(config: rustls::ClientConfig, node: &Tls) -> ConnectError {
    let (sides, limits) = (Sides::new(node, node), SessionLimits::default());
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).expect("settings")));
    let connecting = sides.dialler.inner.connect_with(config, Network::address(1), "oap.invalid").expect("dialled");
    let (_, accepted) = both(connecting, sides.accept(hello(), &limits)).await;
    accepted.err().expect("refused")
}

/// A side that is connected and has said nothing.
pub(crate) struct RawPeer {
    pub(crate) connection: Connection,
    pub(super) control: SendStream,
    /// The stream of its one flow, once something was said in it.
    flow: Option<SendStream>,
    heard_control: HeardStream,
    heard_flow: HeardStream,
}

/// A stream of the other side, once it has opened one.
struct HeardStream {
    stream: Option<RecvStream>,
    decoder: Decoder,
}

impl RawPeer {
    pub(super) async fn dial(endpoint: &Endpoint, node: &Tls, as_node: Option<&Tls>) -> Self {
        let anonymous = ClientTls::anonymous(PostQuantum::Hybrid);
        let client = as_node.map_or(&anonymous, Tls::client);
        let config = config::client(client, client.pin_of(node.node_id()), &SessionLimits::default());
        let config = config.expect("settings");
        let connecting = endpoint.inner.connect_with(config, Network::address(1), "oap.invalid").expect("dialled");
        let connection = connecting.await.expect("connected");
        let control = connection.open_uni().await.expect("a stream");
        let [heard_control, heard_flow] =
            [(); 2].map(|()| HeardStream { stream: None, decoder: Decoder::new(oap::FRAME_BYTES_MAX) });
        RawPeer { connection, control, flow: None, heard_control, heard_flow }
    }

    /// Bytes on the control stream. The other side may be gone.
    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        let _ = self.control.write_all(bytes).await;
    }

    /// Bytes on the stream of its one flow. The other side may be gone.
    pub(crate) async fn say_in_flow(&mut self, bytes: &[u8]) {
        if self.flow.is_none() {
            self.flow = self.connection.open_uni().await.ok();
        }
        if let Some(stream) = &mut self.flow {
            let _ = stream.write_all(bytes).await;
        }
    }

    /// A further stream, with bytes on it.
    pub(super) async fn open_with(&self, bytes: &[u8]) -> SendStream {
        let mut stream = self.connection.open_uni().await.expect("a stream");
        stream.write_all(bytes).await.expect("written");
        stream
    }

    /// The next frame of the other side's control stream that is no PING; nothing at its end.
    pub(crate) async fn hear(&mut self) -> Option<Frame> {
        loop {
            let frame = self.heard_control.next(&self.connection).await?;
            if !matches!(Control::parse(&frame), Ok(Control::Ping { .. })) {
                return Some(frame);
            }
        }
    }

    /// The next frame of the other side's first flow; its HELLO was heard before.
    pub(crate) async fn hear_in_flow(&mut self) -> Option<Frame> {
        self.heard_flow.next(&self.connection).await
    }

    /// The code of the farewell that comes next, and that nothing follows it.
    pub(super) async fn farewell(&mut self) -> Option<u16> {
        farewell(async || self.hear().await).await
    }
}

impl HeardStream {
    /// The next frame; nothing at the end of the stream.
    async fn next(&mut self, connection: &Connection) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next().expect("frames") {
                return Some(frame);
            }
            if self.stream.is_none() {
                self.stream = Some(connection.accept_uni().await.ok()?);
            }
            let stream = self.stream.as_mut().expect("just accepted");
            let chunk = stream.read_chunk(4096, true).await.ok()??;
            self.decoder.buffer().extend_from_slice(&chunk.bytes);
        }
    }
}

/// A node's side and a raw one that has said HELLO and heard it.
pub(crate) async fn raw_pair(limits: &SessionLimits) -> (RawPeer, Session, Sides) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let sides = Sides::new(&dialler, &node);
    let dialling = async {
        let mut raw = RawPeer::dial(&sides.dialler, &node, None).await;
        raw.say(&Control::Hello(hello()).to_frame().to_bytes()).await;
        raw.hear().await.expect("their HELLO");
        raw
    };
    let (raw, session) = both(dialling, sides.accept(hello(), limits)).await;
    (raw, session.expect("a session"), sides)
}

/// What a node's side makes of a raw one.
pub(crate) async fn accept_raw<F: Future<Output = ()>>(
    as_node: Option<&Tls>,
    act: impl FnOnce(RawPeer) -> F,
) -> ConnectError {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let sides = Sides::new(&dialler, &node);
    let acting = async { act(RawPeer::dial(&sides.dialler, &node, as_node).await).await };
    let limits = SessionLimits::default();
    let ((), outcome) = both(acting, sides.accept(hello(), &limits)).await;
    outcome.err().expect("refused")
}
