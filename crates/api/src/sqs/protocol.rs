//! The two protocols: which one a request speaks, and answers and refusals in it.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::error::SqsError;
use super::model::ActionOutput;
use super::{json, xml};
use crate::corr::CorrId;
use crate::problem::whole_seconds;

/// Wire format of a request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// JSON 1.0: the action in a header, the parameters in the body.
    Json,
    /// Query: action and parameters in a form, answers in XML.
    Query,
}

/// Header in which JSON requests name their action.
pub(super) const TARGET_HEADER: HeaderName = HeaderName::from_static("x-amz-target");
/// The id of a request, on every answer.
pub(super) const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-amzn-requestid");
const QUERY_ERROR_HEADER: HeaderName = HeaderName::from_static("x-amzn-query-error");
const RETRY_AFTER_HEADER: HeaderName = HeaderName::from_static("x-amz-retry-after");

impl Protocol {
    /// The protocol of a request with these headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let is_json = headers.contains_key(TARGET_HEADER) || media_type(headers).is_some_and(json::is_media_type);
        if is_json { Protocol::Json } else { Protocol::Query }
    }

    /// The answer to an action that was done.
    pub(super) fn answer(self, action: &str, answer: &ActionOutput, corr_id: &CorrId) -> Response {
        match self {
            Protocol::Json => response(StatusCode::OK, json::MEDIA_TYPE, json::answer(answer), corr_id),
            Protocol::Query => response(StatusCode::OK, xml::MEDIA_TYPE, xml::answer(action, answer, corr_id), corr_id),
        }
    }

    /// A refusal. The connection ends with it if `closes` is set.
    pub(super) fn refusal(self, error: &SqsError, corr_id: &CorrId, closes: bool) -> Response {
        let mut response = match self {
            Protocol::Json => response(error.status, json::MEDIA_TYPE, json::error(error), corr_id),
            Protocol::Query => response(error.status, xml::MEDIA_TYPE, xml::error(error, corr_id), corr_id),
        };
        let headers = response.headers_mut();
        let fault = if error.is_senders() { "Sender" } else { "Receiver" };
        let legacy = HeaderValue::from_str(&format!("{};{fault}", error.code)).expect("codes are plain words");
        headers.insert(QUERY_ERROR_HEADER, legacy);
        if let Some(wait) = error.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
            headers.insert(RETRY_AFTER_HEADER, HeaderValue::from(wait.as_millis().max(1) as u64));
        }
        if closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The answer to a GET that names no action: in these bytes alone, as the service writes them. It depends on nothing
/// that a queue holds.
pub(super) fn unknown_operation(corr_id: &CorrId) -> Response {
    response(StatusCode::NOT_FOUND, xml::MEDIA_TYPE, b"<UnknownOperationException/>\n".to_vec(), corr_id)
}

/// The media type of a body, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::CONTENT_TYPE)?.as_bytes();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    (!essence.is_empty()).then_some(essence)
}

fn response(status: StatusCode, media_type: &'static str, body: Vec<u8>, corr_id: &CorrId) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(REQUEST_ID_HEADER, corr_id.header_value());
    response
}
