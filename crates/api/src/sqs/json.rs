//! The JSON 1.0 protocol: bodies into requests, answers and refusals into bodies.

use std::borrow::Cow;

use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Action;
use super::error::SqsError;
use super::model::{ActionOutput, OfQueue};
use super::protocol::{TARGET_HEADER, media_type};
use crate::extract;

pub(super) const MEDIA_TYPE: &str = "application/x-amz-json-1.0";

/// Prefix of the action in the target header.
const TARGET_PREFIX: &str = "AmazonSQS.";

/// Body of a refusal in the JSON protocol.
#[derive(Serialize)]
struct Refusal<'a> {
    #[serde(rename = "__type")]
    shape: Cow<'a, str>,
    message: &'a str,
}

/// Shapes that are not in the model of the service: those of the framework it stands on.
const FRAMEWORK_SHAPES: [&str; 5] = [
    "AccessDeniedException",
    "InvalidParameterValueException",
    "MissingRequiredParameterException",
    "SerializationException",
    "UnknownOperationException",
];

/// JSON as clients of SQS call it, or as people do who write a request by hand.
pub(super) fn is_media_type(essence: &[u8]) -> bool {
    ["application/x-amz-json-1.0", "application/x-amz-json-1.1", "application/json"]
        .iter()
        .any(|name| essence.eq_ignore_ascii_case(name.as_bytes()))
}

/// Action named by the header `x-amz-target`.
pub(super) fn action_of(headers: &HeaderMap) -> Result<Action, SqsError> {
    let no_operation = |message: String| Err(SqsError::unknown_operation(message));
    let Some(target) = headers.get(TARGET_HEADER) else {
        return no_operation("The header X-Amz-Target is missing: it must be AmazonSQS. and an action.".into());
    };
    // Without a type the body cannot be anything else.
    if !media_type(headers).is_none_or(is_media_type) {
        return no_operation(format!("Content-Type must be {MEDIA_TYPE} where there is a X-Amz-Target."));
    }
    let action = target.to_str().ok().and_then(|target| Action::parse(target.strip_prefix(TARGET_PREFIX)?));
    action.ok_or_else(|| SqsError::unknown_operation("X-Amz-Target names no action of this service."))
}

/// Reads a request. The queue of the path stands in where the body names none.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8], path_url: Option<&str>) -> Result<T, SqsError> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let request: T = parse(body)?;
    let Some(path_url) = path_url else { return Ok(request) };
    if parse::<OfQueue>(body)?.queue_url.is_some() {
        return Ok(request);
    }
    // Few clients write to the address of a queue without naming it, so it may cost a second look.
    let mut members: serde_json::Map<String, Value> = parse(body)?;
    members.insert("QueueUrl".to_owned(), path_url.into());
    T::deserialize(Value::Object(members)).map_err(|error| SqsError::serialization(error.to_string()))
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, SqsError> {
    extract::parse(body).map_err(|problem| SqsError::serialization(problem.detail))
}

/// The body of an answer; nothing at all where there is nothing to say.
pub(super) fn answer(answer: &ActionOutput) -> Vec<u8> {
    match answer {
        ActionOutput::Nothing => Vec::new(),
        answer => serde_json::to_vec(answer).expect("strings, numbers and maps of strings can be written"),
    }
}

/// Bytes of the body of a refusal.
pub(super) fn error(error: &SqsError) -> Vec<u8> {
    let namespace =
        if FRAMEWORK_SHAPES.contains(&error.shape) { "com.amazon.coral.service" } else { "com.amazonaws.sqs" };
    let refusal = Refusal { shape: Cow::Owned(format!("{namespace}#{}", error.shape)), message: &error.message };
    serde_json::to_vec(&refusal).expect("strings can be written")
}
