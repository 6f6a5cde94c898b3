//! OAP/1 without I/O: frames, streams, HELLO, control frames and bounded compression. The protocol is docs/oap-1.md.
//!
//! A [`Decoder`] turns the bytes of a connection into [`Frame`]s whose payloads are reference-counted slices of what
//! was read. [`Streams`] says of each request frame what it is: a whole request, or the beginning, middle or end of a
//! stream. [`Control`] frames carry HELLO, liveness, credit and farewells. Nothing here reads a socket or a clock.

mod app;
pub mod compress;
mod control;
mod decoder;
mod error;
mod flags;
mod frame;
mod header;
mod hello;
pub mod status;
mod steps;
mod streams;

pub use app::AppId;
pub use control::{Control, ControlError, REASON_BYTES_MAX};
pub use decoder::{Decoder, READ_BYTES, READ_BYTES_MIN};
pub use error::FrameError;
pub use flags::Flags;
pub use frame::Frame;
pub use hello::{Agreed, FEATURE_ZSTD, HELLO_BYTES_MAX, Hello, HelloError, INFLIGHT_MAX, negotiate};
pub use steps::put_in_steps;
pub use streams::{Step, StreamError, Streams};

/// Bytes of the fixed header of a frame.
pub const HEADER_BYTES: usize = 38;
/// Bytes of the largest frame there is, header included. A HELLO may agree on less, never on more.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of the smallest `max_frame` that a HELLO may name; less would not carry an answer.
pub const FRAME_BYTES_MIN: usize = 1 << 10;
/// Version in the header of each frame.
pub const VERSION: u16 = 1;
/// Name of the protocol in the TLS handshake.
pub const ALPN: &[u8] = b"oap/1";

// A HELLO comes before anything is agreed, so every decoder must be able to take one.
const _: () = assert!(HEADER_BYTES + HELLO_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(HEADER_BYTES + REASON_BYTES_MAX + 16 < FRAME_BYTES_MIN);
