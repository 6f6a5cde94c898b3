//! A message's way through this node.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_types::{Error, Kind};
use svc_overlay::MsgId;
use svc_overlay::capabilities::ADMIN;

use super::words::TraceAnswer;
use super::{App, Routes};
use crate::auth::Bearer;
use crate::extract::{Json, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

static TRACE: Operation = Operation::get(
    "/overlay/messages/{msg_id}/trace",
    "peers",
    "where a message came from and which peers got it from this node, while its ring holds the message",
)
.allows(ADMIN)
.answers::<TraceAnswer>()
.errors(&[Kind::NotFound]);

pub(super) const OPERATIONS: &[&Operation] = &[&TRACE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&TRACE, with!(app, trace(bearer, msg_id)))
}

async fn trace(app: Arc<App>, bearer: Bearer, msg_id: Path<String>) -> HandlerResult {
    app.allow_admin(&bearer)?;
    let msg_id: MsgId =
        msg_id.0.parse().map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("msg_id: {error}")))?;
    let found = app.overlay.trace(msg_id).await?;
    let trace = found.ok_or_else(|| Error::new(Kind::NotFound, "the ring of this node holds no such message"))?;
    Ok(Json(TraceAnswer::from(trace)).into_response())
}
