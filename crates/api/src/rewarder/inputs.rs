//! Bringing usage files: streamed to the disk and verified on the way.

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_types::limits::rewarder::UPLOADS_MAX;
use ron_types::{Error, Kind};
use serde::Serialize;
use svc_rewarder::capabilities::UPLOAD;
use utoipa::ToSchema;

use super::{App, Routes};
use crate::auth::Bearer;
use crate::body::Pieces;
use crate::call::Call;
use crate::extract::{Json, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Resource of the right to bring inputs: they belong to no epoch yet.
const RESOURCE: &str = "inputs";
/// Time an upload has; a pause within it ends it much sooner.
const UPLOAD_DEADLINE: Duration = Duration::from_secs(6 * 3600);

static PUT_INPUT: Operation = Operation::put(
    "/rewarder/inputs/{b3}",
    "inputs",
    "takes a usage file whose bytes have this BLAKE3 hash; other bytes are refused and nothing of them is kept",
)
.allows(UPLOAD)
.takes_stream()
.deadline(UPLOAD_DEADLINE)
.concurrency(UPLOADS_MAX)
.speaks(&["application/octet-stream"], &["application/json"])
.answers::<InputAnswer>()
.created()
.errors(&[Kind::Integrity, Kind::FrameTooLarge]);

static DELETE_INPUT: Operation = Operation::delete(
    "/rewarder/inputs/{b3}",
    "inputs",
    "removes an uploaded file; sealed epochs do not need it, 409 while an accepted run does",
)
.allows(UPLOAD)
.errors(&[Kind::NotFound, Kind::Conflict]);

/// An input that is here.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InputAnswer {
    /// Hash of its bytes.
    b3: String,
    /// Length in bytes.
    bytes: u64,
}

pub(super) const OPERATIONS: &[&Operation] = &[&PUT_INPUT, &DELETE_INPUT];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&PUT_INPUT, with!(app, put(bearer, b3, pieces))).add(&DELETE_INPUT, with!(app, delete(call, bearer, b3)))
}

async fn put(app: Arc<App>, bearer: Bearer, b3: Path<String>, pieces: Pieces) -> HandlerResult {
    app.allow(&bearer, UPLOAD, RESOURCE)?;
    let hash = hash_of(&b3.0)?;
    let answer = |bytes| Json(InputAnswer { b3: svc_rewarder::hashing::b3(&hash), bytes }).into_response();
    let announced = pieces.announced;
    let uploaded = app.rewarder.upload(hash, announced, pieces.into_stream()).await;
    // What is left of the body cannot be told from the next request.
    let uploaded = uploaded.map_err(|error| Problem { closes: true, ..Problem::from(error) })?;
    let mut response = answer(uploaded.bytes);
    if uploaded.is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

async fn delete(app: Arc<App>, call: Call, bearer: Bearer, b3: Path<String>) -> HandlerResult {
    app.allow(&bearer, UPLOAD, RESOURCE)?;
    if app.rewarder.remove_input(hash_of(&b3.0)?, call.deadline).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(Error::new(Kind::NotFound, "no such input was uploaded").into())
}

/// Reads a BLAKE3 hash, with or without its prefix.
pub(super) fn hash_of(text: &str) -> Result<[u8; 32], Problem> {
    let digits = text.strip_prefix("b3:").unwrap_or(text);
    svc_rewarder::hashing::parse_b3(&format!("b3:{digits}")).ok_or_else(|| {
        Problem::schema(StatusCode::BAD_REQUEST, "b3: a BLAKE3 hash is 64 hexadecimal digits, in small letters")
    })
}
