//! Control frames: HELLO, liveness, credit and farewells.
//!
//! They are events of application 0 with number 0. The first byte of the payload says which one it is.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::status::{self, Status};
use crate::{AppId, Flags, Frame, Hello, HelloError};

/// Bytes of the reason in a GOAWAY.
pub const REASON_BYTES_MAX: usize = 256;

const HELLO: u8 = 1;
const PING: u8 = 2;
const PONG: u8 = 3;
const CREDIT: u8 = 4;
const GOAWAY: u8 = 5;

/// What the two sides of a session tell each other about the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// What a side can do; its first frame.
    Hello(Hello),
    /// Are you there?
    Ping {
        /// Comes back in the PONG.
        nonce: u64,
    },
    /// The answer to a PING.
    Pong {
        /// The nonce of the PING.
        nonce: u64,
    },
    /// The other side may send so many more bytes of payload.
    Credit {
        /// Flow it holds for; what a flow is, the application says.
        flow: u64,
        /// Bytes on top of those allowed before.
        bytes: u64,
    },
    /// This side takes no new requests and closes when what is in flight is done.
    GoAway {
        /// Why, as a status; 200 is a normal end.
        code: Status,
        /// Highest number among the requests it took; later ones were not begun.
        last_corr: u64,
        /// For people; cut off after [`REASON_BYTES_MAX`] bytes.
        reason: String,
    },
}

/// Why a frame of application 0 is refused. The connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Not an EVENT of application 0 with number 0 and a plain payload.
    #[error("a control frame is a plain EVENT of application 0 with number 0 and without a capability")]
    Shape,
    /// A kind that OAP/1 does not know.
    #[error("unknown kind {0} of control frame")]
    UnknownKind(u8),
    /// A body that is not as long as its kind says.
    #[error("a control frame of kind {kind} with a body of {len} bytes")]
    Length {
        /// First byte of the payload.
        kind: u8,
        /// Bytes after it.
        len: usize,
    },
    /// A reason that is no text.
    #[error("the reason of a GOAWAY is not UTF-8")]
    Reason,
    /// A HELLO that is refused.
    #[error(transparent)]
    Hello(#[from] HelloError),
}

impl ControlError {
    /// Code of the GOAWAY.
    pub const fn code(&self) -> Status {
        match self {
            ControlError::Hello(error) => error.code(),
            _ => status::BAD_REQUEST,
        }
    }
}

impl Control {
    /// The frame that says it.
    pub fn to_frame(&self) -> Frame {
        Frame::event(AppId::CONTROL, 0, self.payload())
    }

    /// Reads a frame of application 0.
    pub fn parse(frame: &Frame) -> Result<Control, ControlError> {
        let is_control = frame.app == AppId::CONTROL && frame.corr == 0 && frame.flags == Flags::EVENT;
        if !is_control || !frame.cap.is_empty() {
            return Err(ControlError::Shape);
        }
        let (&kind, mut body) = frame.payload.split_first().ok_or(ControlError::Shape)?;
        let len = body.len();
        match (kind, len) {
            (HELLO, _) => Ok(Control::Hello(Hello::parse(body)?)),
            (PING, 8) => Ok(Control::Ping { nonce: body.get_u64() }),
            (PONG, 8) => Ok(Control::Pong { nonce: body.get_u64() }),
            (CREDIT, 16) => Ok(Control::Credit { flow: body.get_u64(), bytes: body.get_u64() }),
            (GOAWAY, 10..) if len <= 10 + REASON_BYTES_MAX => {
                let (code, last_corr) = (body.get_u16(), body.get_u64());
                let reason = std::str::from_utf8(body).map_err(|_| ControlError::Reason)?;
                Ok(Control::GoAway { code, last_corr, reason: reason.to_owned() })
            }
            (PING | PONG | CREDIT | GOAWAY, _) => Err(ControlError::Length { kind, len }),
            _ => Err(ControlError::UnknownKind(kind)),
        }
    }

    fn payload(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(32);
        match self {
            Control::Hello(hello) => {
                out.put_u8(HELLO);
                out.put_slice(&hello.to_json());
            }
            Control::Ping { nonce } => {
                out.put_u8(PING);
                out.put_u64(*nonce);
            }
            Control::Pong { nonce } => {
                out.put_u8(PONG);
                out.put_u64(*nonce);
            }
            Control::Credit { flow, bytes } => {
                out.put_u8(CREDIT);
                out.put_u64(*flow);
                out.put_u64(*bytes);
            }
            Control::GoAway { code, last_corr, reason } => {
                out.put_u8(GOAWAY);
                out.put_u16(*code);
                out.put_u64(*last_corr);
                out.put_slice(&reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)]);
            }
        }
        out.freeze()
    }
}
