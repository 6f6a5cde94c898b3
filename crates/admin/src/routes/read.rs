//! The reading routes: no token, never cached.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use ron_kernel::status::NodeStatus;
use ron_types::Error;
use ron_types::limits::RUNTIME_STILL_MAX;
use serde::Serialize;
use serde_json::json;

use super::Plane;
use crate::connection::AcceptedAt;
use crate::problem::{answer, json_answer, refuse};

const PAGE: &str = include_str!("../page.html");
/// Stands in the page where the nonce of one answer belongs.
const NONCE_MARK: &str = "NONCE";

type Parameters = Query<HashMap<String, String>>;

pub(super) async fn healthz(State(plane): State<Arc<Plane>>) -> Response {
    let age = plane.kernel.last_turn_age();
    let ok = age < RUNTIME_STILL_MAX;
    let body = json!({ "ok": ok, "loop_age_ms": age.as_millis() as u64, "uptime_ms": plane.kernel.now_ms() });
    json_answer(ok_or_unavailable(ok), &body)
}

pub(super) async fn readyz(State(plane): State<Arc<Plane>>, parameters: Parameters) -> Response {
    let status = plane.kernel.status();
    let ok = match parameters.contains_key("writes") {
        true => status.view.accepts_writes,
        false => status.view.accepts_reads,
    };
    let notes = plane.control.notes().into_iter().chain(plane.kernel.notes()).collect();
    serialized(ok_or_unavailable(ok), &Readiness { status: &status, notes })
}

/// Answer of `/readyz`.
#[derive(Serialize)]
struct Readiness<'a> {
    #[serde(flatten)]
    status: &'a NodeStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

pub(super) async fn metrics(State(plane): State<Arc<Plane>>) -> Response {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    // Read here, on the admin thread: a runtime that stands still cannot write it down itself.
    let still_seconds = plane.kernel.last_turn_age().as_secs();
    plane.kernel.metrics().runtime_still.set(i64::try_from(still_seconds).unwrap_or(i64::MAX));
    answer(StatusCode::OK, content_type, plane.kernel.metrics().render())
}

pub(super) async fn version(State(plane): State<Arc<Plane>>) -> Response {
    json_answer(StatusCode::OK, &plane.control.version())
}

pub(super) async fn topology(State(plane): State<Arc<Plane>>, parameters: Parameters) -> Response {
    let topology = plane.kernel.topology();
    match parameters.get("as").map(String::as_str) {
        None | Some("json") => serialized(StatusCode::OK, &topology),
        Some("mermaid") => answer(StatusCode::OK, "text/plain; charset=utf-8", topology.mermaid()),
        Some(_) => refuse(&Error::schema("as is json or mermaid")),
    }
}

/// Proves that the node knows its operator token, so that nobody shows it to a stranger.
pub(super) async fn identity(
    State(plane): State<Arc<Plane>>,
    Extension(AcceptedAt(accepted_at)): Extension<AcceptedAt>,
    parameters: Parameters,
) -> Response {
    let nonce = parameters.get("nonce").map(String::as_str).unwrap_or_default();
    match accepted_at.and_then(|at| ron_auth::prove(plane.token.expose(), nonce, at)) {
        Some(proof) => json_answer(StatusCode::OK, &json!({ "proof": proof })),
        None => refuse(&Error::schema("nonce is 64 hex digits")),
    }
}

pub(super) async fn page() -> Response {
    let mut random = [0; 16];
    if let Err(error) = getrandom::fill(&mut random) {
        tracing::error!(%error, "no randomness for the page's nonce");
        return refuse(&Error::new(ron_types::Kind::Degraded, "the node has no randomness"));
    }
    let nonce = format!("{:032x}", u128::from_be_bytes(random));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = answer(StatusCode::OK, "text/html; charset=utf-8", PAGE.replace(NONCE_MARK, &nonce));
    let policy = HeaderValue::from_str(&policy).expect("the policy is visible ASCII");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn ok_or_unavailable(ok: bool) -> StatusCode {
    if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn serialized<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let body = serde_json::to_string(value).expect("the kernel's views have string keys and finite numbers");
    answer(status, "application/json", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_writes_no_markup_from_data() {
        let allowed = PAGE.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
        for forbidden in [
            "http:",
            "https:",
            "//cdn",
            " src=",
            "@import",
            "url(",
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "eval(",
        ] {
            assert!(!allowed.contains(forbidden), "the page contains {forbidden}");
        }
        assert_eq!(PAGE.matches(NONCE_MARK).count(), 2, "one nonce for the style, one for the script");
        assert!(!PAGE.contains(" style=\""), "the policy would refuse inline styles");
    }
}
