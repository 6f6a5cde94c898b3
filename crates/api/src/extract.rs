//! Extractors that check what they hand on, and say which field is wrong.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body;
use crate::problem::Problem;

/// A JSON body, as request or as answer.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// The query string.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// The body as it is, inflated and capped.
#[derive(Clone, Debug)]
pub struct Payload(pub Bytes);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::schema(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"));
        }
        let (_, content) = body::read(request).await?;
        let mut reader = serde_json::Deserializer::from_slice(&content);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            // A dot stands for the document itself; an unknown field names itself in the message.
            if path == "." { malformed(error.inner()) } else { malformed(&format_args!("{path}: {}", error.inner())) }
        })?;
        reader.end().map_err(|error| malformed(&error))?;
        Ok(Json(value))
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(value)) => Ok(Query(value)),
            Err(rejection) => Err(Problem::schema(StatusCode::BAD_REQUEST, rejection.body_text())),
        }
    }
}

impl<S: Sync> FromRequest<S> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        Ok(Payload(body::read(request).await?.1))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => {
                let mut response = Response::new(Body::from(text));
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            }
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                Problem::internal("the answer could not be written").into_response()
            }
        }
    }
}

fn malformed(reason: &dyn std::fmt::Display) -> Problem {
    Problem::schema(StatusCode::BAD_REQUEST, reason.to_string())
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return false };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"application/json")
        || (essence.len() > 17
            && essence[..12].eq_ignore_ascii_case(b"application/")
            && essence[essence.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_by_its_media_type() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/merge-patch+json", true),
            ("application/+json", false),
            ("text/plain", false),
            ("text/json", false),
            ("application/jsonx", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]);
            assert_eq!(is_json(&headers), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
