//! The development surface: two routes that exercise the whole path from socket to worker and back.

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::extract::{Json, Query};
use crate::problem::Failure;
use crate::route::{ApiBuilder, RouteSpec, Verb};

/// What the surface needs of the node.
pub trait Work: Send + Sync + 'static {
    /// Has the item worked on within the call's deadline; full queues answer Busy.
    fn submit(&self, item: WorkItem, call: Call) -> BoxFuture<'static, Result<Bytes, Error>>;
}

/// What can be asked of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkItem {
    /// Gives the bytes back.
    Echo(Bytes),
    /// Waits.
    Sleep(Duration),
    /// Keeps a core busy.
    Burn(Duration),
}

/// `POST /v1/echo`.
pub static ECHO: RouteSpec = RouteSpec {
    pattern: "/v1/echo",
    method: Verb::Post,
    deadline: None,
    concurrency: None,
    does: "sends a message through the work queue and back",
};

/// `GET /v1/work`.
pub static WORK: RouteSpec = RouteSpec {
    pattern: "/v1/work",
    method: Verb::Get,
    deadline: None,
    concurrency: None,
    does: "has a worker sleep or keep a core busy for a time",
};

const WORK_MS_MAX: u64 = 60_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EchoRequest {
    message: String,
}

#[derive(Serialize)]
struct EchoAnswer<'a> {
    message: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkRequest {
    ms: u64,
    #[serde(default)]
    kind: WorkKind,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkKind {
    #[default]
    Sleep,
    Cpu,
}

#[derive(Serialize)]
struct WorkAnswer {
    worked_ms: u64,
}

/// Adds the development routes.
pub fn dev_routes(builder: ApiBuilder, work: Arc<dyn Work>) -> ApiBuilder {
    let echo_work = Arc::clone(&work);
    let echo = move |call: Call, Json(request): Json<EchoRequest>| {
        let answered = echo_work.submit(WorkItem::Echo(Bytes::from(request.message)), call);
        async move {
            let message = answered.await?;
            let message = std::str::from_utf8(&message)
                .map_err(|_| Error::new(Kind::Integrity, "the message came back as something else than text"))?;
            Ok::<_, Failure>(Json(EchoAnswer { message }).into_response())
        }
    };
    let work = move |call: Call, Query(request): Query<WorkRequest>| {
        let answered = request.item().map(|item| work.submit(item, call));
        async move {
            answered?.await?;
            Ok::<_, Failure>(Json(WorkAnswer { worked_ms: request.ms }))
        }
    };
    builder.route(&ECHO, echo).route(&WORK, work)
}

impl WorkRequest {
    fn item(&self) -> Result<WorkItem, Error> {
        if self.ms > WORK_MS_MAX {
            return Err(Error::schema(format!("ms: {} is over {WORK_MS_MAX}", self.ms)));
        }
        let time = Duration::from_millis(self.ms);
        Ok(match self.kind {
            WorkKind::Sleep => WorkItem::Sleep(time),
            WorkKind::Cpu => WorkItem::Burn(time),
        })
    }
}
