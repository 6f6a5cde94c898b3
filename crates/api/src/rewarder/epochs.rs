//! Reading epochs: manifests, settlements, proofs, explanations, differences, artifacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_rewarder::ProofFormat;
use svc_rewarder::artifacts::ALLOCATIONS_NDJSON;
use svc_rewarder::capabilities::{READ, REMOVE};
use svc_rewarder::service::{ArtifactReader, RewarderStats};
use utoipa::ToSchema;

use super::answers::{EpochAnswer, EpochSummary, SettlementAnswer, epoch_answer, public_answer, settlement_answer};
use super::{App, MaybeBearer, READ_DEADLINE, READERS, Routes, STATUSES, Sight, epoch_of, page, page_limit, told};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

const PAGE_DEFAULT: u64 = 100;
const PAGE_MAX: u64 = 1000;
/// Changes of one asset that a comparison lists.
const CHANGES_DEFAULT: u64 = 100;

static LIST: Operation = Operation::get("/rewarder/epochs", "epochs", "lists sealed epochs by their ids")
    .allows(READ)
    .query::<EpochsQuery>()
    .answers::<EpochsAnswer>();

static STATS: Operation = Operation::get("/rewarder/stats", "epochs", "counts epochs by how they stand")
    .allows(READ)
    .answers::<RewarderStatsAnswer>();

static SHOW: Operation = Operation::get(
    "/rewarder/epochs/{epoch}",
    "epochs",
    "shows an epoch: its manifest and how it stands; to a browser the page of its payees",
)
.needs(READERS)
.deadline(READ_DEADLINE)
.answers::<EpochAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::NotFound]);

static SETTLEMENT: Operation =
    Operation::get("/rewarder/epochs/{epoch}/settlement", "epochs", "shows how the payouts of an epoch stand")
        .allows(READ)
        .answers::<SettlementAnswer>()
        .errors(&[Kind::NotFound]);

static DIFF: Operation = Operation::get(
    "/rewarder/epochs/{epoch}/diff/{other}",
    "epochs",
    "compares with another epoch: what changed from the other to this one for whom, and why",
)
.allows(READ)
.deadline(READ_DEADLINE)
.query::<DiffQuery>()
.answers::<DiffAnswer>()
.errors(&[Kind::NotFound, Kind::Quarantine, Kind::Integrity])
.statuses(STATUSES);

static ALLOCATIONS: Operation = Operation::get(
    "/rewarder/epochs/{epoch}/allocations",
    "epochs",
    "all amounts, one object on each line, as the manifest hashes them",
)
.allows(READ)
.deadline(READ_DEADLINE)
.streams::<AllocationLine>()
.errors(&[Kind::NotFound]);

static ARTIFACT: Operation = Operation::get(
    "/rewarder/epochs/{epoch}/artifacts/{name}",
    "epochs",
    "an artifact byte for byte: run.json, commitment, policy.json, usage.parquet and others, for `reward verify`",
)
.allows(READ)
.deadline(READ_DEADLINE)
.speaks(&[], &["application/octet-stream"])
.errors(&[Kind::NotFound]);

static REMOVE_ARTIFACTS: Operation = Operation::delete(
    "/rewarder/epochs/{epoch}/artifacts",
    "epochs",
    "removes the artifacts of a settled epoch to make room; what it paid stays known here and in the ledger",
)
.allows(REMOVE)
.answers::<SettlementAnswer>()
.errors(&[Kind::NotFound, Kind::Conflict]);

static PROOF: Operation = Operation::get(
    "/rewarder/epochs/{epoch}/proof/{actor}",
    "payees",
    "proves an actor's amounts: for contracts and wallets (oz), or against the whole pool (sum; shows amounts of \
     others on its way, so that it needs `rewarder:read` always)",
)
.needs(READERS)
.deadline(READ_DEADLINE)
.query::<ProofQuery>()
.answers::<ProofAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::NotFound, Kind::Quarantine, Kind::Integrity])
.statuses(STATUSES);

static EXPLAIN: Operation = Operation::get(
    "/rewarder/epochs/{epoch}/explain/{actor}",
    "payees",
    "every integer of an actor's amounts, or why they are zero",
)
.needs(READERS)
.deadline(READ_DEADLINE)
.answers::<PayoutExplained>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::NotFound, Kind::Quarantine, Kind::Integrity])
.statuses(STATUSES);

/// Which epochs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EpochsQuery {
    /// The id after which to go on: `next` of the page before.
    after: Option<String>,
    /// Whether to begin with the last id and go backwards.
    #[schema(default = false)]
    last_first: Option<bool>,
    /// Maximum epochs in one page.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// A page of epochs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EpochsAnswer {
    epochs: Vec<EpochSummary>,
    /// Where to go on, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The rewarder at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RewarderStatsAnswer {
    /// Epochs being computed or waiting for it.
    computing: usize,
    /// Sealed epochs by how they stand.
    epochs: BTreeMap<&'static str, u64>,
    /// Whether payouts wait for the ledger.
    ledger_waits: bool,
    /// Whether the ledger itself keeps a pot from being paid by two runs; absent before it was asked. Else only
    /// the seal log of this node does.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_run_per_pot: Option<bool>,
    /// Settled epochs that the ledger lacks: nothing more is booked before it has them again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_in_ledger: Vec<String>,
    /// Bytes of uploaded inputs.
    inputs_bytes: u64,
    /// Bytes of the artifacts of epochs.
    epochs_bytes: u64,
}

/// How much of a comparison.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffQuery {
    /// Changes listed for each asset, largest first.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Which proof.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProofQuery {
    /// `oz` or `sum`.
    #[schema(default = "oz")]
    format: Option<String>,
}

/// The difference between two runs; all differences as decimal strings with their sign.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DiffAnswer {
    /// The epoch compared with.
    from: String,
    /// The epoch compared.
    to: String,
    /// What differs between them: `order`, `input`, `policy`, `ruleset`, `pool`; `several` for what only changes of
    /// more than one kind together explain.
    causes: Vec<String>,
    /// By asset: sums, counts and the largest changes.
    #[schema(value_type = Vec<Object>)]
    assets: Vec<serde_json::Value>,
}

/// One amount.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AllocationLine {
    actor: String,
    asset: String,
    /// Units, as a decimal string.
    amount: String,
}

/// Proofs of one actor, one for each asset.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProofAnswer {
    epoch: String,
    actor: String,
    /// Asset, amount, format, root and the way to it.
    #[schema(value_type = Vec<Object>)]
    proofs: Vec<serde_json::Value>,
}

/// How an actor's amounts came about.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PayoutExplained {
    actor: String,
    /// For each asset the amount and all integers it follows from.
    #[schema(value_type = Vec<Object>)]
    assets: Vec<serde_json::Value>,
}

pub(super) const OPERATIONS: &[&Operation] =
    &[&LIST, &STATS, &SHOW, &SETTLEMENT, &DIFF, &ALLOCATIONS, &ARTIFACT, &REMOVE_ARTIFACTS, &PROOF, &EXPLAIN];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&LIST, with!(app, list(bearer, query)))
        .add(&STATS, with!(app, stats(bearer)))
        .add_open(&SHOW, with!(app, show(call, bearer, epoch, headers)))
        .add(&SETTLEMENT, with!(app, settlement(bearer, epoch)))
        .add(&DIFF, with!(app, diff(call, bearer, path, query)))
        .add(&ALLOCATIONS, with!(app, allocations(call, bearer, epoch)))
        .add(&ARTIFACT, with!(app, artifact(call, bearer, path)))
        .add(&REMOVE_ARTIFACTS, with!(app, remove_artifacts(call, bearer, epoch)))
        .add_open(&PROOF, with!(app, proof(call, bearer, path, query)))
        .add_open(&EXPLAIN, with!(app, explain(call, bearer, path)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn list(app: Arc<App>, bearer: Bearer, query: Query<EpochsQuery>) -> HandlerResult {
    // A list is for those who may read every epoch.
    app.allow(&bearer, READ, "")?;
    let limit = page_limit(query.0.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.0.after.as_deref();
    let rows = match query.0.last_first {
        Some(true) => app.rewarder.list_back(after, limit)?,
        _ => app.rewarder.list(after, limit)?,
    };
    let next = rows.last().filter(|_| rows.len() == limit).map(|row| row.epoch.clone());
    Ok(Json(EpochsAnswer { epochs: rows.iter().map(|row| EpochSummary::of(row)).collect(), next }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn stats(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    // Counts speak of every epoch.
    app.allow(&bearer, READ, "")?;
    let stats = app.rewarder.stats()?;
    let RewarderStats { computing, epochs, ledger_waits, one_run_per_pot, inputs_bytes, epochs_bytes } = stats;
    let missing = app.rewarder.missing().iter().map(|row| row.epoch.clone()).collect();
    let answer = RewarderStatsAnswer {
        computing,
        epochs,
        ledger_waits,
        one_run_per_pot,
        missing_in_ledger: missing,
        inputs_bytes,
        epochs_bytes,
    };
    Ok(Json(answer).into_response())
}

async fn show(
    app: Arc<App>,
    call: Call,
    bearer: MaybeBearer,
    epoch: Path<String>,
    headers: HeaderMap,
) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    // The page holds no data, so it is for everybody, whatever the epoch.
    if page::is_wanted(&headers) {
        return Ok(page::html());
    }
    let sight = app.allow_read(&bearer, &epoch)?;
    // While it is computed there is nothing to read.
    let _share = if app.rewarder.row(&epoch).is_ok() { Some(app.read(&call)?) } else { None };
    let answer = epoch_answer(&app.rewarder, &epoch, call.deadline).await?;
    Ok(Json(if sight == Sight::Whole { answer } else { public_answer(answer) }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn settlement(app: Arc<App>, bearer: Bearer, epoch: Path<String>) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    app.allow(&bearer, READ, epoch.as_str())?;
    Ok(Json(settlement_answer(&*app.rewarder.row(&epoch)?)).into_response())
}

async fn diff(
    app: Arc<App>,
    call: Call,
    bearer: Bearer,
    path: Path<(String, String)>,
    query: Query<DiffQuery>,
) -> HandlerResult {
    let (epoch, other) = (epoch_of(&path.0.0)?, epoch_of(&path.0.1)?);
    app.allow(&bearer, READ, epoch.as_str())?;
    app.allow(&bearer, READ, other.as_str())?;
    let limit = page_limit(query.0.limit, CHANGES_DEFAULT, PAGE_MAX)?;
    let found = app.rewarder.diff(&epoch, &other, limit, app.read(&call)?, call.deadline).await.map_err(told)?;
    Ok(Json(found).into_response())
}

async fn allocations(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>) -> HandlerResult {
    let path = Path((epoch.0, ALLOCATIONS_NDJSON.to_owned()));
    artifact(app, call, bearer, path).await
}

async fn artifact(app: Arc<App>, call: Call, bearer: Bearer, path: Path<(String, String)>) -> HandlerResult {
    let epoch = epoch_of(&path.0.0)?;
    app.allow(&bearer, READ, epoch.as_str())?;
    let name = path.0.1;
    let media_type = match name.rsplit('.').next() {
        Some("ndjson") => "application/x-ndjson",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    };
    let reader = app.rewarder.artifact(&epoch, name, app.read(&call)?, call.deadline).await.map_err(told)?;
    Ok(download(reader, media_type))
}

async fn remove_artifacts(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    let subject = app.allow(&bearer, REMOVE, epoch.as_str())?;
    let row = app.rewarder.remove_artifacts(&epoch, &subject.name, call.deadline).await?;
    Ok(Json(settlement_answer(&row)).into_response())
}

/// Streams a file: pieces are read as the peer takes them, so that a slow reader costs one piece of memory.
fn download(reader: ArtifactReader, media_type: &'static str) -> Response {
    let bytes = reader.bytes();
    let pieces = stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let piece = reader.next().await.transpose()?;
        let rest = piece.is_ok().then_some(reader);
        Some((piece, rest))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    response
}

async fn proof(
    app: Arc<App>,
    call: Call,
    bearer: MaybeBearer,
    path: Path<(String, String)>,
    query: Query<ProofQuery>,
) -> HandlerResult {
    let (epoch, actor) = (epoch_of(&path.0.0)?, path.0.1);
    let sight = app.allow_read(&bearer, &epoch)?;
    let format = query.0.format.as_deref().unwrap_or("oz").parse::<ProofFormat>();
    let format = format.map_err(|reason| Problem::schema(StatusCode::BAD_REQUEST, format!("format: {reason}")))?;
    // Its lowest step is the amount of one neighbour, and without a leaf it is two neighbours with their ids.
    if format == ProofFormat::Sum && sight == Sight::Public {
        let kind = if bearer.0.is_some() { Kind::Forbidden } else { Kind::Unauthenticated };
        let detail =
            "format: a sum proof shows amounts of others, and needs `rewarder:read` on the epoch; `oz` does not";
        return Err(Error::new(kind, detail).into());
    }
    let proof = app.rewarder.proof(&epoch, actor, format, app.read(&call)?, call.deadline).await;
    Ok(Json(proof.map_err(told)?).into_response())
}

async fn explain(app: Arc<App>, call: Call, bearer: MaybeBearer, path: Path<(String, String)>) -> HandlerResult {
    let (epoch, actor) = (epoch_of(&path.0.0)?, path.0.1);
    app.allow_read(&bearer, &epoch)?;
    let explained = app.rewarder.explain(&epoch, actor, app.read(&call)?, call.deadline).await;
    Ok(Json(explained.map_err(told)?).into_response())
}
