//! Who signed a request: Signature Version 4 in the `Authorization` header or in the query, checked against the ring.

mod canonical;
mod date;
mod refusal;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{digest, hmac};
use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;

use super::error::SqsError;
use super::keys::{AccessKey, Keyring, SigningKey};
use super::options::SqsOptions;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "sqs";
const TERMINATOR: &str = "aws4_request";
const REGION_DEFAULT: &str = "us-east-1";
const REGION_BYTES_MAX: usize = 64;
/// Maximum difference between the clocks of client and node, in seconds either way.
const SKEW_MAX_S: u64 = 15 * 60;
/// A week: the longest life of a signature in a query.
const EXPIRES_MAX_S: u64 = 7 * 24 * 60 * 60;

const HOST: &str = "host";
const X_AMZ_DATE: &str = "x-amz-date";
const X_AMZ_TARGET: &str = "x-amz-target";
const X_AMZ_CONTENT_SHA256: &str = "x-amz-content-sha256";

/// Verified sender of a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Signer {
    /// The id of the key; empty where a token was shown instead.
    pub access_key: String,
    /// The capability of the key, or the token shown.
    pub token: Arc<str>,
    /// The region of the signature's scope.
    pub region: String,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("access_key", &self.access_key)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// Signature of a request and what it claims to cover, not yet verified.
struct Claim<'a> {
    credential: Credential<'a>,
    /// Small letters, with semicolons between.
    signed_headers: Cow<'a, str>,
    signature: Cow<'a, str>,
    /// Time of the signature as it was signed: `20260102T030405Z`.
    timestamp: Cow<'a, str>,
    timestamp_s: u64,
    /// The header with the time; none where the query has it.
    time_header: Option<&'static str>,
    /// Life of a signature in a query, in seconds.
    expires_s: Option<u64>,
}

/// `key/date/region/sqs/aws4_request`.
struct Credential<'a> {
    text: Cow<'a, str>,
}

/// What the head of a request shows.
enum Shown<'a> {
    Token(&'a str),
    Signature(Claim<'a>, Arc<AccessKey>),
}

/// How far the head of a request proves who sent it.
pub(crate) enum HeadProof {
    /// It shows a token, not yet looked at.
    Token(Arc<str>),
    /// It is signed with this key, and names the hash of the body that must follow.
    Key(Arc<AccessKey>),
    /// It names this key of the ring, but its signature can be checked only with the body.
    Pending(Arc<AccessKey>),
}

/// Checks what can be checked before the body is read.
pub(crate) fn recognize(
    keyring: &Keyring,
    options: &SqsOptions,
    parts: &Parts,
    now_unix_s: u64,
) -> Result<HeadProof, SqsError> {
    let query = canonical::Query::of(parts);
    let (claim, key) = match examine(keyring, options, parts, &query, now_unix_s)? {
        Shown::Token(token) => return Ok(HeadProof::Token(token.into())),
        Shown::Signature(claim, key) => (claim, key),
    };
    let Some(named) = parts.headers.get(X_AMZ_CONTENT_SHA256) else { return Ok(HeadProof::Pending(key)) };
    let Ok(named) = canonical::Hash::try_from(named.as_bytes()) else { return Err(refusal::unsigned_payload()) };
    claim.check_signature(&key, parts, &query, &named)?;
    Ok(HeadProof::Key(key))
}

/// Checks the signature of a request, or takes the token that it shows instead. `body` is what came over the wire.
pub(crate) fn verify(
    keyring: &Keyring,
    options: &SqsOptions,
    parts: &Parts,
    body: &[u8],
    now_unix_s: u64,
) -> Result<Signer, SqsError> {
    let query = canonical::Query::of(parts);
    let (claim, key) = match examine(keyring, options, parts, &query, now_unix_s)? {
        Shown::Token(token) => {
            return Ok(Signer { access_key: String::new(), token: token.into(), region: REGION_DEFAULT.into() });
        }
        Shown::Signature(claim, key) => (claim, key),
    };
    claim.check_signature(&key, parts, &query, &payload_hash(parts, body)?)?;
    let region = claim.credential.region().to_owned();
    Ok(Signer { access_key: key.id.clone(), token: Arc::clone(&key.token), region })
}

/// Everything about a credential that does not depend on the body.
fn examine<'a>(
    keyring: &Keyring,
    options: &SqsOptions,
    parts: &'a Parts,
    query: &'a canonical::Query,
    now_unix_s: u64,
) -> Result<Shown<'a>, SqsError> {
    let claim = match authorization(parts)? {
        Some(_) if query.get("X-Amz-Signature").is_some() => return Err(refusal::two_signatures()),
        Some(header) => {
            if let Some(token) = bearer(header) {
                return Ok(Shown::Token(token));
            }
            Claim::in_header(parts, header)?
        }
        None if query.get("X-Amz-Signature").is_none() => return Err(refusal::missing()),
        None if !options.presigned => return Err(refusal::presigned()),
        None => Claim::in_query(query)?,
    };
    claim.credential.check(&claim.timestamp)?;
    claim.check_signed(parts)?;
    check_single(parts)?;
    claim.check_time(now_unix_s)?;
    let key = keyring.find(claim.credential.access_key()).ok_or_else(SqsError::invalid_token)?;
    Ok(Shown::Signature(claim, key))
}

fn authorization(parts: &Parts) -> Result<Option<&str>, SqsError> {
    let mut values = parts.headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map(Some).map_err(|_| refusal::incomplete("it is not plain text")),
        (Some(_), Some(_)) => Err(refusal::incomplete("there is more than one")),
        _ => Ok(None),
    }
}

/// Token in `Bearer <token>`.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The value of one of `Credential=…, SignedHeaders=…, Signature=…`.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let (algorithm, fields) = header.split_once(' ')?;
    let mut fields = (algorithm == ALGORITHM).then_some(fields)?.split(',');
    fields.find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
}

impl<'a> Claim<'a> {
    fn in_header(parts: &'a Parts, header: &'a str) -> Result<Self, SqsError> {
        if !header.starts_with(ALGORITHM) {
            return Err(refusal::unknown_algorithm());
        }
        let needed = |name| field(header, name).ok_or_else(|| refusal::no_parameter("Authorization header", name));
        let credential = Credential::read(Cow::Borrowed(needed("Credential")?))?;
        let (signed_headers, signature) = (needed("SignedHeaders")?.into(), needed("Signature")?.into());
        let (time_header, timestamp, timestamp_s) = time_of(parts)?;
        let time_header = Some(time_header);
        Ok(Claim { credential, signed_headers, signature, timestamp, timestamp_s, time_header, expires_s: None })
    }

    fn in_query(query: &'a canonical::Query) -> Result<Self, SqsError> {
        let needed =
            |name: &'static str| query.get(name).ok_or_else(|| refusal::no_parameter("AWS query-string", name));
        if needed("X-Amz-Algorithm")? != ALGORITHM {
            return Err(refusal::unknown_algorithm());
        }
        let credential = Credential::read(Cow::Borrowed(needed("X-Amz-Credential")?))?;
        let timestamp = needed("X-Amz-Date")?;
        let timestamp_s = date::read(timestamp).ok_or_else(|| refusal::bad_date(timestamp))?;
        let expires_s = needed("X-Amz-Expires")?.parse().ok().filter(|seconds| (1..=EXPIRES_MAX_S).contains(seconds));
        Ok(Claim {
            credential,
            signed_headers: needed("X-Amz-SignedHeaders")?.into(),
            signature: needed("X-Amz-Signature")?.into(),
            timestamp: timestamp.into(),
            timestamp_s,
            time_header: None,
            expires_s: Some(expires_s.ok_or_else(refusal::bad_expires)?),
        })
    }

    /// Refuses a request whose destination or action is not covered by the signature, and names that are not in the one
    /// order signers give them. So each header enters the signed text once, which is bounded by the head then.
    fn check_signed(&self, parts: &Parts) -> Result<(), SqsError> {
        let target = parts.headers.contains_key(X_AMZ_TARGET).then_some(X_AMZ_TARGET);
        let needed = [Some(HOST), self.time_header, target].into_iter().flatten();
        let mut unsigned = needed.filter(|needed| !self.signed_headers.split(';').any(|name| name == *needed));
        if let Some(name) = unsigned.next() {
            return Err(refusal::unsigned(name));
        }
        let is_ascending = self.signed_headers.split(';').is_sorted_by(|before, after| before < after);
        is_ascending.then_some(()).ok_or_else(refusal::unordered)
    }

    fn check_time(&self, now_s: u64) -> Result<(), SqsError> {
        if self.timestamp_s > now_s.saturating_add(SKEW_MAX_S) {
            return Err(refusal::too_early(&self.timestamp, now_s));
        }
        match self.expires_s {
            Some(expires_s) if now_s > self.timestamp_s.saturating_add(expires_s) => Err(refusal::expired()),
            None if self.timestamp_s.saturating_add(SKEW_MAX_S) < now_s => {
                Err(refusal::too_late(&self.timestamp, now_s))
            }
            _ => Ok(()),
        }
    }

    fn check_signature(
        &self,
        key: &AccessKey,
        parts: &Parts,
        query: &canonical::Query,
        payload: &canonical::Hash,
    ) -> Result<(), SqsError> {
        let signature = canonical::from_hex(&self.signature).ok_or_else(refusal::mismatch)?;
        let request = canonical::request(parts, query, &self.signed_headers, payload);
        let text = self.string_to_sign(&request);
        let (date, region) = (self.credential.date(), self.credential.region());
        let remembered = key.remembered(date, region);
        let is_new = remembered.is_none();
        let signing = remembered.unwrap_or_else(|| Arc::new(derive(&key.secret, date, region)));
        // Takes as long for a near miss as for a far one.
        hmac::verify(&signing.key, &text, &signature).map_err(|_| refusal::mismatch())?;
        if is_new {
            key.remember(&signing);
        }
        Ok(())
    }

    fn string_to_sign(&self, request: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(192);
        for line in [ALGORITHM, &self.timestamp, self.credential.scope()] {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(&canonical::hash(request));
        text
    }
}

impl<'a> Credential<'a> {
    fn read(text: Cow<'a, str>) -> Result<Self, SqsError> {
        match text.split('/').count() {
            5 => Ok(Credential { text }),
            _ => Err(refusal::bad_credential(&text)),
        }
    }

    fn part(&self, index: usize) -> &str {
        self.text.split('/').nth(index).unwrap_or_default()
    }

    fn access_key(&self) -> &str {
        self.part(0)
    }

    fn date(&self) -> &str {
        self.part(1)
    }

    fn region(&self) -> &str {
        self.part(2)
    }

    /// Scope of the credential: everything after the key id.
    fn scope(&self) -> &str {
        self.text.split_once('/').map_or("", |(_, scope)| scope)
    }

    fn check(&self, timestamp: &str) -> Result<(), SqsError> {
        if !is_region(self.region()) {
            return Err(refusal::bad_scope("a valid region, not", self.region()));
        }
        if self.part(3) != SERVICE {
            return Err(refusal::bad_scope("correct service: 'sqs', not", self.part(3)));
        }
        if self.part(4) != TERMINATOR {
            return Err(refusal::bad_scope("a valid terminator: 'aws4_request', not", self.part(4)));
        }
        match timestamp.strip_prefix(self.date()).is_some_and(|rest| rest.starts_with('T')) {
            true => Ok(()),
            false => Err(refusal::other_day(self.date(), timestamp)),
        }
    }
}

/// Any region will do, as long as it can stand in the name of a resource.
fn is_region(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=REGION_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

/// Refuses a header that decides something and stands there twice: the signed text is the same for one value with a
/// comma in it, so it does not tell which of them counts.
fn check_single(parts: &Parts) -> Result<(), SqsError> {
    let twice = |name: &&&str| parts.headers.get_all(**name).iter().nth(1).is_some();
    let deciding = [HOST, X_AMZ_DATE, "date", X_AMZ_TARGET, X_AMZ_CONTENT_SHA256, "content-type"];
    deciding.iter().find(twice).map_or(Ok(()), |name| Err(refusal::repeated(name)))
}

/// Time of the signature: the header that names it, its text, and seconds since 1970.
fn time_of(parts: &Parts) -> Result<(&'static str, Cow<'_, str>, u64), SqsError> {
    let text = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let (name, text) = match (text(X_AMZ_DATE), text(DATE.as_str())) {
        (Some(text), _) => (X_AMZ_DATE, text),
        (None, Some(text)) => ("date", text),
        (None, None) => return Err(refusal::no_date()),
    };
    if let Some(seconds) = date::read(text) {
        return Ok((name, text.into(), seconds));
    }
    let seconds = (name == "date").then(|| date::read_http(text)).flatten();
    let seconds = seconds.ok_or_else(|| refusal::bad_date(text))?;
    Ok((name, date::write(seconds).into(), seconds))
}

/// The hash of what was sent. A hash that the request names must be that one: a body without one is refused.
fn payload_hash(parts: &Parts, body: &[u8]) -> Result<canonical::Hash, SqsError> {
    let hash = canonical::hash(body);
    match parts.headers.get(X_AMZ_CONTENT_SHA256) {
        Some(named) if named.as_bytes() == b"UNSIGNED-PAYLOAD" => Err(refusal::unsigned_payload()),
        Some(named) if named.as_bytes() != hash => Err(refusal::other_payload()),
        _ => Ok(hash),
    }
}

fn derive(secret: &str, date: &str, region: &str) -> SigningKey {
    let keyed = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
    let first = zeroize::Zeroizing::new([b"AWS4", secret.as_bytes()].concat());
    let steps = [date, region, SERVICE, TERMINATOR];
    let key = steps.iter().fold(keyed(&first), |key, step| keyed(hmac::sign(&key, step.as_bytes()).as_ref()));
    SigningKey { date: date.to_owned(), region: region.to_owned(), key }
}

const _: () = assert!(digest::SHA256_OUTPUT_LEN * 2 == size_of::<canonical::Hash>());

#[cfg(test)]
mod tests;
