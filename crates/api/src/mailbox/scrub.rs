//! The check of the whole log: asked for, and looked at.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use serde::Serialize;
use svc_mailbox::ScrubView;
use svc_mailbox::capabilities::ADMIN;
use utoipa::ToSchema;

use super::{App, Routes};
use crate::auth::Bearer;
use crate::extract::Json;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static START: Operation = Operation::post(
    "/v1/log/scrub",
    "operations",
    "checks every record of the log now, at the rate of upkeep; joins a check that runs already",
)
.allows(ADMIN)
.answers::<ScrubAnswer>()
.accepted();

static SHOW: Operation =
    Operation::get("/v1/log/scrub", "operations", "shows how far the check of the log is, and what it found")
        .allows(ADMIN)
        .answers::<ScrubAnswer>();

/// The pass that runs, the last one that ended, and when the next one begins. A pass has its number (`run`), the bytes
/// done and in all, whole and damaged records, and its findings: segment, offset, bytes, and the messages lost there.
#[derive(Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub(super) struct ScrubAnswer(ScrubView);

pub(super) const OPERATIONS: &[&Operation] = &[&START, &SHOW];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&START, with!(app, start(bearer))).add(&SHOW, with!(app, show(bearer)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn start(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    // The findings name messages of every topic.
    app.allow_admin(&bearer, "")?;
    let mut response = Json(ScrubAnswer(app.mailbox.scrub_now()?)).into_response();
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::ACCEPTED;
    }
    Ok(response)
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn show(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer, "")?;
    Ok(Json(ScrubAnswer(app.mailbox.scrub_view())).into_response())
}
