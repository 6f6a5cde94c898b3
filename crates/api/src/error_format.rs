//! The words in which a request is refused: problem bodies, unless a surface brings a format of its own.

use axum::extract::Request;
use axum::response::Response;

use crate::corr::CorrId;
use crate::problem::Problem;

/// Writes the refusals that a caller of some protocol understands.
pub trait ErrorFormat: Send + Sync + 'static {
    /// The media type of the refusals, for the OpenAPI document.
    fn media_type(&self) -> &'static str;

    /// Writes a refusal: status, headers and body.
    fn write(&self, problem: &Problem, request: &RefusedRequest<'_>) -> Response;
}

/// Facts about a refused request that its error body may repeat.
pub struct RefusedRequest<'a> {
    /// Correlation id of the request.
    pub corr_id: &'a CorrId,
    /// Path of the request.
    pub path: &'a str,
    /// Whether `Connection: close` must be written.
    pub closes: bool,
}

/// The formats in which the operations of a surface refuse.
pub struct ErrorFormats {
    /// All formats that `choose` may name, for the OpenAPI document.
    pub all: &'static [&'static dyn ErrorFormat],
    /// The format of a request. It is chosen before the handler consumes the request, because a deadline or a panic
    /// refuses it afterwards.
    pub choose: fn(&Request) -> &'static dyn ErrorFormat,
}

/// Problem bodies (RFC 9457): the format of every operation that names no other.
pub struct ProblemJson;

impl ErrorFormat for ProblemJson {
    fn media_type(&self) -> &'static str {
        "application/problem+json"
    }

    fn write(&self, problem: &Problem, request: &RefusedRequest<'_>) -> Response {
        problem.render(Some(request.corr_id), Some(request.path), request.closes)
    }
}
