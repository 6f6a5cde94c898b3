//! The controlling routes: each needs the operator token, and each use is logged.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, header};
use ron_kernel::handle::ChaosOrder;
use ron_types::{Error, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BODY_BYTES_MAX, Plane, oversize};
use crate::problem::{json_answer, refuse};

/// Proof that the request carries the operator token: a handler that takes one cannot run without it.
pub(super) struct Operator;

impl FromRequestParts<Arc<Plane>> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, plane: &Arc<Plane>) -> Result<Self, Response> {
        let shown = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
        if shown.is_some_and(|shown| plane.token.matches(shown)) {
            tracing::info!(path = parts.uri.path(), "an operator acts");
            return Ok(Operator);
        }
        tracing::warn!(
            path = parts.uri.path(),
            shown = shown.is_some(),
            "a control request without the operator token"
        );
        Err(refuse(&Error::new(Kind::Unauthenticated, "send Authorization: Bearer with the operator token")))
    }
}

/// The credential of a bearer header; the scheme's case does not matter.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

pub(super) async fn reload(_: Operator, State(plane): State<Arc<Plane>>) -> Response {
    let reloaded = plane.control.reload().await;
    said(StatusCode::OK, reloaded.map(|report| json!(report)))
}

pub(super) async fn drain(_: Operator, State(plane): State<Arc<Plane>>) -> Response {
    let asked = plane.kernel.drain().await;
    said(StatusCode::ACCEPTED, asked.map(|()| json!({ "draining": true })))
}

pub(super) async fn restart_service(
    _: Operator,
    State(plane): State<Arc<Plane>>,
    Path(name): Path<String>,
) -> Response {
    let restarted = plane.kernel.restart_service(&name).await;
    said(StatusCode::ACCEPTED, restarted.map(|()| json!({ "restarted": name })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    filter: String,
}

pub(super) async fn log_level(_: Operator, State(plane): State<Arc<Plane>>, body: Body) -> Response {
    let set = async {
        let bytes = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| oversize())?;
        let asked: LogLevel = serde_json::from_slice(&bytes).map_err(|error| Error::schema(error.to_string()))?;
        plane.control.set_log_filter(&asked.filter).map_err(Error::schema)?;
        Ok(json!({ "filter": asked.filter }))
    };
    said(StatusCode::OK, set.await)
}

#[derive(Deserialize)]
pub(super) struct Target {
    task: String,
    share: Option<f64>,
}

type MaybeTarget = Result<Query<Target>, QueryRejection>;

pub(super) async fn kill(_: Operator, State(plane): State<Arc<Plane>>, target: MaybeTarget) -> Response {
    chaos(&plane, target, ChaosOrder::Kill).await
}

pub(super) async fn freeze(_: Operator, State(plane): State<Arc<Plane>>, target: MaybeTarget) -> Response {
    chaos(&plane, target, ChaosOrder::Freeze).await
}

async fn chaos(plane: &Plane, target: MaybeTarget, order: ChaosOrder) -> Response {
    let target = match target {
        Ok(Query(target)) => target,
        Err(rejection) => return refuse(&Error::schema(rejection.body_text())),
    };
    // At least one instance is hit however small the share, so the smallest share is exactly one.
    let share = target.share.unwrap_or(f64::MIN_POSITIVE);
    let hit = plane.kernel.chaos(&target.task, share, order).await;
    said(StatusCode::OK, hit.map(|hit| json!({ "hit": hit })))
}

#[derive(Deserialize)]
pub(super) struct Stall {
    ms: u64,
}

/// Longest time chaos may keep the runtime from turning, in milliseconds.
const STALL_MS_MAX: u64 = 60_000;

pub(super) async fn stall(
    _: Operator,
    State(plane): State<Arc<Plane>>,
    asked: Result<Query<Stall>, QueryRejection>,
) -> Response {
    let ms = match asked {
        Ok(Query(Stall { ms })) if ms <= STALL_MS_MAX => ms,
        Ok(_) => return refuse(&Error::schema(format!("ms is at most {STALL_MS_MAX}"))),
        Err(rejection) => return refuse(&Error::schema(rejection.body_text())),
    };
    let stalled = plane.kernel.stall(Duration::from_millis(ms)).await;
    said(StatusCode::ACCEPTED, stalled.map(|()| json!({ "stalled_ms": ms })))
}

fn said(status: StatusCode, outcome: Result<Value, Error>) -> Response {
    match outcome {
        Ok(body) => json_answer(status, &body),
        Err(error) => refuse(&error),
    }
}
