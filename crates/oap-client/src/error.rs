//! What can go wrong, in words of the caller.

use std::time::Duration;

use oap::status::Status;
use ron_transport::{Closed, ConnectError, PushError};
use serde::Deserialize;

/// Why something was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no session.
    #[error("not connected: {0}")]
    Connect(std::sync::Arc<ConnectError>),
    /// The session ended before the answer came. Whether the request was done is not known.
    #[error("the session ended: {0}")]
    Closed(Closed),
    /// The node refused.
    #[error("{0}")]
    Refused(Refusal),
    /// The payload does not fit a frame of this session.
    #[error("{len} bytes are more than the {max} that fit one frame of this session")]
    TooLarge {
        /// Bytes of the payload.
        len: usize,
        /// Bytes that would have fitted.
        max: usize,
    },
    /// The node's answer is not what the protocol says.
    #[error("the node's answer is not understood: {0}")]
    Protocol(&'static str),
    /// A body does not have the hash that came with it, or a batch does not continue the one before it.
    #[error("damaged on the way: {0}")]
    Integrity(&'static str),
}

/// What a node says when it refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused with {status} ({code}): {detail}")]
pub struct Refusal {
    /// The kind of refusal as a number of HTTP.
    pub status: Status,
    /// The stable code that programs match on; empty if the node gave none.
    pub code: String,
    /// What happened, for people.
    pub detail: String,
    /// How long to wait before asking again, where that helps.
    pub retry_after: Option<Duration>,
}

/// The fields of a problem that a client looks at.
#[derive(Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    status: Status,
    retry_after_ms: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: Status, payload: &[u8]) -> Self {
        match serde_json::from_slice::<Problem>(payload) {
            Ok(problem) => Refusal { status, ..Refusal::from(problem) },
            Err(_) => Refusal { status, code: String::new(), detail: String::new(), retry_after: None },
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let Problem { code, detail, status, retry_after_ms } = problem;
        Refusal { status, code, detail, retry_after: retry_after_ms.map(Duration::from_millis) }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Error::Connect(std::sync::Arc::new(error))
    }
}

impl Error {
    /// Whether a request was refused for what is in it, so that a part of it may be taken.
    pub(crate) fn is_of_the_content(&self) -> bool {
        match self {
            Error::TooLarge { .. } => true,
            Error::Refused(refusal) => matches!(refusal.status, 400 | 409 | 413 | 422),
            _ => false,
        }
    }

    /// Why a stream was ended by an answer.
    pub(crate) fn of_answer(code: Status, payload: &[u8]) -> Self {
        match code {
            ..300 => Error::Protocol("the node ended the stream"),
            _ => Error::Refused(Refusal::new(code, payload)),
        }
    }

    /// Why a frame with a payload of so many bytes could not be queued.
    pub(crate) fn of_push(error: PushError, len: usize, max: usize) -> Self {
        match error {
            PushError::Unfit(_) => Error::TooLarge { len, max },
            PushError::Closed | PushError::Full { .. } => Error::Closed(Closed::Done),
        }
    }
}
