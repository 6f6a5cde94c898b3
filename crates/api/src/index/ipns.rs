//! Delegated Routing V1: IPNS records, read and published.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ron_kernel::clock;
use ron_store::{IpnsRecord, PeerId};
use ron_types::limits::records::IPNS_BYTES_MAX;
use ron_types::{Error, Kind};
use svc_index::words::{Outcome, ResolveOptions};

use super::caching::CacheWorth;
use super::cross_origin::{PUT_ERRORS, PageMethods};
use super::routing::unreadable;
use super::{Admitted, App, Asker, READERS, Routes, caching, cross_origin, negotiation};
use crate::body;
use crate::call::Call;
use crate::extract::Path;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Media type of an IPNS record.
const IPNS_RECORD: &str = "application/vnd.ipfs.ipns-record";

static GET_IPNS: Operation = Operation::get(
    "/routing/v1/ipns/{name}",
    "routing",
    "the signed record of an IPNS name, as Delegated Routing V1 asks; none is 200 with text, an unreadable name 422",
)
.needs(READERS)
.speaks(&[], &[IPNS_RECORD])
.error_formats(&PUT_ERRORS)
.errors(&[Kind::Integrity])
.open_to_pages();

static PUT_IPNS: Operation = Operation::put(
    "/routing/v1/ipns/{name}",
    "routing",
    "publishes the record of an IPNS name: verified against the name, kept if it is newer than what is known",
)
.speaks(&[IPNS_RECORD], &[])
.error_formats(&PUT_ERRORS)
.errors(&[Kind::FrameTooLarge, Kind::Integrity])
.takes_stream()
.open_to_pages();

static IPNS_OPTIONS: Operation =
    Operation::options("/routing/v1/ipns/{name}", "routing", "tells browsers that every page may ask and publish")
        .error_formats(&PUT_ERRORS)
        .open_to_pages();

pub(super) const OPERATIONS: &[&Operation] = &[&GET_IPNS, &PUT_IPNS, &IPNS_OPTIONS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add_open(&GET_IPNS, with!(app, get(asker, headers, name)))
        .add_open(&PUT_IPNS, with!(app, put(call, asker, name, request)))
        .add(&IPNS_OPTIONS, async || cross_origin::preflight(PageMethods::ReadAndPut))
}

async fn get(app: Arc<App>, asker: Asker, headers: HeaderMap, name: Path<String>) -> HandlerResult {
    let name = name_of(&name.0)?;
    if !negotiation::accepts(&headers, IPNS_RECORD) {
        return Err(Problem::schema(StatusCode::NOT_ACCEPTABLE, format!("Accept must have {IPNS_RECORD}")));
    }
    let admitted = app.admit(&asker, &name)?;
    let options = ResolveOptions { from: Some(asker.address), ..ResolveOptions::default() };
    let found = app.index.ipns_get(&admitted.tenant, name, options).await?;
    Ok(match &found.record {
        Some(record) => answer(&headers, &admitted, record, clock::unix_millis()),
        None => nothing(&admitted, found.outcome),
    })
}

fn answer(asked: &HeaderMap, admitted: &Admitted, record: &IpnsRecord, now_ms: u64) -> Response {
    let bytes = record.bytes().clone();
    let etag = format!("\"{}\"", &blake3::hash(&bytes).to_hex()[..32]);
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(IPNS_RECORD));
    let ttl = record.ttl_ns().map(Duration::from_nanos);
    caching::add_ipns(headers, admitted.access, ttl, record.validity_ms(), now_ms);
    caching::add_etag(headers, &etag);
    cross_origin::add(headers, PageMethods::ReadAndPut);
    if caching::is_known(asked, &etag) { caching::not_modified(response) } else { response }
}

/// Clients take an answer of another type for a miss.
fn nothing(admitted: &Admitted, outcome: Outcome) -> Response {
    let mut response = Response::new(Body::from("no record of this name is known\n"));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    caching::add_records(headers, admitted.access, CacheWorth::of(false, outcome));
    cross_origin::add(headers, PageMethods::ReadAndPut);
    response
}

async fn put(app: Arc<App>, call: Call, asker: Asker, name: Path<String>, request: Request) -> HandlerResult {
    let name = name_of(&name.0)?;
    if !is_ipns_record(request.headers()) {
        return Err(Problem::schema(StatusCode::NOT_ACCEPTABLE, format!("Content-Type must be {IPNS_RECORD}")));
    }
    let admitted = app.publisher(&asker)?;
    let bytes = body::begin(request, &call)?.1.up_to(IPNS_BYTES_MAX)?.whole().await?;
    app.index.ipns_put(&admitted.tenant, name, &bytes).await.map_err(refused)?;
    let mut response = Response::default();
    cross_origin::add(response.headers_mut(), PageMethods::ReadAndPut);
    Ok(response)
}

/// The specification has one status for every record that does not hold.
fn refused(error: Error) -> Problem {
    let is_record_wrong = error.kind == Kind::Integrity;
    let problem = Problem::from(error);
    if is_record_wrong { Problem { status: StatusCode::BAD_REQUEST, ..problem } } else { problem }
}

fn is_ipns_record(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(IPNS_RECORD)
}

fn name_of(text: &str) -> Result<PeerId, Problem> {
    text.parse().map_err(|error| unreadable("name", &error))
}
