//! The page that a payee opens in a browser.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use ron_types::Kind;
use serde_json::{Value, json};
use svc_rewarder::distribution::{AssetDistribution, Bucket};
use utoipa::ToSchema;

use super::{App, MaybeBearer, READERS, Routes, STATUSES, Sight, epoch_of, told};
use crate::call::Call;
use crate::extract::{Json, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::web_page::{SCRIPT, STYLE, WebPage};

static PAGE_FILE: Operation =
    Operation::get("/rewarder/page/{file}", "payees", "a script or style sheet of the page of an epoch")
        .speaks(&[], &["text/javascript", "text/css"])
        .errors(&[Kind::NotFound]);

static DISTRIBUTION: Operation = Operation::get(
    "/rewarder/epochs/{epoch}/distribution",
    "payees",
    "how many payees get how much, in ranges of round numbers: what the page plots",
)
.needs(READERS)
.deadline(super::READ_DEADLINE)
.answers::<DistributionAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::NotFound, Kind::Quarantine, Kind::Integrity])
.statuses(STATUSES);

/// How the amounts of an epoch are spread over its payees.
#[derive(Debug, serde::Serialize, ToSchema)]
pub(super) struct DistributionAnswer {
    /// Id of the epoch.
    epoch: String,
    /// By asset: payees, smallest and largest amount, and neighbouring ranges with `from`, `below`, `payees`, `paid`;
    /// in public the ranges with their payees alone.
    #[schema(value_type = Vec<Object>)]
    assets: Vec<AssetDistribution>,
}

static FILES: WebPage = WebPage {
    html: include_str!("page/page.html"),
    files: &[
        ("page.css", STYLE, include_str!("page/page.css")),
        ("page.mjs", SCRIPT, include_str!("page/page.mjs")),
        ("plot.mjs", SCRIPT, include_str!("page/plot.mjs")),
        ("explain.mjs", SCRIPT, include_str!("page/explain.mjs")),
        ("verify.mjs", SCRIPT, include_str!("page/verify.mjs")),
        ("blake3.mjs", SCRIPT, include_str!("page/blake3.mjs")),
        ("keccak.mjs", SCRIPT, include_str!("page/keccak.mjs")),
    ],
};

pub(super) const OPERATIONS: &[&Operation] = &[&PAGE_FILE, &DISTRIBUTION];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&PAGE_FILE, file).add_open(&DISTRIBUTION, with!(app, distribution(call, bearer, epoch)))
}

async fn distribution(app: Arc<App>, call: Call, bearer: MaybeBearer, epoch: Path<String>) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    let sight = app.allow_read(&bearer, &epoch)?;
    let assets = app.rewarder.distribution(&epoch, app.read(&call)?, call.deadline).await.map_err(told)?;
    if sight == Sight::Public {
        // A range may have one payee, whose amount would be its sum.
        let bucket = |bucket: &Bucket| json!({"from": bucket.from, "below": bucket.below, "payees": bucket.payees});
        let ranges = |asset: &AssetDistribution| {
            let buckets: Vec<Value> = asset.buckets.iter().map(bucket).collect();
            json!({"asset": asset.asset, "payees": asset.payees, "buckets": buckets})
        };
        let assets: Vec<Value> = assets.iter().map(ranges).collect();
        return Ok(Json(json!({"epoch": epoch.as_str(), "assets": assets})).into_response());
    }
    Ok(Json(DistributionAnswer { epoch: epoch.to_string(), assets }).into_response())
}

async fn file(name: Path<String>) -> HandlerResult {
    FILES.file(&name.0)
}

/// The page itself.
pub(super) fn html() -> Response {
    let mut response = FILES.page();
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Whether the caller would rather have a page than JSON: it names `text/html`, and JSON not before it.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = || headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let weight =
        |media_type: &str| accepted().flat_map(|value| value.split(',')).find_map(|one| weight(one, media_type));
    weight("text/html").is_some_and(|html| html > 0 && html >= weight("application/json").unwrap_or(0))
}

/// Thousandths of the weight that one accepted range gives to this media type, if it names it.
fn weight(range: &str, media_type: &str) -> Option<u32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(media_type) {
        return None;
    }
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    Some(quality.map_or(1000, |quality| {
        let quality = quality.parse::<f32>().ok().filter(|quality| (0.0..=1.0).contains(quality));
        quality.map_or(0, |quality| (quality * 1000.0) as u32)
    }))
}

#[cfg(test)]
mod tests;
