//! What an operator may set about the public plane; read anew for each request and each connection.

use std::time::Duration;

use ron_kernel::connection_limiter::ConnectionLimits;
use ron_types::limits;

/// Bounds of the public HTTP plane; a reload may change them.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpLimits {
    /// Total time of a request whose route and caller say nothing else.
    pub request_deadline: Duration,
    /// The longest deadline a caller may ask for.
    pub request_deadline_max: Duration,
    /// Maximum pause between two pieces of a body.
    pub read_timeout: Duration,
    /// A connection with nothing in flight is closed after this time.
    pub idle_timeout: Duration,
    /// A connection is closed when bytes wait for its peer and fewer than a kilobyte a second are taken over this time.
    pub write_stall: Duration,
    /// A TLS handshake, and after it a started header block, must be complete within this time.
    pub handshake_timeout: Duration,
    /// Largest body, before and after inflation.
    pub body_bytes_max: usize,
    /// All header lines of one request together.
    pub header_bytes_max: usize,
    /// A compressed body may grow at most this many times.
    pub inflate_ratio_max: usize,
    /// Requests of one route in flight at once, where the route says nothing else.
    pub route_concurrency_max: usize,
    /// Requests and streams that wait for something to happen at once.
    pub waiting_max: usize,
    /// Bytes of all request bodies in memory at once.
    pub body_memory_bytes_max: usize,
    /// Bytes of all answers in memory at once, from their making until their last byte has left.
    pub answer_memory_bytes_max: usize,
    /// Maximum connections open at once.
    pub connections_max: usize,
    /// Connections one address may hold at once.
    pub connections_per_ip_max: usize,
    /// New connections one address may open in a second, sustained.
    pub accepts_per_ip_per_second: u32,
}

/// Bounds on reading one body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub read_timeout: Duration,
    pub body_bytes_max: usize,
    pub inflate_ratio_max: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        HttpLimits {
            request_deadline: limits::REQUEST_DEADLINE,
            request_deadline_max: limits::REQUEST_DEADLINE_MAX,
            read_timeout: limits::READ_TIMEOUT,
            idle_timeout: limits::IDLE_TIMEOUT,
            write_stall: limits::WRITE_STALL,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            body_bytes_max: limits::BODY_BYTES_MAX,
            header_bytes_max: limits::HEADER_BYTES_MAX,
            inflate_ratio_max: limits::INFLATE_RATIO_MAX,
            route_concurrency_max: limits::ROUTE_CONCURRENCY_MAX,
            waiting_max: limits::WAITING_MAX,
            body_memory_bytes_max: limits::BODY_MEMORY_BYTES_MAX,
            answer_memory_bytes_max: limits::ANSWER_MEMORY_BYTES_MAX,
            connections_max: limits::CONNECTIONS_MAX,
            connections_per_ip_max: limits::CONNECTIONS_PER_IP_MAX,
            accepts_per_ip_per_second: limits::ACCEPTS_PER_IP_PER_SECOND,
        }
    }
}

impl HttpLimits {
    pub(crate) fn of_body(&self) -> BodyLimits {
        BodyLimits {
            read_timeout: self.read_timeout,
            body_bytes_max: self.body_bytes_max,
            inflate_ratio_max: self.inflate_ratio_max,
        }
    }

    /// Bytes that a peer must take within [`write_stall`](Self::write_stall) if so many wait for it.
    pub(crate) fn stall_bytes(&self) -> u64 {
        let bytes = self.write_stall.as_millis() * u128::from(limits::ANSWER_BYTES_PER_SECOND_MIN) / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    /// The part that concerns the listener.
    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.connections_max,
            per_ip: self.connections_per_ip_max,
            per_ip_per_second: self.accepts_per_ip_per_second,
        }
    }
}
