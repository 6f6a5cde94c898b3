//! What a session may cost: bytes, frames, time.

use std::time::Duration;

/// Bounds of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum bytes of one frame, header included; HELLO may agree on fewer.
    pub frame_bytes_max: usize,
    /// Time for TLS and HELLO together.
    pub handshake_timeout: Duration,
    /// Time for one frame, from its first byte to its last.
    pub read_timeout: Duration,
    /// Time a write may take without any progress.
    pub write_stall: Duration,
    /// Time without a byte from the other side after which it counts as gone. PING goes out three times as often.
    pub idle_timeout: Duration,
    /// Maximum bytes that wait to be written, control frames not counted.
    pub egress_bytes_max: usize,
    /// Maximum frames that wait to be written, control frames not counted.
    pub egress_frames_max: usize,
    /// Bytes set aside for control frames, so that PONG, CREDIT and GOAWAY never wait for room behind data.
    pub control_bytes_reserve: usize,
    /// Maximum requests in flight that HELLO offers.
    pub max_inflight: u32,
}

impl Default for SessionLimits {
    fn default() -> Self {
        SessionLimits {
            frame_bytes_max: oap::FRAME_BYTES_MAX,
            handshake_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(5),
            write_stall: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            egress_bytes_max: 4 << 20,
            egress_frames_max: 4096,
            control_bytes_reserve: 16 << 10,
            max_inflight: 256,
        }
    }
}
