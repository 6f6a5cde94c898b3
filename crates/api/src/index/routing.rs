//! Delegated Routing V1: providers of content and addresses of peers, for IPFS clients.

use std::collections::HashSet;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ron_store::{ContentId, Multiaddr, PeerId, Subject};
use ron_types::Kind;
use ron_types::limits::index::CANDIDATES_MAX;
use serde::{Deserialize, Serialize};
use svc_index::config::Access;
use svc_index::words::{Outcome, ResolveOptions, Source};
use utoipa::ToSchema;

use super::caching::CacheWorth;
use super::cross_origin::{PageMethods, READ_ERRORS};
use super::filters::Filters;
use super::lines::{self, LINES_BYTES_MAX, LineLimits};
use super::negotiation::{Form, JSON, NDJSON, Negotiated};
use super::providers::provider_items;
use super::{Admitted, App, Asker, READERS, Routes, caching, cross_origin};
use crate::extract::{Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Records of one document.
const JSON_RECORDS_MAX: usize = 100;
/// Records of one stream of lines.
const NDJSON_RECORDS_MAX: usize = 1000;

static PROVIDERS: Operation = Operation::get(
    "/routing/v1/providers/{cid}",
    "routing",
    "who has some content, as Delegated Routing V1 asks; nobody is 200 with nothing in it, an unreadable CID 422",
)
.needs(READERS)
.query::<FilterQuery>()
.speaks(&[], &[JSON, NDJSON])
.error_formats(&READ_ERRORS)
.errors(&[Kind::Integrity])
.open_to_pages();

static PEERS: Operation = Operation::get(
    "/routing/v1/peers/{peer_id}",
    "routing",
    "where a peer is reached, as Delegated Routing V1 asks; nowhere is 200 with nothing in it, an unreadable id 422",
)
.needs(READERS)
.query::<FilterQuery>()
.speaks(&[], &[JSON, NDJSON])
.error_formats(&READ_ERRORS)
.errors(&[Kind::Integrity])
.open_to_pages();

static PROVIDERS_OPTIONS: Operation =
    Operation::options("/routing/v1/providers/{cid}", "routing", "tells browsers that every page may ask")
        .error_formats(&READ_ERRORS)
        .open_to_pages();

static PEERS_OPTIONS: Operation =
    Operation::options("/routing/v1/peers/{peer_id}", "routing", "tells browsers that every page may ask")
        .error_formats(&READ_ERRORS)
        .open_to_pages();

static PUT_PROVIDERS: Operation = Operation::put(
    "/routing/v1/providers/",
    "routing",
    "not offered (501): clients of before the specification published so; use `POST /providers/{cid}`",
)
.error_formats(&READ_ERRORS)
.open_to_pages();

/// Filters (IPIP-484), with commas between their words.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "the description; what else a query has is not ours, and left alone")]
pub(super) struct FilterQuery {
    /// Protocols of addresses; `!` before one shows only addresses without it, `unknown` shows providers without any.
    #[serde(rename = "filter-addrs")]
    filter_addrs: Option<String>,
    /// Transfer protocols of providers; `unknown` shows those that name none.
    #[serde(rename = "filter-protocols")]
    filter_protocols: Option<String>,
}

/// One record of an answer, as the specification has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PeerWords {
    schema: &'static str,
    #[serde(rename = "ID")]
    id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addrs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    protocols: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) enum Envelope {
    Providers(Vec<PeerWords>),
    Peers(Vec<PeerWords>),
}

pub(super) const OPERATIONS: &[&Operation] = &[&PROVIDERS, &PROVIDERS_OPTIONS, &PUT_PROVIDERS, &PEERS, &PEERS_OPTIONS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add_open(&PROVIDERS, with!(app, providers(asker, headers, cid, query)))
        .add(&PROVIDERS_OPTIONS, async || cross_origin::preflight(PageMethods::Read))
        .add(&PUT_PROVIDERS, async || not_offered())
        .add_open(&PEERS, with!(app, peers(asker, headers, peer_id, query)))
        .add(&PEERS_OPTIONS, async || cross_origin::preflight(PageMethods::Read))
}

async fn providers(
    app: Arc<App>,
    asker: Asker,
    headers: HeaderMap,
    cid: Path<String>,
    query: Query<Vec<(String, String)>>,
) -> HandlerResult {
    let content: ContentId = cid.0.parse().map_err(|error| unreadable("cid", &error))?;
    let filters = Filters::read(&query.0)?;
    let negotiated = Negotiated::of(&headers)?;
    let admitted = app.admit(&asker, &content)?;
    match negotiated.form {
        Form::Json => {
            let subject = Subject::Content(content);
            let resolution = app.index.resolve(&admitted.tenant, subject, options(&asker)).await?;
            let mut seen = HashSet::new();
            let shown = resolution.providers.iter().filter_map(|provider| {
                let record = &provider.record;
                let words = words(&filters, &record.peer, record.addrs.clone(), record.protocols.clone())?;
                seen.insert(record.peer).then_some(words)
            });
            let shown = Envelope::Providers(shown.take(JSON_RECORDS_MAX).collect());
            // Strangers' records out of the store, while others are still being asked.
            let is_partial = resolution.source == Source::Store && resolution.fresh_for.is_zero();
            let outcome = if is_partial { Outcome::Unknown } else { resolution.providers_outcome };
            Ok(document(shown, outcome, &admitted, negotiated))
        }
        Form::Ndjson => {
            let found = app.index.providers_stream(&admitted.tenant, content, options(&asker)).await?;
            let mut seen = HashSet::new();
            let (providers, end) = provider_items(found).await?;
            let shown = providers.filter_map(move |provider| {
                let record = provider.record;
                let words = words(&filters, &record.peer, record.addrs, record.protocols);
                // Whoever is vouched for and speaks for itself as well is one provider.
                std::future::ready(words.filter(|_| seen.insert(record.peer)))
            });
            Ok(streamed(Box::pin(shown), || end.outcome(), admitted, negotiated).await)
        }
    }
}

async fn peers(
    app: Arc<App>,
    asker: Asker,
    headers: HeaderMap,
    peer_id: Path<String>,
    query: Query<Vec<(String, String)>>,
) -> HandlerResult {
    let peer: PeerId = peer_id.0.parse().map_err(|error| unreadable("peer_id", &error))?;
    let filters = Filters::read(&query.0)?;
    let negotiated = Negotiated::of(&headers)?;
    let admitted = app.admit(&asker, &peer)?;
    let found = app.index.peer(&admitted.tenant, peer, options(&asker)).await?;
    let outcome = found.outcome;
    let shown = found.record.and_then(|record| words(&filters, &record.peer, record.addrs, Vec::new()));
    match negotiated.form {
        Form::Json => Ok(document(Envelope::Peers(shown.into_iter().collect()), outcome, &admitted, negotiated)),
        Form::Ndjson => Ok(streamed(stream::iter(shown), || outcome, admitted, negotiated).await),
    }
}

/// All that is known is asked for: an answer ends at its bound after it was filtered, not before.
fn options(asker: &Asker) -> ResolveOptions {
    ResolveOptions { max: CANDIDATES_MAX, from: Some(asker.address), ..ResolveOptions::default() }
}

/// A record as the caller wants to see it; none if it does not.
pub(super) fn words(
    filters: &Filters,
    peer: &PeerId,
    addrs: Vec<Multiaddr>,
    protocols: Vec<String>,
) -> Option<PeerWords> {
    let addrs = filters.apply(addrs, &protocols)?;
    let addrs = addrs.iter().map(ToString::to_string).collect();
    // In base58: clients drop records whose id is written as a CID.
    Some(PeerWords { schema: "peer", id: peer.to_string(), addrs, protocols })
}

pub(super) fn document(envelope: Envelope, outcome: Outcome, admitted: &Admitted, negotiated: Negotiated) -> Response {
    let (Envelope::Providers(records) | Envelope::Peers(records)) = &envelope;
    let worth = CacheWorth::of(!records.is_empty(), outcome);
    let text = serde_json::to_vec(&envelope).expect("strings can be written");
    let mut response = Response::default();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(Form::Json.media_type()));
    let body = lines::whole(headers, text, negotiated.is_gzip);
    add_headers(headers, admitted.access, worth);
    *response.body_mut() = Body::from(body);
    response
}

/// Lines as they become known. The first is waited for, because the headers say whether there is any, and where there
/// is none what that is worth: `outcome` is asked once the lines have ended.
pub(super) async fn streamed<S>(
    shown: S,
    outcome: impl FnOnce() -> Outcome,
    admitted: Admitted,
    negotiated: Negotiated,
) -> Response
where
    S: Stream<Item = PeerWords> + Send + Unpin + 'static,
{
    // Asked again after its end where there is no first.
    let mut shown = shown.fuse();
    let first = shown.next().await;
    let worth = first.as_ref().map_or_else(|| CacheWorth::of(false, outcome()), |_| CacheWorth::Records);
    let access = admitted.access;
    let all = stream::iter(first).chain(shown).map(move |words| {
        // The address of the caller has a question less until the last line is sent.
        let _held = &admitted;
        words
    });
    let limits = LineLimits { lines_max: NDJSON_RECORDS_MAX, bytes_max: LINES_BYTES_MAX };
    let mut response = lines::response(Box::pin(all), limits, negotiated.is_gzip);
    add_headers(response.headers_mut(), access, worth);
    response
}

fn add_headers(headers: &mut HeaderMap, access: Access, worth: CacheWorth) {
    caching::add_records(headers, access, worth);
    cross_origin::add(headers, PageMethods::Read);
}

pub(super) fn unreadable(field: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::schema(StatusCode::UNPROCESSABLE_ENTITY, format!("{field}: {error}"))
}

fn not_offered() -> Problem {
    let detail = "providers are published with POST /providers/{cid}, by a token or a signed record";
    Problem::schema(StatusCode::NOT_IMPLEMENTED, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

    fn shown(addrs: &[&str], protocols: &[&str]) -> PeerWords {
        let addrs = addrs.iter().map(|addr| addr.parse().expect("a multiaddr")).collect();
        let protocols = protocols.iter().map(|name| (*name).to_owned()).collect();
        words(&Filters::default(), &PEER.parse().expect("a peer id"), addrs, protocols).expect("no filter")
    }

    #[test]
    fn records_are_written_as_the_specification_has_them() {
        let text = |words: PeerWords| serde_json::to_string(&words).expect("JSON");
        let expected = format!(
            r#"{{"Schema":"peer","ID":"{PEER}","Addrs":["/ip4/127.0.0.1/tcp/4001"],"Protocols":["transport-bitswap"]}}"#
        );
        assert_eq!(text(shown(&["/ip4/127.0.0.1/tcp/4001"], &["transport-bitswap"])), expected);
        // What is not known is left out.
        assert_eq!(text(shown(&[], &[])), format!(r#"{{"Schema":"peer","ID":"{PEER}"}}"#));
        let empty = |envelope: Envelope| serde_json::to_string(&envelope).expect("JSON");
        assert_eq!(empty(Envelope::Providers(Vec::new())), r#"{"Providers":[]}"#);
        assert_eq!(empty(Envelope::Peers(Vec::new())), r#"{"Peers":[]}"#);
    }

    #[tokio::test]
    async fn headers_tell_whether_there_is_anything_and_whether_anybody_could_say() {
        let negotiated = Negotiated { form: Form::Ndjson, is_gzip: false };
        let admitted = || Admitted { tenant: "x".into(), access: Access::Public, _slot: None };
        for (records, outcome, life) in [
            (vec![shown(&[], &[])], Outcome::Found, "max-age=300"),
            (Vec::new(), Outcome::Absent, "max-age=15"),
            (Vec::new(), Outcome::Unknown, "no-store"),
            (Vec::new(), Outcome::Degraded, "no-store"),
        ] {
            let count = records.len();
            // As searches are: it must not be asked again after its end.
            let records = stream::unfold(records, |mut left| async move { left.pop().map(|next| (next, left)) });
            let response = streamed(Box::pin(records), || outcome, admitted(), negotiated).await;
            let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
            assert!(header("cache-control").contains(life));
            assert_eq!((header("access-control-allow-origin"), header("content-type")), ("*".into(), NDJSON.into()));
            assert!(header("vary").starts_with("Accept"));
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("a body");
            assert_eq!(body.iter().filter(|byte| **byte == b'\n').count(), count);
        }
    }
}
