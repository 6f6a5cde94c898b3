//! Who has some content: asked for, and published.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ron_store::{ContentId, Multiaddr, PeerId, ProviderRecord, Record, Subject};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_index::ProviderStream;
use svc_index::capabilities::PUBLISH;
use svc_index::words::{Outcome, ProviderOffer, PublishOutcome, RankedProvider};
use utoipa::ToSchema;

use super::encoding::bytes_of;
use super::lines::{self, LINES_BYTES_MAX, LineLimits};
use super::negotiation::{Form, Negotiated};
use super::resolve::ResolveQuery;
use super::words::{AskWords, ContentWords, ProviderWords, milliseconds};
use super::{App, Asker, READERS, Routes, content_of};
use crate::extract::{Json, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Bytes of an encoded record; none of any kind is longer.
pub(super) const RECORD_BYTES_MAX: usize = 16 * 1024;

static PROVIDERS: Operation = Operation::get(
    "/providers/{cid}",
    "lookups",
    "who has some content, best first: as one document, or with `Accept: application/x-ndjson` a line for each as soon \
     as it is known",
)
.needs(READERS)
.query::<ResolveQuery>()
.answers::<ProvidersAnswer>();

static PUBLISH_PROVIDER: Operation = Operation::post(
    "/providers/{cid}",
    "lookups",
    "publishes who has some content: in the node's name, which vouches for it, or with a record that the provider \
     signed",
)
.needs("`index:publish`; nothing for a signed record")
.body::<ProviderRequest>(
    r#"{"peer_id":"12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN","addrs":["/ip4/203.0.113.7/tcp/4001"],"protocols":["transport-bitswap"],"ttl_s":86400}"#,
)
.answers::<ProviderAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::Integrity]);

static WITHDRAW_PROVIDER: Operation = Operation::delete(
    "/providers/{cid}",
    "lookups",
    "takes back what this node said of a provider, and renews it no more; other nodes are told",
)
.needs("`index:publish`")
.query::<WithdrawQuery>()
.answers::<ProviderAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::Conflict]);

/// Of whom the word is taken back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WithdrawQuery {
    /// Peer id of the provider; this node if not given.
    peer_id: Option<String>,
}

/// Who has the content, and how the node knows.
#[derive(Serialize, ToSchema)]
pub(super) struct ProvidersAnswer {
    /// The content.
    content: ContentWords,
    /// `found`, `absent`, `unknown` or `degraded`, as in answers of `/resolve`.
    outcome: &'static str,
    /// Where it was found: `cache`, `store` or `dht`.
    source: &'static str,
    /// Milliseconds since it was found out.
    age_ms: u64,
    /// Milliseconds that the answer took.
    took_ms: f64,
    /// Targets that were not asked because they keep failing.
    open_targets: usize,
    /// Those who have it, best first.
    providers: Vec<ProviderWords>,
    /// Everybody who was asked, in order, and how that ended; empty if nobody was.
    course: Vec<AskWords>,
}

/// Who has the content: fields that the node signs, or `record_b64` alone.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProviderRequest {
    /// Peer id of the provider; this node if not given.
    peer_id: Option<String>,
    /// Multiaddresses at which it is reached; those of this node if the provider is this node.
    #[schema(max_items = 8)]
    addrs: Vec<String>,
    /// Protocols by which it can be fetched.
    #[schema(max_items = 8)]
    protocols: Vec<String>,
    /// Seconds until the record ends, at most two days. Not given: this node's own record is renewed until it is
    /// withdrawn, one about another peer ends after a day.
    #[schema(minimum = 1, maximum = 172_800)]
    ttl_s: Option<u64>,
    /// A record that the provider has signed, in base64.
    record_b64: Option<String>,
}

/// What became of the record.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProviderAnswer {
    /// The content.
    content: ContentWords,
    /// `stored`; `same`: it was known; `older`: a newer one is known and stays.
    status: &'static str,
    /// Whether the node signs it anew before it ends, until it is withdrawn.
    #[serde(rename = "renewed")]
    is_renewed: bool,
    /// The record as it stands.
    provider: ProviderWords,
}

pub(super) const OPERATIONS: &[&Operation] = &[&PROVIDERS, &PUBLISH_PROVIDER, &WITHDRAW_PROVIDER];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add_open(&PROVIDERS, with!(app, providers(asker, headers, cid, query)))
        .add_open(&PUBLISH_PROVIDER, with!(app, publish(asker, cid, request)))
        .add_open(&WITHDRAW_PROVIDER, with!(app, withdraw(asker, cid, query)))
}

async fn providers(
    app: Arc<App>,
    asker: Asker,
    headers: HeaderMap,
    cid: Path<String>,
    query: Query<ResolveQuery>,
) -> HandlerResult {
    let content = content_of("cid", &cid.0)?;
    let options = query.0.options(asker.address)?;
    let negotiated = Negotiated::of(&headers)?;
    let admitted = app.admit(&asker, &content)?;
    let mut response = match negotiated.form {
        Form::Ndjson => {
            let found = app.index.providers_stream(&admitted.tenant, content, options).await?;
            let limits = LineLimits { lines_max: options.max, bytes_max: LINES_BYTES_MAX };
            let (providers, _end) = provider_items(found).await?;
            let words = providers.map(move |provider| {
                // Held until the last line is sent.
                let _held = &admitted;
                ProviderWords::ranked(&provider)
            });
            lines::response(Box::pin(words), limits, negotiated.is_gzip)
        }
        Form::Json => {
            let resolution = app.index.resolve(&admitted.tenant, Subject::Content(content), options).await?;
            Json(ProvidersAnswer {
                content: ContentWords::of(&content),
                outcome: resolution.providers_outcome.as_str(),
                source: resolution.source.as_str(),
                age_ms: resolution.age.as_millis() as u64,
                took_ms: milliseconds(resolution.took),
                open_targets: resolution.open_targets,
                course: resolution.course.iter().map(AskWords::of).collect(),
                providers: resolution.providers.iter().take(options.max).map(ProviderWords::ranked).collect(),
            })
            .into_response()
        }
    };
    let answer = response.headers_mut();
    answer.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The providers of a search as they become known. The first is waited for: until then a refusal can be told.
pub(super) async fn provider_items(
    mut found: ProviderStream,
) -> Result<(impl Stream<Item = RankedProvider> + Send, SearchEnd), Error> {
    let first = found.next().await?;
    let end = SearchEnd::default();
    let rest = stream::unfold((found, end.clone()), |(mut found, end)| async {
        // Whatever breaks it off later, the lines that were sent stay true.
        match found.next().await {
            Ok(Some(next)) => Some((next, (found, end))),
            _ => {
                let _ = end.0.set(found.outcome().unwrap_or(Outcome::Unknown));
                None
            }
        }
    });
    Ok((stream::iter(first).chain(rest), end))
}

/// How a search ended, for whoever has read its stream to the end.
#[derive(Clone, Default)]
pub(super) struct SearchEnd(Arc<OnceLock<Outcome>>);

impl SearchEnd {
    /// Nobody can say before the end of the stream.
    pub(super) fn outcome(&self) -> Outcome {
        self.0.get().copied().unwrap_or(Outcome::Unknown)
    }
}

async fn publish(app: Arc<App>, asker: Asker, cid: Path<String>, request: Request) -> HandlerResult {
    let content = content_of("cid", &cid.0)?;
    let body = app.read(&asker.call, request).await?;
    let request: ProviderRequest = body.parse()?;
    match request.record_b64.as_deref() {
        Some(text) => {
            request.has_only_record()?;
            publish_signed(&app, &asker, &content, text).await
        }
        None => {
            // Asked before anything of the body is looked at closely.
            let admitted = app.allow(&asker, PUBLISH, &content.to_string())?;
            let offer = request.offer()?;
            let is_renewed = offer.ttl.is_none() && offer.peer.is_none_or(|peer| peer == app.index.node_peer());
            let record = app.index.publish_provider(&admitted.tenant, &content, offer).await?;
            Ok(answer(&content, PublishOutcome::Stored, &record, is_renewed))
        }
    }
}

async fn publish_signed(app: &App, asker: &Asker, content: &ContentId, text: &str) -> HandlerResult {
    let admitted = app.publisher(asker)?;
    let record = ProviderRecord::decode(&bytes_of("record_b64", text, RECORD_BYTES_MAX)?)
        .map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("record_b64: {error}")))?;
    if record.key != content.key() {
        return Err(Problem::schema(StatusCode::BAD_REQUEST, "record_b64: the record is about other content"));
    }
    // A record that somebody else signed is somebody's word for a provider, for which a right is needed.
    if !record.is_self_signed() {
        app.allow(asker, PUBLISH, &content.to_string())?;
    }
    let published = app.index.publish_record(&admitted.tenant, Record::Provider(record.clone())).await?;
    Ok(answer(content, published, &record, false))
}

fn answer(content: &ContentId, published: PublishOutcome, record: &ProviderRecord, is_renewed: bool) -> Response {
    let (content, provider) = (ContentWords::of(content), ProviderWords::of(record));
    Json(ProviderAnswer { content, status: status(published), is_renewed, provider }).into_response()
}

async fn withdraw(app: Arc<App>, asker: Asker, cid: Path<String>, query: Query<WithdrawQuery>) -> HandlerResult {
    let content = content_of("cid", &cid.0)?;
    let admitted = app.allow(&asker, PUBLISH, &content.to_string())?;
    let peer = query.0.peer_id.as_deref().map(str::parse::<PeerId>).transpose();
    let peer = peer.map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("peer_id: {error}")))?;
    let record = app.index.withdraw_provider(&admitted.tenant, &content, peer).await?;
    Ok(answer(&content, PublishOutcome::Stored, &record, false))
}

pub(super) const fn status(published: PublishOutcome) -> &'static str {
    match published {
        PublishOutcome::Stored => "stored",
        PublishOutcome::Same => "same",
        PublishOutcome::Older => "older",
    }
}

/// A body as the route reads it, up to the record that the node would sign.
pub(super) fn read_any(bytes: &[u8]) -> bool {
    let request = serde_json::from_slice::<ProviderRequest>(bytes);
    request.is_ok_and(|request| {
        let is_record_alone = request.has_only_record().is_ok();
        request.offer().is_ok() || is_record_alone
    })
}

impl ProviderRequest {
    fn has_only_record(&self) -> Result<(), Error> {
        let is_alone = self.peer_id.is_none() && self.addrs.is_empty() && self.protocols.is_empty();
        match is_alone && self.ttl_s.is_none() {
            true => Ok(()),
            false => Err(Error::schema("record_b64: a signed record says everything itself, so it stands alone")),
        }
    }

    fn offer(self) -> Result<ProviderOffer, Problem> {
        let wrong = |detail: String| Problem::schema(StatusCode::BAD_REQUEST, detail);
        let peer = self.peer_id.as_deref().map(str::parse::<PeerId>).transpose();
        let peer = peer.map_err(|error| wrong(format!("peer_id: {error}")))?;
        let read = |(number, addr): (usize, &String)| {
            addr.parse::<Multiaddr>().map_err(|error| wrong(format!("addrs[{number}]: {error}")))
        };
        let addrs = self.addrs.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        let ttl = self.ttl_s.map(Duration::from_secs);
        Ok(ProviderOffer { peer, addrs, protocols: self.protocols, ttl })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::JsonText;

    #[test]
    fn a_body_is_read_strictly() {
        let read = |text: &str| JsonText::of(text).parse::<ProviderRequest>();
        assert!(read(r#"{"addrs":["/ip4/1.2.3.4/tcp/1"],"ttl_s":5}"#).is_ok());
        assert!(read("{}").is_ok_and(|request| request.offer().is_ok_and(|offer| offer.ttl.is_none())));
        for wrong in [r#"{"adrs":[]}"#, r#"{"ttl_s":-1}"#, r#"{"addrs":"x"}"#, r#"{"ttl_s":1.5}"#] {
            assert_eq!(read(wrong).map_err(|problem| problem.status.as_u16()).err(), Some(400), "{wrong}");
        }
        let peer = read(r#"{"peer_id":"nobody"}"#).expect("a body").offer();
        assert!(peer.is_err_and(|problem| problem.detail.starts_with("peer_id: ")));
        let both = read(r#"{"record_b64":"AA==","ttl_s":1}"#).expect("a body");
        assert!(both.has_only_record().is_err());
        assert!(read(r#"{"record_b64":"AA=="}"#).expect("a body").has_only_record().is_ok());
    }
}
