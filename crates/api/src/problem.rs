//! Refusals as callers see them: one problem body (RFC 9457) for every way to fail.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use ron_types::{Error, Kind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::corr::CorrId;

/// A refusal, in the words of the answer.
#[derive(Clone, Debug)]
pub struct Problem {
    /// HTTP status of the answer.
    pub status: StatusCode,
    /// The stable code that clients match on.
    pub code: &'static str,
    /// Sentence that all problems with this code share.
    pub title: &'static str,
    /// Sentence on what happened to this request.
    pub detail: Cow<'static, str>,
    /// Time after which a retry makes sense; 429 and 503 name a second if nothing better is known.
    pub retry_after: Option<Duration>,
    pub(crate) counted: Counted,
    /// The connection has no future: its next bytes cannot be told apart from this request's.
    pub(crate) closes: bool,
}

/// Counter that the guard raises beside the latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Nothing,
    Deadline,
    Drain,
    StalledBody,
    LargeBody,
    LargeHead,
    Inflation,
    BodyMemory,
}

/// A refusal: the members of RFC 9457, ours after them.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// The code as a name of its own.
    r#type: Cow<'static, str>,
    /// The same sentence for every problem of this code.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// What happened this time.
    detail: &'a str,
    /// The path asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    /// The stable code that clients match on.
    code: &'a str,
    /// The id the request is found under.
    #[serde(skip_serializing_if = "Option::is_none")]
    corr_id: Option<&'a str>,
    /// When to come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// Longer paths are cut in problem bodies.
const INSTANCE_BYTES_MAX: usize = 256;

impl Problem {
    /// A malformed request, answered with a status that says more than 400 does.
    pub fn schema(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Problem { status, ..Problem::from(Error::schema(detail)) }
    }

    /// Something broke here; the caller did nothing wrong.
    pub fn internal(detail: &'static str) -> Self {
        Problem {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "E_INTERNAL",
            title: "the node made a mistake",
            detail: Cow::Borrowed(detail),
            retry_after: None,
            counted: Counted::Nothing,
            closes: false,
        }
    }

    pub(crate) fn too_large(detail: impl Into<Cow<'static, str>>, counted: Counted) -> Self {
        Problem { counted, closes: true, ..Problem::from(Error::new(Kind::FrameTooLarge, detail)) }
    }

    /// The answer. `closes` says whether `Connection: close` must be written, which HTTP/2 forbids.
    pub(crate) fn render(&self, corr_id: Option<&CorrId>, path: Option<&str>, closes: bool) -> Response {
        let mut response = Response::new(Body::from(self.body(corr_id, path)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    pub(crate) fn body(&self, corr_id: Option<&CorrId>, path: Option<&str>) -> Vec<u8> {
        let body = ProblemBody {
            r#type: Cow::Owned(format!("urn:macronode:error:{}", self.code)),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            instance: path.map(|path| &path[..path.floor_char_boundary(INSTANCE_BYTES_MAX)]),
            code: self.code,
            corr_id: corr_id.map(CorrId::as_str),
            retry_after_ms: self.retry_after().map(|wait| wait.as_millis() as u64),
        };
        serde_json::to_vec(&body).expect("strings and numbers can be written")
    }

    fn retry_after(&self) -> Option<Duration> {
        let owed = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        self.retry_after.or_else(|| owed.then_some(Duration::from_secs(1)))
    }
}

/// Retry-After knows only whole seconds, and zero would be an invitation.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = StatusCode::from_u16(error.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem {
            status,
            code: error.kind.code(),
            title: error.kind.title(),
            detail: error.detail,
            retry_after: error.retry_after,
            counted: match error.kind {
                Kind::Timeout => Counted::Deadline,
                Kind::Canceled => Counted::Drain,
                _ => Counted::Nothing,
            },
            closes: false,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // The guard finds the problem in the extensions and writes the body again with what only it knows.
        let mut response = self.render(None, None, false);
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_carries_everything_known() {
        let corr_id = CorrId::parse(b"abc").expect("plain");
        let problem = Problem::from(Error::busy("queue work"));
        let body: serde_json::Value =
            serde_json::from_slice(&problem.body(Some(&corr_id), Some("/v1/echo"))).expect("json");
        let expected = serde_json::json!({
            "type": "urn:macronode:error:E_SATURATED",
            "title": "the node is busy",
            "status": 429,
            "detail": "queue work is full; try again after the time given",
            "instance": "/v1/echo",
            "code": "E_SATURATED",
            "corr_id": "abc",
            "retry_after_ms": 1000,
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn waits_are_rounded_up_to_whole_seconds() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (2500, 3)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }

    #[test]
    fn only_busy_and_unavailable_tell_when_to_come_back() {
        for kind in Kind::ALL {
            let problem = Problem::from(Error { retry_after: None, ..Error::new(kind, "x") });
            let told = problem.render(None, None, true).headers().contains_key(header::RETRY_AFTER);
            assert_eq!(told, matches!(problem.status.as_u16(), 429 | 503), "{kind:?}");
        }
    }
}
