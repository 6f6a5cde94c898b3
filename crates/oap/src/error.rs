//! Why bytes are not a frame.

use crate::status::{self, Status};

/// A header that breaks the protocol. There is no way to find the next frame after it: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length does not even cover the header.
    #[error("a frame of {len} bytes is smaller than its header")]
    TooSmall {
        /// Length in the header.
        len: usize,
    },
    /// The length is beyond what was agreed.
    #[error("a frame of {len} bytes is larger than {max}")]
    TooLarge {
        /// Length in the header.
        len: usize,
        /// Bytes of the largest frame on this connection.
        max: usize,
    },
    /// Another version of the protocol.
    #[error("version {version} is not 1")]
    Version {
        /// Version in the header.
        version: u16,
    },
    /// Bits that OAP/1 gives no meaning.
    #[error("unknown flags in {bits:#06x}")]
    UnknownFlags {
        /// Flags in the header.
        bits: u16,
    },
    /// None, or more than one, of REQ, RESP and EVENT.
    #[error("exactly one of REQ, RESP and EVENT must be set")]
    Direction,
    /// A request or an event with a status.
    #[error("only a response has a code")]
    CodeWithoutResponse,
    /// A response without a status.
    #[error("a response needs a code from 100 to 599")]
    ResponseCode {
        /// Code in the header.
        code: u16,
    },
    /// A capability in the middle of a stream.
    #[error("a capability comes only with START")]
    CapWithoutStart,
    /// A capability that is longer than the frame it is in.
    #[error("a capability of {cap_len} bytes does not fit its frame")]
    CapBeyondFrame {
        /// Length of the capability in the header.
        cap_len: usize,
    },
}

impl FrameError {
    /// Code of the GOAWAY that says why the connection is closed.
    pub const fn code(&self) -> Status {
        match self {
            FrameError::TooLarge { .. } => status::TOO_LARGE,
            FrameError::Version { .. } => status::VERSION_UNKNOWN,
            _ => status::BAD_REQUEST,
        }
    }

    /// Name of the rule that was broken, as the vectors and metrics write it.
    pub const fn name(&self) -> &'static str {
        match self {
            FrameError::TooSmall { .. } => "too_small",
            FrameError::TooLarge { .. } => "too_large",
            FrameError::Version { .. } => "version",
            FrameError::UnknownFlags { .. } => "unknown_flags",
            FrameError::Direction => "direction",
            FrameError::CodeWithoutResponse => "code_without_response",
            FrameError::ResponseCode { .. } => "response_code",
            FrameError::CapWithoutStart => "cap_without_start",
            FrameError::CapBeyondFrame { .. } => "cap_beyond_frame",
        }
    }
}
