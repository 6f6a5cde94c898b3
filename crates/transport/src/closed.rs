//! How sessions end, and how they fail to begin.

use std::io;
use std::sync::Arc;

use oap::compress::InflateError;
use oap::status::{self, Status};
use oap::{Control, ControlError, FrameError, HelloError};

use crate::identity::NodeId;

/// The farewell of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// Why, as a status; 200 is a normal end.
    pub code: Status,
    /// Highest number among the requests this side began; those above it were not, and may be sent elsewhere.
    pub last_corr: u64,
    /// Why, for people.
    pub reason: String,
}

/// How a session ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Closed {
    /// In order: the other side closed, or this one did and everything was written.
    #[error("closed in order")]
    Done,
    /// A deadline passed.
    #[error("{0} took too long")]
    Timeout(&'static str),
    /// The other side sent something that is no frame.
    #[error("refused: {0}")]
    Refused(#[from] FrameError),
    /// The other side sent a control frame that is none, or a second HELLO.
    #[error("refused: {0}")]
    RefusedControl(#[from] ControlError),
    /// The other side sent a compressed payload that is refused.
    #[error("refused: {0}")]
    Inflate(InflateError),
    /// The other side did what was not agreed on.
    #[error("refused: {0} were not agreed on")]
    NotAgreed(&'static str),
    /// The other side broke TLS.
    #[error("TLS: {0}")]
    Tls(Arc<rustls::Error>),
    /// The connection broke.
    #[error("broken: {0}")]
    Broken(Arc<io::Error>),
}

/// What was being done when a connection took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stage {
    /// The way to the other side.
    #[error("connecting")]
    Connect,
    /// The TLS handshake.
    #[error("the TLS handshake")]
    Tls,
    /// The exchange of HELLO.
    #[error("HELLO")]
    Hello,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It took too long.
    #[error("{stage} took too long")]
    Timeout {
        /// What was being done.
        stage: Stage,
    },
    /// Another node than the expected one is there.
    #[error("node {got} is there instead of {expected}")]
    WrongPin {
        /// The node that was dialled, or that the certificate carries.
        expected: NodeId,
        /// The node that answered, or that HELLO claims.
        got: NodeId,
    },
    /// One side requires a post-quantum key exchange and the other has none.
    #[error("no key exchange in common: one side requires post-quantum, the other has it off")]
    NotPostQuantum,
    /// The other side refused this one.
    #[error("refused with {0}: {1}")]
    Refused(Status, String),
    /// This side refused the other's HELLO.
    #[error("refused the other side: {0}")]
    BadHello(#[from] BadHello),
    /// TLS failed otherwise.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The connection broke, or there was none.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What is wrong with the first frame of the other side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHello {
    /// Not a frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// Not a control frame.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// Nothing to agree on.
    #[error("{0}")]
    Agreement(#[from] HelloError),
    /// Another frame than HELLO.
    #[error("the first frame is no HELLO")]
    Absent,
    /// A node id without a certificate that proves it.
    #[error("HELLO claims a node id and the certificate does not prove it")]
    Unproven,
}

impl GoAway {
    /// A farewell.
    pub fn new(code: Status, last_corr: u64, reason: impl Into<String>) -> Self {
        GoAway { code, last_corr, reason: reason.into() }
    }

    /// A normal end.
    pub fn normal() -> Self {
        GoAway::new(status::OK, 0, "")
    }

    /// The frame that says it, with the highest number that was begun unless it names a higher one.
    pub(crate) fn to_control(&self, begun: u64) -> Control {
        Control::GoAway { code: self.code, last_corr: self.last_corr.max(begun), reason: self.reason.clone() }
    }
}

impl Closed {
    /// What the other side is told about an end that it caused.
    pub(crate) fn farewell(&self) -> GoAway {
        let code = match self {
            Closed::Done => status::OK,
            Closed::Timeout(_) => status::TIMEOUT,
            Closed::Refused(error) => error.code(),
            Closed::RefusedControl(error) => error.code(),
            Closed::Inflate(error) => error.code(),
            Closed::NotAgreed(_) | Closed::Tls(_) | Closed::Broken(_) => status::BAD_REQUEST,
        };
        GoAway::new(code, 0, self.to_string())
    }

    pub(crate) fn broken(error: io::Error) -> Self {
        Closed::Broken(Arc::new(error))
    }
}

impl ConnectError {
    /// Code of the GOAWAY that tells the other side of a HELLO that is refused.
    pub(crate) fn farewell_code(&self) -> Status {
        match self {
            ConnectError::BadHello(bad) => bad.code(),
            ConnectError::WrongPin { .. } => status::UNAUTHENTICATED,
            _ => status::BAD_REQUEST,
        }
    }
}

impl BadHello {
    /// Code of the GOAWAY that says it.
    pub fn code(&self) -> Status {
        match self {
            BadHello::Frame(error) => error.code(),
            BadHello::Control(error) => error.code(),
            BadHello::Agreement(error) => error.code(),
            BadHello::Absent => status::BAD_REQUEST,
            BadHello::Unproven => status::UNAUTHENTICATED,
        }
    }
}
