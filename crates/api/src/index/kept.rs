//! What the node keeps until it is told otherwise: pins, what it says that it has, and its own names.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use ron_store::{ContentId, Multiaddr, Provided, Subject};
use ron_types::Error;
use serde::{Deserialize, Serialize};
use svc_index::capabilities::ADMIN;
use utoipa::ToSchema;

use super::{App, Routes, WHOLE_NODE, content_of, subject_of};
use crate::auth::Bearer;
use crate::extract::{Json, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

static PINS: Operation = Operation::get("/index/pins", "upkeep", "what is pinned, in order, and since when")
    .allows(ADMIN)
    .query::<KeptQuery>()
    .answers::<KeptAnswer>();

static PROVIDED: Operation = Operation::get(
    "/index/provided",
    "upkeep",
    "content that the node says it has until it is withdrawn, in the order of its keys",
)
.allows(ADMIN)
.query::<KeptQuery>()
.answers::<KeptAnswer>();

static NAMES: Operation = Operation::get(
    "/index/names",
    "upkeep",
    "names of its own that the node renews until they are removed, in order, and what they stand for",
)
.allows(ADMIN)
.query::<KeptQuery>()
.answers::<KeptAnswer>();

/// Which part of a list.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeptQuery {
    /// The item after which to go on: `next` of the page before.
    after: Option<String>,
    /// Maximum items in the answer; 100 if not given.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeptAnswer {
    /// The items.
    items: Vec<KeptWords>,
    /// `after` of the next page; none at the end.
    next: Option<String>,
}

/// Something that the node keeps.
#[derive(Debug, Default, Serialize, ToSchema)]
struct KeptWords {
    /// What it is, or what the name stands for: `b3:…`, a CID, or `name:…`.
    id: String,
    /// The name, of a list of names.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// When it was pinned, in milliseconds since 1970, of a list of pins.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    /// Where it can be had, of a list of what is provided; none where the node itself is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    addrs: Option<Vec<String>>,
    /// How it can be fetched, of a list of what is provided.
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<Vec<String>>,
}

pub(super) const OPERATIONS: &[&Operation] = &[&PINS, &PROVIDED, &NAMES];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&PINS, with!(app, pins(bearer, query)))
        .add(&PROVIDED, with!(app, provided(bearer, query)))
        .add(&NAMES, with!(app, names(bearer, query)))
}

async fn pins(app: Arc<App>, bearer: Bearer, query: Query<KeptQuery>) -> HandlerResult {
    app.allow_admin(&bearer, WHOLE_NODE)?;
    let limit = query.0.limit()?;
    let after = query.0.after.as_deref().map(subject_of).transpose()?;
    let pins = app.index.pins(after, limit).await?;
    let item = |(subject, since_ms): (Subject, u64)| KeptWords {
        id: subject.to_string(),
        since_ms: Some(since_ms),
        ..KeptWords::default()
    };
    Ok(page(pins.into_iter().map(item).collect(), limit, |last| last.id.clone()))
}

async fn provided(app: Arc<App>, bearer: Bearer, query: Query<KeptQuery>) -> HandlerResult {
    app.allow_admin(&bearer, WHOLE_NODE)?;
    let limit = query.0.limit()?;
    let after = query.0.after.as_deref().map(|text| content_of("after", text)).transpose()?;
    let provided = app.index.provided(after.as_ref(), limit).await?;
    let item = |Provided { content, addrs, protocols, .. }: Provided| KeptWords {
        id: content.to_string(),
        addrs: Some(addrs.iter().map(Multiaddr::to_string).collect()),
        protocols: Some(protocols),
        ..KeptWords::default()
    };
    Ok(page(provided.into_iter().map(item).collect(), limit, |last| last.id.clone()))
}

async fn names(app: Arc<App>, bearer: Bearer, query: Query<KeptQuery>) -> HandlerResult {
    app.allow_admin(&bearer, WHOLE_NODE)?;
    let limit = query.0.limit()?;
    let after = query.0.after.as_deref().map(label_of).transpose()?;
    let names = app.index.kept_names(after, limit).await?;
    let item = |(label, value): (String, ContentId)| KeptWords {
        id: value.to_string(),
        name: Some(format!("name:{label}")),
        ..KeptWords::default()
    };
    Ok(page(names.into_iter().map(item).collect(), limit, |last| last.name.clone().unwrap_or_default()))
}

/// The label of a name of this node.
fn label_of(text: &str) -> Result<String, Problem> {
    match subject_of(text)? {
        Subject::Name(name) if name.owner().is_none() => Ok(name.label().to_owned()),
        _ => Err(Problem::schema(StatusCode::BAD_REQUEST, "after: not a name of this node")),
    }
}

impl KeptQuery {
    fn limit(&self) -> Result<usize, Error> {
        let limit = self.limit.unwrap_or(LIMIT);
        if (1..=LIMIT_MAX).contains(&limit) {
            return Ok(limit);
        }
        Err(Error::schema(format!("limit: 1 to {LIMIT_MAX}, not {limit}")))
    }
}

/// A page, and where the next one goes on if this one is full.
fn page(items: Vec<KeptWords>, limit: usize, position: impl Fn(&KeptWords) -> String) -> Response {
    let next = items.last().filter(|_| items.len() == limit).map(position);
    Json(KeptAnswer { items, next }).into_response()
}
