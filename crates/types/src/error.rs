//! The one error taxonomy of every surface: a kind fixes the code, the HTTP status, the retry advice and the metric.

use std::borrow::Cow;
use std::time::Duration;

/// Category of an error, by what a caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A queue was full, a permit refused, admission denied.
    Busy,
    /// A deadline passed.
    Timeout,
    /// Shutdown began while waiting.
    Canceled,
    /// A broadcast receiver overflowed; never leaves the process.
    Lagging,
    /// The peer closed during a write; never leaves the process.
    BrokenPipe,
    /// A service is past its restart threshold.
    Degraded,
    /// A breaker is open for the target.
    OpenCircuit,
    /// A frame, body or inflated body is over its cap.
    FrameTooLarge,
    /// No egress permit within the deadline.
    Backpressure,
    /// A hash or checksum does not match.
    Integrity,
    /// A reward run breached conservation or its schema.
    Quarantine,
    /// Malformed, unknown field, out of range.
    Schema,
    /// No capability, or an invalid one.
    Unauthenticated,
    /// The capability does not cover the request.
    Forbidden,
    /// Unknown route, key, message or epoch.
    NotFound,
    /// An idempotency key was used again with another payload, or a run is in flight.
    Conflict,
}

/// Advice on sending the same request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never with the same request.
    No,
    /// After the time named in `Retry-After`.
    AfterDelay,
    /// If the request is idempotent.
    IfIdempotent,
    /// At another node.
    Elsewhere,
    /// With a new token.
    WithNewToken,
}

impl Kind {
    /// Every kind, in the order of the contract.
    pub const ALL: [Kind; 16] = [
        Kind::Busy,
        Kind::Timeout,
        Kind::Canceled,
        Kind::Lagging,
        Kind::BrokenPipe,
        Kind::Degraded,
        Kind::OpenCircuit,
        Kind::FrameTooLarge,
        Kind::Backpressure,
        Kind::Integrity,
        Kind::Quarantine,
        Kind::Schema,
        Kind::Unauthenticated,
        Kind::Forbidden,
        Kind::NotFound,
        Kind::Conflict,
    ];

    /// The stable code that clients match on.
    pub const fn code(self) -> &'static str {
        match self {
            Kind::Busy | Kind::Backpressure => "E_SATURATED",
            Kind::Timeout => "E_TIMEOUT",
            Kind::Canceled => "E_CANCELED",
            Kind::Lagging => "E_LAGGING",
            Kind::BrokenPipe => "E_IO",
            Kind::Degraded => "E_UNAVAILABLE",
            Kind::OpenCircuit => "E_CIRCUIT_OPEN",
            Kind::FrameTooLarge => "E_FRAME_TOO_LARGE",
            Kind::Integrity => "E_INTEGRITY",
            Kind::Quarantine => "E_QUARANTINE",
            Kind::Schema => "E_SCHEMA",
            Kind::Unauthenticated => "E_CAP_AUTH",
            Kind::Forbidden => "E_CAP_SCOPE",
            Kind::NotFound => "E_NOT_FOUND",
            Kind::Conflict => "E_DUPLICATE",
        }
    }

    /// The HTTP status, or 0 for a kind that never leaves the process.
    pub const fn http_status(self) -> u16 {
        match self {
            Kind::Busy | Kind::Backpressure => 429,
            Kind::Timeout => 504,
            Kind::Canceled | Kind::Degraded | Kind::OpenCircuit => 503,
            Kind::Lagging | Kind::BrokenPipe => 0,
            Kind::FrameTooLarge => 413,
            Kind::Integrity => 422,
            Kind::Quarantine | Kind::Conflict => 409,
            Kind::Schema => 400,
            Kind::Unauthenticated => 401,
            Kind::Forbidden => 403,
            Kind::NotFound => 404,
        }
    }

    /// A short title for people, the same for every occurrence.
    pub const fn title(self) -> &'static str {
        match self {
            Kind::Busy => "the node is busy",
            Kind::Timeout => "the deadline passed",
            Kind::Canceled => "the node is shutting down",
            Kind::Lagging => "a receiver fell behind",
            Kind::BrokenPipe => "the peer went away",
            Kind::Degraded => "the service is not available",
            Kind::OpenCircuit => "the circuit is open",
            Kind::FrameTooLarge => "the message is too large",
            Kind::Backpressure => "the peer does not keep up",
            Kind::Integrity => "the content does not match its hash",
            Kind::Quarantine => "the run is quarantined",
            Kind::Schema => "the request is not understood",
            Kind::Unauthenticated => "a valid token is needed",
            Kind::Forbidden => "the token does not allow this",
            Kind::NotFound => "there is nothing here",
            Kind::Conflict => "the request contradicts an earlier one",
        }
    }

    /// Retry advice for a caller.
    pub const fn retry(self) -> Retry {
        match self {
            Kind::Busy | Kind::Backpressure | Kind::Degraded | Kind::OpenCircuit => Retry::AfterDelay,
            Kind::Timeout => Retry::IfIdempotent,
            Kind::Canceled => Retry::Elsewhere,
            Kind::Unauthenticated => Retry::WithNewToken,
            _ => Retry::No,
        }
    }

    /// The counter that counts it, where the contract names one.
    pub const fn metric(self) -> Option<&'static str> {
        match self {
            Kind::Busy => Some("busy_rejections_total"),
            Kind::Timeout => Some("io_timeouts_total"),
            Kind::Canceled => Some("tasks_canceled_total"),
            Kind::Lagging => Some("bus_lagged_total"),
            Kind::BrokenPipe => Some("io_errors_total"),
            Kind::Degraded => Some("service_restarts_total"),
            Kind::OpenCircuit => Some("circuit_open_total"),
            Kind::FrameTooLarge => Some("frame_reject_total"),
            Kind::Backpressure => Some("backpressure_events_total"),
            Kind::Integrity => Some("integrity_fail_total"),
            Kind::Quarantine => Some("quarantine_total"),
            Kind::Schema | Kind::Unauthenticated | Kind::Forbidden | Kind::NotFound | Kind::Conflict => None,
        }
    }
}

/// One failure: its kind, what it concerned, and when to come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .kind.code())]
pub struct Error {
    /// Category, by what a caller can do about it.
    pub kind: Kind,
    /// One sentence for a person; never carries a secret.
    pub detail: Cow<'static, str>,
    /// Time until a retry makes sense, for kinds whose advice is `AfterDelay`.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// A failure of this kind, said in one sentence.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after = matches!(kind.retry(), Retry::AfterDelay).then_some(Duration::from_secs(1));
        Error { kind, detail: detail.into(), retry_after }
    }

    /// The queue, gate or route named was full.
    pub fn busy(what: impl std::fmt::Display) -> Self {
        Error::new(Kind::Busy, format!("{what} is full; try again after the time given"))
    }

    /// The operation named did not end before its deadline.
    pub fn timeout(op: &'static str) -> Self {
        Error::new(Kind::Timeout, format!("{op} did not end before its deadline"))
    }

    /// Shutdown began before the operation could end.
    pub fn canceled(what: &'static str) -> Self {
        Error::new(Kind::Canceled, what)
    }

    /// The input broke a rule; the sentence says which.
    pub fn schema(detail: impl Into<Cow<'static, str>>) -> Self {
        Error::new(Kind::Schema, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_its_code_and_its_reason() {
        assert_eq!(Error::timeout("read").to_string(), "E_TIMEOUT: read did not end before its deadline");
    }

    #[test]
    fn advice_to_come_back_always_names_a_time() {
        for kind in Kind::ALL {
            let error = Error::new(kind, "x");
            assert_eq!(error.retry_after.is_some(), kind.retry() == Retry::AfterDelay, "{kind:?}");
        }
    }
}
