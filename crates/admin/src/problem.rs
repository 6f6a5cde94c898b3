//! Errors as `application/problem+json`.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use ron_types::{Error, Kind};
use serde_json::{Value, json};

/// An error answer.
pub(crate) fn problem(status: StatusCode, title: &str, detail: &str, code: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
        "code": code,
    });
    answer(status, "application/problem+json", body.to_string())
}

/// A typed error as an answer.
pub(crate) fn refuse(error: &Error) -> Response {
    let status = StatusCode::from_u16(error.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = problem(status, error.kind.title(), &error.detail, error.kind.code());
    let headers = response.headers_mut();
    if let Some(wait) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    if error.kind == Kind::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A JSON answer.
pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Response {
    answer(status, "application/json", body.to_string())
}

/// An answer of any type.
pub(crate) fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
