//! A router of somebody else's network, asked over HTTP (Delegated Routing V1) as one target of a lookup.
//!
//! Nothing it says is believed beyond its form: an answer is bounded in bytes, records and time, and what it says of
//! providers becomes a record that this node vouches for, marked as such. Of this node itself it can say nothing.

mod answer;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use macronode_client::http::{Endpoint, StreamingAnswer};
use ron_kernel::Deadline;
use ron_store::wire::{AskError, Reply};
use ron_transport::NodeKey;
use rustls::{ClientConfig, RootCertStore};
use svc_index::ports::{Upstream, UpstreamQuestion};

/// Media types that the answers may have, in the order they are liked.
const ACCEPTED: &str = "application/x-ndjson, application/json;q=0.8";
const IPNS_RECORD: &str = "application/vnd.ipfs.ipns-record";
/// A router that is still sending is read until this long before the end of its time. The lookup gives up a question at
/// that end too, and what was read must be handed in before.
const HAND_IN_BEFORE: Duration = Duration::from_millis(20);
/// Path that every router has.
const ROUTING: &str = "/routing/v1";

/// A router, by its address.
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    endpoint: Endpoint,
    /// Path before that of the API.
    base: String,
    authority: String,
    /// Signs what is vouched for.
    key: NodeKey,
}

impl Router {
    /// The router at this address: with or without `/routing/v1` at its end, over TLS unless it is on this machine.
    pub fn new(address: &str, tls: &Arc<ClientConfig>, key: NodeKey) -> Result<Self, String> {
        let strange = || format!("{address} is no address of a router");
        let uri: Uri = address.parse().map_err(|_| strange())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(strange)?;
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_here = bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let (scheme, port) = match uri.scheme_str() {
            Some("https") => ("https", 443),
            Some("http") if is_here => ("http", 80),
            Some("http") => return Err(format!("{address}: only https leaves this machine")),
            _ => return Err(strange()),
        };
        if uri.query().is_some() {
            return Err(strange());
        }
        let port = authority.port_u16().unwrap_or(port);
        let endpoint = Endpoint::trusting(&format!("{scheme}://{host}:{port}"), tls).map_err(|_| strange())?;
        let path = uri.path().trim_end_matches('/');
        let base = path.strip_suffix(ROUTING).unwrap_or(path).to_owned();
        let (name, authority) = (format!("{scheme}://{authority}{base}"), authority.to_string());
        Ok(Router { shared: Arc::new(Shared { name, endpoint, base, authority, key }) })
    }
}

impl Upstream for Router {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn ask(&self, question: UpstreamQuestion, budget: Duration) -> BoxFuture<'static, Result<Reply, AskError>> {
        let shared = Arc::clone(&self.shared);
        async move {
            let by = Deadline::after(budget);
            // A short time is not eaten up by the margin.
            let read_until = by.earlier_by(HAND_IN_BEFORE.min(budget / 4));
            let asked = Box::pin(shared.ask(&question, read_until));
            by.run("upstream", asked).await.unwrap_or(Err(AskError::TimedOut))
        }
        .boxed()
    }
}

impl Shared {
    async fn ask(&self, question: &UpstreamQuestion, read_until: Deadline) -> Result<Reply, AskError> {
        let (path, accepted) = path_of(question).ok_or(AskError::Unsupported)?;
        let request = Request::builder()
            .method(Method::GET)
            .uri(format!("{}{ROUTING}{path}", self.base))
            .header(HOST, &self.authority)
            .header(ACCEPT, accepted)
            // What is compressed has no size until it was read.
            .header(ACCEPT_ENCODING, "identity")
            .header(USER_AGENT, concat!("macronode/", env!("CARGO_PKG_VERSION")))
            .body(Full::default())
            .map_err(|_| AskError::Unsupported)?;
        let answer = StreamingAnswer::open(&self.endpoint, request).await.map_err(|error| {
            tracing::debug!(router = self.name, %error, "an upstream router cannot be asked");
            AskError::Unreachable
        })?;
        match answer.status() {
            StatusCode::OK => {}
            // Older routers say so of what they do not know.
            StatusCode::NOT_FOUND => return Ok(Reply::default()),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => return Err(AskError::Busy),
            StatusCode::NOT_IMPLEMENTED => return Err(AskError::Unsupported),
            _ => return Err(AskError::Refused),
        }
        answer::read(answer, question, &self.key, read_until).await
    }
}

/// The path of a question, and what its answer may be; none for questions that routers do not answer.
fn path_of(question: &UpstreamQuestion) -> Option<(String, &'static str)> {
    match question {
        UpstreamQuestion::Providers(content) => Some((format!("/providers/{}", content.cid_text()), ACCEPTED)),
        UpstreamQuestion::Ipns(name) => Some((format!("/ipns/{}", name.cid_text()), IPNS_RECORD)),
    }
}

/// Trust in the certificates of this machine, for all routers.
pub fn system_trust() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    // A machine's list has odd ones now and then; a router whose root is missing is not reached, which is seen.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests;
