//! Options of the socket under a connection.

use std::time::Duration;

use ron_types::limits::UNSENT_BYTES_MAX;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::limits::HttpLimits;

/// Probes of a silent peer's machine that go unanswered before its connection ends.
const PROBES: u32 = 3;

/// Prepares an accepted socket. Failures are ignored: the options exist on every system we run on, so that they fail
/// only on a socket that is already gone.
pub(crate) fn prepare(stream: &TcpStream, limits: &HttpLimits) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    // Megabytes in the system's buffer would hide for minutes whether the peer reads, and are in nobody's share.
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    // A peer whose machine is gone is found out beneath HTTP, where no question waits behind the bytes of an answer.
    let probing = TcpKeepalive::new().with_time((limits.idle_timeout / 3).max(Duration::from_secs(1)));
    let probing = probing.with_interval(limits.read_timeout.max(Duration::from_secs(1))).with_retries(PROBES);
    let _ = socket.set_tcp_keepalive(&probing);
    // What was sent to it would be repeated for a quarter of an hour. Twice the time, so that a peer that is there and
    // does not read is found by the connection, which counts it.
    let _ = socket.set_tcp_user_timeout(Some(2 * limits.write_stall));
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_hides_few_bytes_and_finds_out_a_peer_that_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        let limits = HttpLimits::default();
        prepare(&stream, &limits);
        let socket = SockRef::from(&stream);
        assert_eq!(socket.tcp_notsent_lowat().expect("known"), UNSENT_BYTES_MAX);
        assert!(socket.keepalive().expect("known") && socket.tcp_nodelay().expect("known"));
        assert_eq!(socket.tcp_keepalive_time().expect("known"), limits.idle_timeout / 3);
        assert_eq!(socket.tcp_user_timeout().expect("known"), Some(2 * limits.write_stall));
    }
}
