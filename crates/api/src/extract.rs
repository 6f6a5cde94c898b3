//! Extractors that check what they hand on, and say which field is wrong.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::body;
use crate::call::Call;
use crate::problem::Problem;

/// A JSON body, as request or as answer.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// Query string, read as `T`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// Parameters of the path, read as `T`.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

/// The body as it is, inflated and capped.
#[derive(Clone, Debug)]
pub struct Payload(pub Bytes);

/// A JSON body not yet read, so that what is read from it can borrow.
#[derive(Clone, Debug)]
pub struct JsonText(Bytes);

/// Longer explanations are cut: a mistake is not worth an answer as long as the request.
const REASON_BYTES_MAX: usize = 512;

impl JsonText {
    /// Reads the body; what is wrong with it is said with the field it is wrong in.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        parse(&self.0)
    }

    /// Reads the body, which may be missing.
    pub fn parse_or_default<'a, T: Deserialize<'a> + Default>(&'a self) -> Result<T, Problem> {
        if self.0.is_empty() { Ok(T::default()) } else { parse(&self.0) }
    }

    /// Whether the text begins like a JSON array.
    pub(crate) fn is_list(&self) -> bool {
        self.0.trim_ascii_start().starts_with(b"[")
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        JsonText(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl JsonText {
    /// Reads a body of at most so many bytes, for a surface whose bodies are smaller than those of the plane.
    pub(crate) fn read_up_to(
        request: Request,
        call: &Call,
        body_bytes_max: usize,
    ) -> impl Future<Output = Result<Self, Problem>> + Send + use<> {
        let says_json = is_json(request.headers());
        let body_bytes_max = body_bytes_max.min(call.limits.body_bytes_max);
        let reading = body::begin(request, call).and_then(|(_, reading)| reading.up_to(body_bytes_max));
        async move {
            let content = reading?.whole().await?;
            // Without content there is nothing whose type could be wrong.
            if !says_json && !content.is_empty() {
                return Err(not_json());
            }
            Ok(JsonText(content))
        }
    }
}

impl FromRequest<Call> for JsonText {
    type Rejection = Problem;

    fn from_request(request: Request, call: &Call) -> impl Future<Output = Result<Self, Problem>> + Send {
        JsonText::read_up_to(request, call, usize::MAX)
    }
}

impl<T: DeserializeOwned> FromRequest<Call> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, call: &Call) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let content = body::begin(request, call)?.1.whole().await?;
        parse(&content).map(Json)
    }
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, Problem> {
    // Keeping track of where one is costs time, so it is done only once something is known to be wrong.
    serde_json::from_slice(content).map_err(|error| explain::<T>(content).unwrap_or_else(|| malformed(&error)))
}

#[cold]
fn explain<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Option<Problem> {
    let mut reader = serde_json::Deserializer::from_slice(content);
    let error = serde_path_to_error::deserialize::<_, T>(&mut reader).err()?;
    let (path, reason) = (error.path().to_string(), error.inner().to_string());
    // A dot stands for the document itself; some reasons name their field already.
    let is_named = path == "." || reason.strip_prefix(&path).is_some_and(|rest| rest.starts_with(':'));
    Some(if is_named { malformed(&reason) } else { malformed(&format_args!("{path}: {reason}")) })
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

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(rejection) => Err(malformed(&rejection.body_text())),
        }
    }
}

impl FromRequest<Call> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, call: &Call) -> Result<Self, Problem> {
        Ok(Payload(body::begin(request, call)?.1.whole().await?))
    }
}

/// Initial bytes of an answer's buffer, enough for most answers.
const ANSWER_BYTES: usize = 128;

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        self.into_response_of(ANSWER_BYTES)
    }
}

impl<T: Serialize> Json<T> {
    /// The answer, written into room for this many bytes; more is made if needed.
    pub(crate) fn into_response_of(self, bytes: usize) -> Response {
        let mut text = Vec::with_capacity(bytes);
        if let Err(error) = serde_json::to_writer(&mut text, &self.0) {
            tracing::error!(%error, "an answer could not be written as JSON");
            return Problem::internal("the answer could not be written").into_response();
        }
        let mut response = Response::new(Body::from(text));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

fn malformed(reason: &dyn std::fmt::Display) -> Problem {
    let mut reason = reason.to_string();
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    Problem::schema(StatusCode::BAD_REQUEST, reason)
}

fn not_json() -> Problem {
    Problem::schema(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return false };
    // As nearly everybody writes it.
    if value == "application/json" {
        return true;
    }
    let essence = essence_of(value);
    essence.eq_ignore_ascii_case(b"application/json")
        || (essence.len() > 17
            && essence[..12].eq_ignore_ascii_case(b"application/")
            && essence[essence.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

/// Whether a body is `application/json` itself: where bodies of other types are content, a document of a type that is
/// written in JSON (`application/cloudevents+json`) is content, too.
pub(crate) fn is_json_itself(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| essence_of(value).eq_ignore_ascii_case(b"application/json"))
}

/// A media type without its parameters.
fn essence_of(value: &HeaderValue) -> &[u8] {
    value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(rename = "list")]
        _list: Vec<u8>,
    }

    #[test]
    fn a_mistake_is_told_with_its_field_and_in_few_words() {
        let told = |text: &str| parse::<Sample>(text.as_bytes()).expect_err("wrong").detail.into_owned();
        assert!(told(r#"{"list":[1,-2]}"#).starts_with("list[1]: "));
        assert!(told(r#"{"list":[],"more":1}"#).starts_with("more: unknown field"));
        assert!(told("{").contains("EOF"));
        assert!(told(r#"{"list":[]} x"#).contains("trailing"));
        assert!(told(&format!(r#"{{"list":"{}"}}"#, "x".repeat(5000))).len() <= REASON_BYTES_MAX);
        assert!(parse::<Sample>(br#"{"list":[1]}"#).is_ok());
    }

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
