//! The index at a glance: its last lookups, its targets, and whether it has enough resolvers.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use serde::Serialize;
use svc_index::capabilities::ADMIN;
use utoipa::ToSchema;

use super::words::{LookupWords, breaker_state};
use super::{App, Routes, WHOLE_NODE};
use crate::auth::Bearer;
use crate::extract::Json;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static LOOKUPS: Operation = Operation::get(
    "/index/lookups",
    "upkeep",
    "the last lookups among peers, newest first, with everybody who was asked",
)
.allows(ADMIN)
.answers::<LookupsAnswer>();

static CAPACITY: Operation = Operation::get(
    "/index/capacity",
    "upkeep",
    "how many resolvers there are, and how many the load asks for: arrivals times service time over 0.7",
)
.allows(ADMIN)
.answers::<CapacityAnswer>();

static STATS: Operation = Operation::get("/index/stats", "upkeep", "what the index holds, and how its targets stand")
    .allows(ADMIN)
    .answers::<IndexStatsAnswer>();

/// The last lookups.
#[derive(Serialize, ToSchema)]
pub(super) struct LookupsAnswer {
    /// Newest first.
    lookups: Vec<LookupWords>,
}

/// Resolvers and load.
#[derive(Serialize, ToSchema)]
pub(super) struct CapacityAnswer {
    /// Lookups a second.
    lambda: f64,
    /// Seconds that a resolver has with one, on average.
    service_s: f64,
    /// Answers out of the cache a second, which take no resolver.
    hits: f64,
    /// Resolvers there are.
    workers: usize,
    /// Resolvers that the rule asks for.
    workers_wanted: usize,
}

/// What the index holds.
#[derive(Serialize, ToSchema)]
pub(super) struct IndexStatsAnswer {
    /// Peer id of this node.
    peer_id: String,
    /// Key of this node, which owns names without one.
    node_key: String,
    /// Answers in the cache.
    cached: u64,
    /// Bytes they take, about.
    cached_bytes: u64,
    /// Records in the store.
    records: u64,
    /// Lookups under way.
    flights: usize,
    /// Open watches.
    watchers: usize,
    /// Whether nothing is kept on disk.
    amnesia: bool,
    /// Everybody the index asks, with the breaker of each.
    targets: Vec<TargetWords>,
}

/// A target of lookups.
#[derive(Serialize, ToSchema)]
struct TargetWords {
    /// A peer id, or the name of a router.
    target: String,
    /// `peer` or `upstream`.
    class: &'static str,
    /// State of its breaker: `closed`, `open` or `half_open`.
    breaker: &'static str,
    /// Questions in the window over which failures are counted.
    calls: u32,
    /// Those of them that failed.
    failures: u32,
}

pub(super) const OPERATIONS: &[&Operation] = &[&LOOKUPS, &CAPACITY, &STATS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&LOOKUPS, with!(app, lookups(bearer)))
        .add(&CAPACITY, with!(app, capacity(bearer)))
        .add(&STATS, with!(app, stats(bearer)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn lookups(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer, WHOLE_NODE)?;
    let lookups = app.index.recent_lookups();
    Ok(Json(LookupsAnswer { lookups: lookups.iter().map(|lookup| LookupWords::of(lookup)).collect() }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn capacity(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer, WHOLE_NODE)?;
    let capacity = app.index.capacity();
    Ok(Json(CapacityAnswer {
        lambda: capacity.lambda,
        service_s: capacity.service_s,
        hits: capacity.hits,
        workers: capacity.workers,
        workers_wanted: capacity.workers_wanted,
    })
    .into_response())
}

async fn stats(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer, WHOLE_NODE)?;
    let stats = app.index.stats().await?;
    let target = |view: svc_index::words::TargetView| TargetWords {
        target: view.target.to_string(),
        class: view.target.class().as_str(),
        breaker: breaker_state(view.state),
        calls: view.calls,
        failures: view.failures,
    };
    Ok(Json(IndexStatsAnswer {
        peer_id: app.index.node_peer().to_string(),
        node_key: stats.node_key.to_string(),
        cached: stats.cached,
        cached_bytes: stats.cached_bytes,
        records: stats.records,
        flights: stats.flights,
        watchers: stats.watchers,
        amnesia: stats.is_amnesia,
        targets: app.index.targets().into_iter().map(target).collect(),
    })
    .into_response())
}
