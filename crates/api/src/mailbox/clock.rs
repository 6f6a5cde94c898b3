//! The mailbox's clock: looked at, and confirmed after a jump.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use serde::Serialize;
use svc_mailbox::ClockView;
use svc_mailbox::capabilities::ADMIN;
use utoipa::ToSchema;

use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::Json;
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static SHOW: Operation =
    Operation::get("/v1/clock", "operations", "shows the mailbox's clock, and what a jump of it holds back")
        .allows(ADMIN)
        .answers::<ClockAnswer>();

static CONFIRM: Operation = Operation::post(
    "/v1/clock/confirm",
    "operations",
    "takes the operator's word that the clock is right: what it makes too old expires from now on",
)
.operator()
.answers::<ClockAnswer>();

/// The time by the mailbox's own clock (`now_ms`), how far the wall clock is ahead of it, and what is held back because
/// the wall clock was hours ahead at the start: the jump, and the time at which it is believed.
#[derive(Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub(super) struct ClockAnswer(ClockView);

pub(super) const OPERATIONS: &[&Operation] = &[&SHOW, &CONFIRM];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&SHOW, with!(app, show(bearer))).add(&CONFIRM, with!(app, confirm(call, bearer)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn show(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer, "")?;
    Ok(Json(ClockAnswer(app.mailbox.clock_view()?)).into_response())
}

async fn confirm(app: Arc<App>, call: Call, bearer: Bearer) -> HandlerResult {
    // It lets messages of every topic expire, and nobody but the operator answers for the clock.
    bearer.allow_operator(&app.authority)?;
    Ok(Json(ClockAnswer(app.mailbox.confirm_clock(call.deadline).await?)).into_response())
}
