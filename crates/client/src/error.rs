//! Every way in which a call can fail, and what the caller may do then.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

/// Reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The options contradict each other or cannot be used.
    #[error("{0}")]
    Options(String),
    /// Nobody answers at the address. Nothing was sent.
    #[error("no node answers at {address}: {cause}")]
    Unreachable {
        /// Address that was tried.
        address: String,
        /// Error of the connection.
        cause: String,
    },
    /// The node said no. Nothing was done.
    #[error("{code}: {detail}")]
    Refused {
        /// HTTP status of the refusal.
        status: u16,
        /// The node's own word for it.
        code: String,
        /// Explanation by the node.
        detail: String,
        /// Time until a retry may succeed, if the node is only busy or not there yet.
        retry_after: Option<Duration>,
    },
    /// There was no time left to ask. Nothing was sent.
    #[error("not sent within {} ms", .0.as_millis())]
    NotSent(Duration),
    /// The request went out, and its answer did not come or says that the node broke: nobody knows whether it was done.
    #[error("no answer, and nobody knows whether it was done: {0}")]
    Unknown(String),
}

/// Reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The text is no address.
    #[error("`{0}` is not an address; write HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// The root certificates cannot be used.
    #[error("{0}")]
    Root(String),
    /// No connection could be made.
    #[error("{0}")]
    Connect(std::io::Error),
    /// The peer's certificate is not trusted.
    #[error("no trusted TLS: {0}")]
    Tls(std::io::Error),
    /// Nothing was sent, because the connection did not hold.
    #[error("{0}")]
    Closed(String),
    /// The request went out, and the answer did not come or was not one.
    #[error("{0}")]
    Lost(String),
}

/// A refusal as the node writes it, of a request or of one item.
#[derive(Debug, Deserialize)]
pub struct Refusal {
    #[serde(default)]
    code: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    detail: String,
    retry_after_ms: Option<u64>,
}

/// Codes of a node whose mailbox is not there yet or any more, and of one that leaves.
const NOT_BEGUN: [&str; 2] = ["E_UNAVAILABLE", "E_CANCELED"];
/// Milliseconds until such a node is asked again, where it names none.
const COME_BACK_MS: u64 = 1000;

impl Refusal {
    /// A refusal of something that was not begun.
    fn said(self) -> Error {
        let Refusal { code, status, detail, retry_after_ms } = self;
        Error::Refused { status, code, detail, retry_after: retry_after_ms.map(Duration::from_millis) }
    }
}

impl Error {
    /// Time until a retry may succeed, if the node said that it is only busy.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The node's word for the refusal, such as `E_NOT_FOUND`.
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Error for a whole request that was refused.
    pub(crate) fn refused(status: StatusCode, body: &[u8]) -> Error {
        let refusal: Refusal = serde_json::from_slice(body).unwrap_or_else(|_| Refusal {
            code: "E_UNKNOWN".to_owned(),
            status: 0,
            detail: format!("status {status} without a reason: is it a node?"),
            retry_after_ms: None,
        });
        let refusal = Refusal { status: status.as_u16(), ..refusal };
        // Said of the whole request, it was looked at by nobody: what happened to an item is told of the item.
        let is_not_begun = status == StatusCode::SERVICE_UNAVAILABLE && NOT_BEGUN.contains(&refusal.code.as_str());
        match is_not_begun {
            true => Refusal { retry_after_ms: refusal.retry_after_ms.or(Some(COME_BACK_MS)), ..refusal }.said(),
            false => refusal.into(),
        }
    }

    /// Error for a request without an answer.
    pub(crate) fn unanswered(address: &str, error: &LinkError) -> Error {
        let cause = error.to_string();
        match error {
            LinkError::Address(_) | LinkError::Root(_) => Error::Options(cause),
            LinkError::Connect(_) | LinkError::Tls(_) | LinkError::Closed(_) => {
                Error::Unreachable { address: address.to_owned(), cause }
            }
            LinkError::Lost(_) => Error::Unknown(cause),
        }
    }

    /// An answer that does not say what this version understands.
    pub(crate) fn senseless(cause: impl std::fmt::Display) -> Error {
        Error::Unknown(format!("the answer is not of this version ({cause})"))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal.status {
            // What broke may have been done: a deadline that passed, a shard that was lost before it could answer.
            500.. => Error::Unknown(format!("{}: {}", refusal.code, refusal.detail)),
            429 => refusal.said(),
            _ => Refusal { retry_after_ms: None, ..refusal }.said(),
        }
    }
}
