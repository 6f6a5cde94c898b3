//! What a connection may cost: streams, windows, and the time without a sign of life.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{
    ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig,
    VarInt,
};

use crate::closed::ConnectError;
use crate::limits::SessionLimits;
use crate::tls::{ClientTls, Tls, pin};
use crate::writer::TURN_BYTES;

use super::input::{READ_BYTES, UNFINISHED_FRAMES_MOST};

/// Streams for the frames of flows that a side may open, beside its control stream. More flows share them.
pub const LANES_MAX: usize = 16;

/// Bytes of one stream that may wait to be read.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of all streams that may wait to be read: enough for all of them, so that one that is not read, or misses a
/// packet, takes no room from another.
const CONNECTION_WINDOW_BYTES: u32 = (LANES_MAX as u32 + 1) * STREAM_WINDOW_BYTES;
/// Bytes that may be on their way, what TCP has the kernel's buffer for.
const SEND_WINDOW_BYTES: u64 = 1 << 20;
/// Bytes of the first packets; 1,200 pass everywhere, and what more the path takes is found out.
const INITIAL_MTU_BYTES: u16 = 1200;
/// Beginnings of connections that may wait to be accepted, and bytes that they may have brought: each, and together.
const INCOMING_MAX: usize = 1024;
const INCOMING_BYTES_MAX: u64 = 64 * 1024;
const INCOMING_BYTES_TOTAL_MAX: u64 = 4 << 20;

/// Bytes that a session over QUIC may hold beside its outbox, with frames up to this size: what waits in the windows of
/// its streams, what is on its way, frames that are not whole, and what its streams were given and have not taken.
pub const fn session_bytes_max(frame_bytes_max: usize) -> usize {
    let turn = if frame_bytes_max > TURN_BYTES { frame_bytes_max } else { TURN_BYTES };
    let reading = CONNECTION_WINDOW_BYTES as usize + UNFINISHED_FRAMES_MOST * frame_bytes_max;
    // The control stream has small frames, a turn of them at most.
    let writing = SEND_WINDOW_BYTES as usize + LANES_MAX * turn + TURN_BYTES;
    reading + writing + READ_BYTES
}

/// Bytes of the ids of connections.
const ID_BYTES: usize = 8;

/// What both sides share. A node that was killed and is back tells those who still write to it that it has forgotten
/// them, and they dial again; without that they would wait for the end of their idle time.
pub(super) fn endpoint(tls: &Tls) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(ResetKey(tls.reset_key())));
    config.cid_generator(|| Box::new(RandomIds));
    config
}

/// quinn takes keys of one library only, and which one depends on who else in the build uses it.
struct ResetKey(Arc<hmac::Key>);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        signature.copy_from_slice(hmac::sign(&self.0, data).as_ref());
    }

    fn signature_len(&self) -> usize {
        hmac::HMAC_SHA256.digest_algorithm().output_len()
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        hmac::verify(&self.0, data, signature).map_err(|_| CryptoError)
    }
}

/// Ids that say nothing. Those of quinn carry a mark by which a node knows the ids of its own life, and is silent to
/// all others.
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        // Without randomness there is no TLS either; until then a number will do.
        let _ = aws_lc_rs::rand::fill(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The accepting side of a connection.
pub(super) fn server(tls: &Tls, limits: &SessionLimits) -> Result<ServerConfig, ConnectError> {
    let crypto = QuicServerConfig::try_from(tls.server()).map_err(|error| unfit(&error))?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport(limits)))
        // What counts by address is counted once, when the session begins.
        .migration(false)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_TOTAL_MAX);
    Ok(config)
}

/// The dialling side of a connection to one node.
pub(super) fn client(
    tls: &ClientTls,
    expected: Arc<pin::OneNode>,
    limits: &SessionLimits,
) -> Result<ClientConfig, ConnectError> {
    let crypto = QuicClientConfig::try_from(tls.believing(expected)?).map_err(|error| unfit(&error))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport(limits)));
    Ok(config)
}

fn transport(limits: &SessionLimits) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(LANES_MAX as u32 + 1))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(SEND_WINDOW_BYTES)
        // The scheduler has decided whose turn it is; cut up again, all frames would arrive as late as the last.
        .send_fairness(false)
        .datagram_receive_buffer_size(None)
        .initial_mtu(INITIAL_MTU_BYTES)
        // The session has its own deadline for silence, and says so; this one is for what is left behind.
        .max_idle_timeout(IdleTimeout::try_from(limits.idle_timeout.saturating_mul(2)).ok());
    config
}

/// The cipher that QUIC begins with is in every provider of ours.
fn unfit(error: &quinn::crypto::rustls::NoInitialCipherSuite) -> ConnectError {
    ConnectError::Tls(rustls::Error::General(error.to_string()))
}
