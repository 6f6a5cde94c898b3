//! Names: what one stands for, and letting it stand for something else.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};
use ron_store::{Name, NameRecord, Record, Subject};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_index::capabilities::NAME;
use svc_index::words::{NameAnswer, Outcome, PublishOutcome};
use utoipa::ToSchema;

use super::encoding::bytes_of;
use super::providers::{RECORD_BYTES_MAX, status};
use super::resolve::ResolveQuery;
use super::words::{AskWords, ChangeWords, NameWords};
use super::{App, Asker, READERS, Routes, caching, content_of, watch};
use crate::extract::{Json, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

static GET_NAME: Operation =
    Operation::get("/names/{name}", "names", "what a name stands for, with the signed record that says so")
        .needs(READERS)
        .query::<ResolveQuery>()
        .answers::<GetNameAnswer>()
        .errors(&[Kind::NotFound]);

static PUT_NAME: Operation = Operation::put(
    "/names/{name}",
    "names",
    "lets a name stand for some content: a name of this node in its name, or any name with a record that its owner \
     signed",
)
.needs("`index:name`; nothing for a signed record")
.body::<NameRequest>(r#"{"value":"b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85","ttl_s":86400}"#)
.answers::<PutNameAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::Integrity]);

static DELETE_NAME: Operation = Operation::delete(
    "/names/{name}",
    "names",
    "lets a name of this node stand for nothing, and renews it no more; other nodes are told",
)
.needs("`index:name`")
.answers::<PutNameAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::Conflict]);

static WATCH_NAME: Operation = Operation::get(
    "/names/{name}/watch",
    "names",
    "what changes about a name from now on, as server-sent events: the same as `/watch/{id}`",
)
.needs(READERS)
.event_stream::<ChangeWords>();

/// A name as it stands.
#[derive(Serialize, ToSchema)]
pub(super) struct GetNameAnswer {
    #[serde(flatten)]
    name: NameWords,
    /// Where it was found: `cache`, `store` or `dht`.
    source: &'static str,
    /// Milliseconds since it was found out.
    age_ms: u64,
    /// Targets that were not asked because they keep failing.
    open_targets: usize,
    /// Everybody who was asked, in order, and how that ended; empty if nobody was.
    course: Vec<AskWords>,
}

/// What the name is to stand for: fields that the node signs, or `record_b64` alone.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NameRequest {
    /// The content: `b3:…` or a CID.
    value: Option<String>,
    /// Seconds until the name stands for nothing, at most two days. Not given: it is renewed until it is removed.
    #[schema(minimum = 1, maximum = 172_800)]
    ttl_s: Option<u64>,
    /// A record that the owner of the name has signed, in base64.
    record_b64: Option<String>,
}

/// What became of the record.
#[derive(Serialize, ToSchema)]
pub(super) struct PutNameAnswer {
    #[serde(flatten)]
    name: NameWords,
    /// `stored`; `same`: it was known; `older`: a newer one is known and stays.
    status: &'static str,
    /// Whether the node signs it anew before it ends, until it is removed.
    #[serde(rename = "renewed")]
    is_renewed: bool,
}

pub(super) const OPERATIONS: &[&Operation] = &[&GET_NAME, &PUT_NAME, &DELETE_NAME, &WATCH_NAME];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add_open(&GET_NAME, with!(app, get(asker, headers, name, query)))
        .add_open(&PUT_NAME, with!(app, put(asker, name, request)))
        .add_open(&DELETE_NAME, with!(app, remove(asker, name)))
        .add_open(&WATCH_NAME, with!(app, watch_name(asker, name)))
}

/// The name that a path names, with or without the word before it.
fn name_of(text: &str) -> Result<Name, Problem> {
    let bare = text.strip_prefix("name:").unwrap_or(text);
    let name = format!("name:{bare}").parse();
    name.map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("name: {error}")))
}

async fn get(
    app: Arc<App>,
    asker: Asker,
    headers: HeaderMap,
    name: Path<String>,
    query: Query<ResolveQuery>,
) -> HandlerResult {
    let name = name_of(&name.0)?;
    let options = query.0.options(asker.address)?;
    let admitted = app.admit(&asker, &name)?;
    let found = app.index.name_get(&admitted.tenant, name, options).await?;
    let Some(record) = &found.record else { return Err(missing(&found).into()) };
    let etag = format!("\"{}\"", &blake3::hash(&record.encode()).to_hex()[..32]);
    let answer = GetNameAnswer {
        name: NameWords::of(record),
        source: found.source.as_str(),
        age_ms: age_ms(found.age),
        open_targets: found.open_targets,
        course: found.course.iter().map(AskWords::of).collect(),
    };
    let mut response = Json(answer).into_response();
    let life = caching::life(admitted.access, format_args!("max-age={}", found.fresh_for.as_secs()));
    response.headers_mut().insert(header::CACHE_CONTROL, life);
    caching::add_etag(response.headers_mut(), &etag);
    Ok(if caching::is_known(&headers, &etag) { caching::not_modified(response) } else { response })
}

fn age_ms(age: Duration) -> u64 {
    age.as_millis() as u64
}

/// The refusal where no record is known: only that of those who looked everywhere is a No.
fn missing(found: &NameAnswer) -> Error {
    match found.outcome {
        Outcome::Absent | Outcome::Found => Error::new(Kind::NotFound, "the name stands for nothing"),
        other => {
            let detail = format!("nobody could say what the name stands for: {}", other.as_str());
            Error::new(Kind::Timeout, detail)
        }
    }
}

async fn put(app: Arc<App>, asker: Asker, name: Path<String>, request: Request) -> HandlerResult {
    let name = name_of(&name.0)?;
    let body = app.read(&asker.call, request).await?;
    let NameRequest { value, ttl_s, record_b64 } = body.parse()?;
    match (value, record_b64) {
        (Some(value), None) => {
            let admitted = app.allow(&asker, NAME, &name.to_string())?;
            is_own(&app, &name)?;
            let value = content_of("value", &value)?;
            let ttl = ttl_s.map(Duration::from_secs);
            let record = app.index.name_set(&admitted.tenant, name.label(), value, ttl).await?;
            Ok(answer(&record, PublishOutcome::Stored, ttl.is_none()))
        }
        (None, Some(text)) if ttl_s.is_none() => put_signed(&app, &asker, &name, &text).await,
        _ => Err(Error::schema("either `value`, perhaps with `ttl_s`, or `record_b64` alone is asked for").into()),
    }
}

async fn put_signed(app: &App, asker: &Asker, name: &Name, text: &str) -> HandlerResult {
    let admitted = app.publisher(asker)?;
    let record = NameRecord::decode(&bytes_of("record_b64", text, RECORD_BYTES_MAX)?)
        .map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("record_b64: {error}")))?;
    let is_owner = name.owner().unwrap_or_else(|| app.index.node_key()) == record.owner;
    if !is_owner || record.label != name.label() {
        return Err(Problem::schema(StatusCode::BAD_REQUEST, "record_b64: the record is about another name"));
    }
    let published = app.index.publish_record(&admitted.tenant, Record::Name(record.clone())).await?;
    Ok(answer(&record, published, false))
}

async fn remove(app: Arc<App>, asker: Asker, name: Path<String>) -> HandlerResult {
    let name = name_of(&name.0)?;
    let admitted = app.allow(&asker, NAME, &name.to_string())?;
    is_own(&app, &name)?;
    let record = app.index.name_remove(&admitted.tenant, name.label()).await?;
    Ok(answer(&record, PublishOutcome::Stored, false))
}

/// The node signs for names of its own namespace alone.
fn is_own(app: &App, name: &Name) -> Result<(), Error> {
    match name.owner().is_none_or(|owner| owner == app.index.node_key()) {
        true => Ok(()),
        false => Err(Error::new(Kind::Forbidden, "the name belongs to another key; its owner must sign a record")),
    }
}

fn answer(record: &NameRecord, published: PublishOutcome, is_renewed: bool) -> Response {
    Json(PutNameAnswer { name: NameWords::of(record), status: status(published), is_renewed }).into_response()
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn watch_name(app: Arc<App>, asker: Asker, name: Path<String>) -> HandlerResult {
    let name = name_of(&name.0)?;
    Ok(watch::open(app, asker, Subject::Name(name))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::JsonText;

    #[test]
    fn a_name_is_written_with_or_without_its_word() {
        let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        for (text, label) in
            [("site", "site"), ("name:site", "site"), ("a/b.c", "a/b.c"), (&format!("name:x@{key}"), "x")]
        {
            assert_eq!(name_of(text).expect("a name").label(), label, "{text}");
        }
        for wrong in ["", "name:", "Site", "a b", "x@", "x@abc", "name:name:x"] {
            assert_eq!(name_of(wrong).map_err(|problem| problem.status.as_u16()).err(), Some(400), "{wrong}");
        }
    }

    #[test]
    fn a_body_is_read_strictly() {
        let read = |text: &str| JsonText::of(text).parse::<NameRequest>().is_ok();
        assert!(read(r#"{"value":"b3:00"}"#) && read(r#"{"record_b64":"AA=="}"#));
        assert!(!read(r#"{"value":1}"#) && !read(r#"{"values":"x"}"#) && !read(r#"{"value":"x","ttl_s":"1"}"#));
    }
}
