//! Refusals of the plane's layers in the words of SQS, in the protocol of the request.

use axum::response::Response;

use super::error::SqsError;
use super::protocol::Protocol;
use super::{json, xml};
use crate::error_format::{ErrorFormat, ErrorFormats, ProblemJson, RefusedRequest};
use crate::problem::Problem;

/// The formats of the surface. A path that is no queue's is refused as the plane does it.
pub(super) static SQS_ERRORS: ErrorFormats = ErrorFormats {
    all: &[&Protocol::Json, &Protocol::Query, &ProblemJson],
    choose: |request| match Protocol::of(request.headers()) {
        Protocol::Json => &Protocol::Json,
        Protocol::Query => &Protocol::Query,
    },
};

impl ErrorFormat for Protocol {
    fn media_type(&self) -> &'static str {
        match self {
            Protocol::Json => json::MEDIA_TYPE,
            Protocol::Query => xml::MEDIA_TYPE,
        }
    }

    fn write(&self, problem: &Problem, request: &RefusedRequest<'_>) -> Response {
        self.refusal(&SqsError::from(problem), request.corr_id, request.closes)
    }
}
