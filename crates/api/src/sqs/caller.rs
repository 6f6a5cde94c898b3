//! Who asks: the request read whole, its signature, and what the key behind it allows.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::uri::Authority as HostAndPort;
use http::{HeaderMap, HeaderName, header};
use ron_auth::{Action, Subject};
use ron_kernel::clock;
use ron_types::{Error, Kind};

use super::App;
use super::error::SqsError;
use super::message::Origin;
use super::names::Namespace;
use super::protocol::Protocol;
use super::sigv4::{self, HeadProof};
use crate::call::Call;
use crate::corr::CorrId;
use crate::recognition::{Recognized, Recognizer};
use crate::route::Secured;

/// Sender of one request, verified unless signatures are off.
pub(super) struct Caller {
    pub call: Call,
    /// What the caller's names mean: in the region of the signature's scope, of which any is taken.
    pub namespace: Namespace,
    /// Base of all URLs the caller sees: `http://host:port`, without a slash at the end.
    pub base_url: String,
    /// Sender id that receivers see: the access key's, or the account's where there is no key.
    pub sender: String,
    /// Trace id that the infrastructure put on the request.
    trace: Option<String>,
    /// The capability behind the key; none if signatures are off and everything is allowed.
    token: Option<Arc<str>>,
}

/// Recognizes the signers of requests by their key, or the bearers of tokens.
pub(super) struct SignerRecognizer(pub Arc<App>);

impl Recognizer for SignerRecognizer {
    fn recognize(&self, head: &Parts, corr_id: &CorrId) -> Result<Recognized, Box<Response>> {
        let SignerRecognizer(app) = self;
        if !app.options.signatures {
            return Ok(Recognized::Anyone);
        }
        let now_unix_s = clock::unix_millis() / 1000;
        let proof = sigv4::recognize(&app.keyring, &app.options, head, now_unix_s);
        let recognized = proof.and_then(|proof| match proof {
            HeadProof::Token(token) => {
                let bearer = app.authority.identify(Some(&token), false).map_err(|error| refused("", error))?;
                Ok(Recognized::Subject(Arc::clone(&bearer.subject().name)))
            }
            HeadProof::Key(key) => Ok(Recognized::Subject(key.id.as_str().into())),
            HeadProof::Pending(key) => Ok(Recognized::Claimed(key.id.as_str().into())),
        });
        recognized.map_err(|error| Box::new(Protocol::of(&head.headers).refusal(&error, corr_id, false)))
    }
}

/// Region of a request without a signature.
const REGION: &str = "us-east-1";
/// Maximum bytes of the host in queue URLs: the longest name there is, and a port. A list repeats it in each of its
/// URLs, so one as long as a head may be would make an answer a thousand times as large as its request.
const HOST_BYTES_MAX: usize = 253 + ":65535".len();
/// Header with the trace of a request; it stands outside signatures, because infrastructure adds it on the way.
const TRACE_HEADER: HeaderName = HeaderName::from_static("x-amzn-trace-id");
/// Maximum bytes of a trace that a message keeps.
const TRACE_BYTES_MAX: usize = 1024;

impl Caller {
    /// Verifies the signature or token of a request, unless signatures are off.
    pub(super) fn verify(app: &App, call: Call, parts: &Parts, body: &Bytes) -> Result<Self, SqsError> {
        let base_url = base_url(app.options.base_url.as_deref(), parts);
        let trace = trace(&parts.headers);
        if !app.options.signatures {
            let (sender, region) = claimed(&parts.headers).unwrap_or((&app.options.account_id, REGION));
            let namespace = Namespace::new(&app.options, region);
            return Ok(Caller { call, namespace, base_url, sender: sender.into(), trace, token: None });
        }
        let now_unix_s = clock::unix_millis() / 1000;
        let signer = sigv4::verify(&app.keyring, &app.options, parts, body, now_unix_s)?;
        // A caller with a token of the node instead of a key has no key id.
        let sender = if signer.access_key.is_empty() {
            app.options.account_id.clone()
        } else {
            call.admission.belongs_to(&signer.access_key)?;
            signer.access_key
        };
        let namespace = Namespace::new(&app.options, &signer.region);
        Ok(Caller { call, namespace, base_url, sender, trace, token: Some(signer.token) })
    }

    /// What a message keeps of the request that sent it.
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin { sender: &self.sender, corr_id: self.call.corr_id.as_str(), trace: self.trace.as_deref() }
    }

    /// The caller may do this to the queue; an empty name stands for what concerns no single queue.
    pub(super) fn allow(&self, app: &App, action: Action, queue: &str) -> Result<Arc<Subject>, SqsError> {
        let Some(token) = &self.token else { return Ok(Arc::clone(&app.anyone)) };
        let allowed = app.authority.authorize(Some(token), action, queue, None);
        allowed.map_err(|error| refused(queue, error))
    }
}

/// What SQS calls a refusal of the node's authority.
fn refused(queue: &str, error: Error) -> SqsError {
    match error.kind {
        Kind::Forbidden => SqsError::access_denied(queue),
        Kind::Unauthenticated => SqsError::invalid_token(),
        _ => error.into(),
    }
}

/// Everybody, where signatures are off.
pub(super) fn anyone() -> Subject {
    Subject::operator(ron_kernel::meter::ANONYMOUS)
}

fn base_url(configured: Option<&str>, parts: &Parts) -> String {
    if let Some(url) = configured {
        return url.trim_end_matches('/').to_owned();
    }
    let host = parts.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let host = host.filter(|host| host.parse::<HostAndPort>().is_ok());
    let host = host.or_else(|| parts.uri.authority().map(HostAndPort::as_str));
    let host = host.filter(|host| host.len() <= HOST_BYTES_MAX).unwrap_or("localhost");
    let scheme = if parts.extensions.get::<Secured>().is_some() { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// The trace of a request, if it is one plain text of bearable length; what is not is left out, not refused, because
/// the sender may know nothing of it.
fn trace(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(TRACE_HEADER)?.to_str().ok()?;
    (1..=TRACE_BYTES_MAX).contains(&text.len()).then(|| text.to_owned())
}

/// Key and region as a signature claims them that nobody checks.
fn claimed(headers: &HeaderMap) -> Option<(&str, &str)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let credential = value.split_once("Credential=")?.1.split(',').next()?;
    let mut words = credential.trim().split('/');
    let (key, _date, region) = (words.next()?, words.next()?, words.next()?);
    let is_plain = |word: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=64).contains(&word.len()) && word.bytes().all(allowed)
    };
    (is_plain(key) && is_plain(region)).then_some((key, region))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parts(uri: &str, host: Option<&str>, secured: bool) -> Parts {
        let mut request = http::Request::new(());
        *request.uri_mut() = uri.parse().expect("an address");
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, HeaderValue::from_str(host).expect("a value"));
        }
        if secured {
            request.extensions_mut().insert(Secured);
        }
        request.into_parts().0
    }

    #[test]
    fn queue_urls_begin_where_the_client_found_the_node() {
        let too_long = "h".repeat(HOST_BYTES_MAX + 1);
        let (longest, too_long) = (&too_long[1..], too_long.as_str());
        for (configured, uri, host, secured, expected) in [
            (None, "/", Some("node:9000"), false, "http://node:9000"),
            (None, "/", Some("node"), true, "https://node"),
            (None, "/", Some("[::1]:80"), false, "http://[::1]:80"),
            (None, "http://other:1/", None, false, "http://other:1"),
            (None, "/", None, false, "http://localhost"),
            (None, "/", Some("a b<script>"), false, "http://localhost"),
            (None, "/", Some(longest), false, &format!("http://{longest}")),
            (None, "/", Some(too_long), false, "http://localhost"),
            (None, &format!("http://{too_long}/"), None, false, "http://localhost"),
            (Some("https://queues.example/"), "/", Some("node"), false, "https://queues.example"),
        ] {
            assert_eq!(base_url(configured, &parts(uri, host, secured)), expected, "{host:?}");
        }
    }

    #[test]
    fn a_trace_is_taken_if_a_message_can_keep_it() {
        let longest = "x".repeat(TRACE_BYTES_MAX);
        for (value, is_kept) in [("Root=1-5", true), (&longest, true), (&format!("{longest}x"), false), ("", false)] {
            let headers = HeaderMap::from_iter([(TRACE_HEADER, HeaderValue::from_str(value).expect("a value"))]);
            assert_eq!(trace(&headers).as_deref(), is_kept.then_some(value));
        }
        let bytes = HeaderValue::from_bytes(b"a\xffb").expect("opaque bytes");
        assert_eq!(trace(&HeaderMap::from_iter([(TRACE_HEADER, bytes)])), None);
    }

    #[test]
    fn without_signatures_the_claim_is_shown_if_it_is_plain() {
        let aws = "AWS4-HMAC-SHA256 Credential=AKID/20250101/eu-west-1/sqs/aws4_request, SignedHeaders=host";
        for (value, expected) in [
            (Some(aws), Some(("AKID", "eu-west-1"))),
            (Some("AWS4-HMAC-SHA256 Credential=A<B/20250101/eu/sqs"), None),
            (Some("AWS4-HMAC-SHA256 Credential=A"), None),
            (Some("Bearer x"), None),
            (None, None),
        ] {
            let value = value.map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value)));
            let headers = HeaderMap::from_iter(value);
            assert_eq!(claimed(&headers), expected);
        }
    }
}
