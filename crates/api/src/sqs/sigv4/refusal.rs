//! Refusals of signatures, with the codes and the words that clients of the service know.

use std::borrow::Cow;

use http::StatusCode;

use super::super::error::SqsError;
use super::{SKEW_MAX_S, date};

/// The most of a request's text that is said back to it.
const ECHO_CHARS_MAX: usize = 64;

fn echo(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(ECHO_CHARS_MAX).collect()
}

fn forbidden(code: &'static str, message: impl Into<Cow<'static, str>>) -> SqsError {
    SqsError::new(code, code, message).with_status(StatusCode::FORBIDDEN)
}

fn not_good(message: impl Into<Cow<'static, str>>) -> SqsError {
    forbidden("SignatureDoesNotMatch", message)
}

fn not_whole(message: impl Into<Cow<'static, str>>) -> SqsError {
    SqsError::new("IncompleteSignature", "IncompleteSignature", message)
}

pub(super) fn missing() -> SqsError {
    forbidden("MissingAuthenticationToken", "Request is missing Authentication Token")
}

pub(super) fn mismatch() -> SqsError {
    not_good(
        "The request signature we calculated does not match the signature you provided. \
         Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
    )
}

pub(super) fn other_payload() -> SqsError {
    not_good("The provided 'x-amz-content-sha256' header does not match what was computed.")
}

pub(super) fn too_late(timestamp: &str, now_s: u64) -> SqsError {
    let (earliest, now) = (date::write(now_s.saturating_sub(SKEW_MAX_S)), date::write(now_s));
    not_good(format!("Signature expired: {timestamp} is now earlier than {earliest} ({now} - 15 min.)"))
}

pub(super) fn too_early(timestamp: &str, now_s: u64) -> SqsError {
    let (latest, now) = (date::write(now_s.saturating_add(SKEW_MAX_S)), date::write(now_s));
    not_good(format!("Signature not yet current: {timestamp} is still later than {latest} ({now} + 15 min.)"))
}

pub(super) fn expired() -> SqsError {
    SqsError::new("RequestExpired", "RequestExpired", "Request has expired.")
}

pub(super) fn bad_scope(rule: &str, found: &str) -> SqsError {
    not_good(format!("Credential should be scoped to {rule} '{}'.", echo(found)))
}

pub(super) fn other_day(date: &str, timestamp: &str) -> SqsError {
    let (date, day) = (echo(date), timestamp.split('T').next().unwrap_or_default());
    not_good(format!(
        "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: \
         '{date}' != '{day}', from '{timestamp}'."
    ))
}

pub(super) fn unsigned(header: &str) -> SqsError {
    not_good(format!("'{header}' must be a 'SignedHeader' in the AWS Authorization."))
}

pub(super) fn unordered() -> SqsError {
    not_good("The names in 'SignedHeaders' must be in alphabetical order, each once.")
}

pub(super) fn repeated(header: &str) -> SqsError {
    not_whole(format!("The header '{header}' must not be repeated."))
}

pub(super) fn incomplete(why: &str) -> SqsError {
    not_whole(format!("Authorization header cannot be used: {why}."))
}

pub(super) fn no_parameter(place: &str, name: &str) -> SqsError {
    not_whole(format!("{place} requires '{name}' parameter."))
}

pub(super) fn no_date() -> SqsError {
    not_whole("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
}

pub(super) fn bad_date(text: &str) -> SqsError {
    not_whole(format!("Date must be in ISO-8601 'basic format'. Got '{}'.", echo(text)))
}

pub(super) fn bad_expires() -> SqsError {
    not_whole("X-Amz-Expires must be a number of seconds from 1 to 604800.")
}

pub(super) fn bad_credential(text: &str) -> SqsError {
    not_whole(format!(
        "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term, got '{}'.",
        echo(text)
    ))
}

pub(super) fn unknown_algorithm() -> SqsError {
    not_whole("Only the algorithm 'AWS4-HMAC-SHA256' is understood.")
}

pub(super) fn two_signatures() -> SqsError {
    not_whole("Only one of the Authorization header and the query may carry a signature.")
}

pub(super) fn presigned() -> SqsError {
    SqsError::invalid_security(
        "Signatures in the query are not accepted here; the operator can allow them with sqs.presigned.",
    )
}

pub(super) fn unsigned_payload() -> SqsError {
    SqsError::invalid_security("The body must be under the signature: UNSIGNED-PAYLOAD is not accepted.")
}
