//! What the node itself did: the rows of its usage meter, and the files they are sealed as.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, header};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_rewarder::EpochId;
use svc_rewarder::capabilities::{COMPUTE, READ};
use svc_rewarder::hashing::b3;
use svc_rewarder::usage_meter::UsageSeal;
use utoipa::ToSchema;

use super::{App, Routes, epoch_of, page_limit};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

const ROWS_DEFAULT: u64 = 100;
const ROWS_MAX: u64 = 10_000;

const HASH_HEADER: HeaderName = HeaderName::from_static("x-content-b3");

static USAGE: Operation =
    Operation::get("/rewarder/usage", "usage", "what the node did for whom since its usage was last sealed")
        .allows(READ)
        .query::<UsageQuery>()
        .answers::<UsageAnswer>();

static SEAL: Operation = Operation::post(
    "/rewarder/usage/seal",
    "usage",
    "seals everything since the last seal as the usage of an epoch; the same epoch again is the same file. A token \
     that may not compute every epoch seals the rows of its own subject, and no others",
)
.allows(COMPUTE)
.body::<SealRequest>(r#"{"epoch":"2026-11","as":"node-7"}"#)
.answers::<SealAnswer>()
.errors(&[Kind::Conflict]);

static USAGE_FILE: Operation = Operation::get(
    "/rewarder/usage/{epoch}",
    "usage",
    "the sealed usage of an epoch: actor, metric and quantity as CSV",
)
.allows(READ)
.speaks(&[], &["text/csv"])
.errors(&[Kind::NotFound, Kind::Integrity]);

/// Which rows.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    /// The actor after whom to go on: `next` of the page before.
    after: Option<String>,
    /// Rows in one page, about: the rows of one actor stay together.
    #[schema(minimum = 1, maximum = 10_000, default = 100)]
    limit: Option<u64>,
}

/// A page of rows.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageAnswer {
    /// Rows of this page, by actor, then by metric.
    rows: Vec<UsageRow>,
    /// Rows on all pages.
    rows_total: u64,
    /// Where to go on, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Epochs sealed before, newest first; at most a hundred.
    sealed: Vec<SealAnswer>,
}

/// One row of usage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageRow {
    /// Whom it was done for.
    actor: String,
    /// What was counted.
    metric: String,
    /// How much, as a decimal string.
    quantity: String,
}

/// What to seal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SealRequest {
    /// The epoch that it is the usage of.
    epoch: String,
    /// The one actor that all rows are given to, such as the operator of this node; else each tenant has its own.
    #[serde(rename = "as")]
    as_actor: Option<String>,
}

/// A sealed file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SealAnswer {
    /// The epoch that it is the usage of.
    epoch: String,
    /// The tenant whose rows it holds; absent: those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The one actor that all rows were given to.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    as_actor: Option<String>,
    /// Rows of the file.
    rows: u64,
    /// Bytes of the file.
    bytes: u64,
    /// BLAKE3 of the file.
    b3: String,
}

pub(super) const OPERATIONS: &[&Operation] = &[&USAGE, &SEAL, &USAGE_FILE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&USAGE, with!(app, usage(call, bearer, query)))
        .add(&SEAL, with!(app, seal(call, bearer, body)))
        .add(&USAGE_FILE, with!(app, file(call, bearer, epoch)))
}

async fn usage(app: Arc<App>, call: Call, bearer: Bearer, query: Query<UsageQuery>) -> HandlerResult {
    // All tenants are in it, so it is for those who may read every epoch.
    app.allow(&bearer, READ, "")?;
    let UsageQuery { after, limit } = query.0;
    let limit = page_limit(limit, ROWS_DEFAULT, ROWS_MAX)?;
    let page = app.usage.page(after, limit, call.deadline).await.map_err(Error::from)?;
    let row =
        |(actor, metric, quantity): (String, String, u128)| UsageRow { actor, metric, quantity: quantity.to_string() };
    Ok(Json(UsageAnswer {
        rows: page.rows.into_iter().map(row).collect(),
        rows_total: page.rows_total,
        next: page.next,
        sealed: page.sealed.into_iter().map(SealAnswer::from).collect(),
    })
    .into_response())
}

async fn seal(app: Arc<App>, call: Call, bearer: Bearer, body: JsonText) -> HandlerResult {
    let SealRequest { epoch, as_actor } = body.parse()?;
    let epoch: EpochId = epoch_of(&epoch)?;
    let subject = app.allow(&bearer, COMPUTE, epoch.as_str())?;
    // The rows are of all tenants: a right on some epochs is none on what was done for others.
    let sealed = match app.allow(&bearer, COMPUTE, "") {
        Ok(_) => app.usage.seal(epoch, as_actor, call.deadline).await,
        Err(refused) if refused.kind == Kind::Forbidden => {
            app.usage.seal_own(epoch, subject.name.to_string(), as_actor, call.deadline).await
        }
        Err(refused) => return Err(refused.into()),
    };
    Ok(Json(SealAnswer::from(sealed.map_err(Error::from)?)).into_response())
}

async fn file(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    app.allow(&bearer, READ, epoch.as_str())?;
    let (sealed, bytes) = app.usage.file(epoch, call.deadline).await.map_err(Error::from)?;
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(HeaderValue::from_str(&b3(&sealed.hash)).ok().map(|hash| (HASH_HEADER, hash)));
    Ok(response)
}

impl From<UsageSeal> for SealAnswer {
    fn from(sealed: UsageSeal) -> SealAnswer {
        let b3 = b3(&sealed.hash);
        let UsageSeal { epoch, tenant, as_actor, rows, bytes, .. } = sealed;
        SealAnswer { epoch, tenant, as_actor, rows, bytes, b3 }
    }
}
