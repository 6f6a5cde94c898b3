//! Two sides of a session over QUIC, and a side that says whatever a test wants on whatever stream.

use std::sync::Arc;

use oap::{Control, Decoder, Frame, Hello};
use quinn::{Connection, RecvStream, SendStream};

use super::network::Network;
use crate::quic::{Endpoint, config, dial_from};
pub(super) use crate::tests::harness::{
    SECOND, both, frame, frame_of_two, hear_all, hello, numbers, run, seconds_since, tls,
};
use crate::tls::ClientTls;
use crate::{ConnectError, PostQuantum, Session, SessionLimits, Tls};

/// The two sides, dialler first, on a network in memory.
pub(super) struct Sides {
    pub(super) network: Arc<Network>,
    pub(super) dialler: Endpoint,
    pub(super) node: Endpoint,
}

impl Sides {
    pub(super) fn new(dialler: &Tls, node: &Tls) -> Self {
        let network = Arc::new(Network::default());
        let endpoint = |own, tls| Endpoint::on(network.socket(own), tls);
        Sides { dialler: endpoint(0, dialler), node: endpoint(1, node), network: Arc::clone(&network) }
    }

    /// Dials as a node.
    pub(super) async fn dial(&self, expected: &Tls, limits: &SessionLimits) -> Result<Session, ConnectError> {
        let hello = Hello { node_id: Some(self.dialler.tls.node_id().to_string()), ..hello() };
        self.dial_with(self.dialler.tls.client(), hello, expected, limits).await
    }

    /// Dials as a client.
    pub(super) async fn dial_as_client(&self, node: &Tls, limits: &SessionLimits) -> Result<Session, ConnectError> {
        self.dial_with(&ClientTls::anonymous(PostQuantum::Hybrid), hello(), node, limits).await
    }

    async fn dial_with(
        &self,
        tls: &ClientTls,
        hello: Hello,
        expected: &Tls,
        limits: &SessionLimits,
    ) -> Result<Session, ConnectError> {
        dial_from(&self.dialler.inner, Network::address(1), expected.node_id(), tls, hello, limits).await
    }

    pub(super) async fn accept(&self, limits: &SessionLimits) -> Result<Session, ConnectError> {
        self.node.incoming().await.expect("somebody").accept(hello(), limits).await
    }
}

/// What the two sides come to.
pub(super) async fn outcomes(
    dialler: &Tls,
    node: &Tls,
    expected: &Tls,
) -> (Result<Session, ConnectError>, Result<Session, ConnectError>) {
    let (sides, limits) = (Sides::new(dialler, node), SessionLimits::default());
    both(sides.dial(expected, &limits), sides.accept(&limits)).await
}

/// The two sides of a session, dialler first, and their network.
pub(super) async fn pair() -> (Session, Session, Arc<Network>) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let (sides, limits) = (Sides::new(&dialler, &node), SessionLimits::default());
    let (dialled, accepted) = both(sides.dial(&node, &limits), sides.accept(&limits)).await;
    (dialled.expect("dialled"), accepted.expect("accepted"), sides.network)
}

/// A side that is connected and has said nothing.
pub(super) struct RawPeer {
    pub(super) connection: Connection,
    pub(super) control: SendStream,
    heard: Option<RecvStream>,
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
        RawPeer { connection, control, heard: None, decoder: Decoder::new(oap::FRAME_BYTES_MAX) }
    }

    /// Bytes on the control stream. The other side may be gone.
    pub(super) async fn say(&mut self, bytes: &[u8]) {
        let _ = self.control.write_all(bytes).await;
    }

    /// A further stream, with bytes on it.
    pub(super) async fn open_with(&self, bytes: &[u8]) -> SendStream {
        let mut stream = self.connection.open_uni().await.expect("a stream");
        stream.write_all(bytes).await.expect("written");
        stream
    }

    /// The next frame of the other side's control stream that is no PING; nothing at its end.
    pub(super) async fn hear(&mut self) -> Option<Frame> {
        loop {
            match self.decoder.next().expect("frames") {
                Some(frame) if matches!(Control::parse(&frame), Ok(Control::Ping { .. })) => continue,
                Some(frame) => return Some(frame),
                None => {}
            }
            if self.heard.is_none() {
                self.heard = Some(self.connection.accept_uni().await.ok()?);
            }
            let stream = self.heard.as_mut().expect("just accepted");
            let chunk = stream.read_chunk(4096, true).await.ok()??;
            self.decoder.buffer().extend_from_slice(&chunk.bytes);
        }
    }

    /// The code of the next farewell, and that nothing follows it.
    pub(super) async fn farewell(&mut self) -> Option<u16> {
        let control = Control::parse(&self.hear().await?).expect("a control frame");
        let Control::GoAway { code, .. } = control else { panic!("{control:?}") };
        assert!(self.hear().await.is_none(), "then it ends");
        Some(code)
    }
}

/// A node's side and a raw one that has said HELLO and heard it.
pub(super) async fn raw_pair(limits: &SessionLimits) -> (RawPeer, Session, Sides) {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let sides = Sides::new(&dialler, &node);
    let dialling = async {
        let mut raw = RawPeer::dial(&sides.dialler, &node, None).await;
        raw.say(&Control::Hello(hello()).to_frame().to_bytes()).await;
        raw.hear().await.expect("their HELLO");
        raw
    };
    let (raw, session) = both(dialling, sides.accept(limits)).await;
    (raw, session.expect("a session"), sides)
}

/// What a node's side makes of a raw one.
pub(super) async fn accept_raw<F: Future<Output = ()>>(
    as_node: Option<&Tls>,
    act: impl FnOnce(RawPeer) -> F,
) -> ConnectError {
    let (dialler, node) = (tls(PostQuantum::Hybrid), tls(PostQuantum::Hybrid));
    let sides = Sides::new(&dialler, &node);
    let acting = async { act(RawPeer::dial(&sides.dialler, &node, as_node).await).await };
    let limits = SessionLimits::default();
    let ((), outcome) = both(acting, sides.accept(&limits)).await;
    outcome.err().expect("refused")
}
