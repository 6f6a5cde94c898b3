//! The development surface: two routes that exercise the whole path from socket to worker and back.

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::call::Call;
use crate::extract::{Json, Query};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::ApiBuilder;
use crate::surface::{NODE, Surface};

/// The worker pool, as the development routes use it.
pub trait Work: Send + Sync + 'static {
    /// Has the item worked on within the call's deadline; full queues answer Busy.
    fn submit(&self, item: WorkItem, call: Call) -> BoxFuture<'static, Result<Bytes, Error>>;
}

/// Work for the worker pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkItem {
    /// Return the bytes unchanged.
    Echo(Bytes),
    /// Sleep this long.
    Sleep(Duration),
    /// Keep a core busy this long.
    Burn(Duration),
}

static ECHO: Operation = Operation::post("/v1/echo", "development", "sends a message through the work queue and back")
    .body::<EchoRequest>(r#"{"message":"hello"}"#)
    .answers::<EchoAnswer<'static>>();

static WORK: Operation = Operation::get("/v1/work", "development", "has a worker sleep or keep a core busy for a time")
    .query::<WorkRequest>()
    .answers::<WorkAnswer>();

/// Development routes as a surface of the HTTP plane.
pub static SURFACE: Surface = Surface {
    service: NODE,
    about: "Two routes for development exercise the whole path from socket to worker and back.",
    tags: &["development"],
    operations: &[&ECHO, &WORK],
};

const WORK_MS_MAX: u64 = 60_000;

/// What to send through.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EchoRequest {
    /// Any text.
    message: String,
}

/// What came back.
#[derive(Serialize, ToSchema)]
struct EchoAnswer<'a> {
    /// The text that was sent.
    message: &'a str,
}

/// What a worker is to do.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WorkRequest {
    /// Time to work, in milliseconds.
    #[schema(maximum = 60_000)]
    ms: u64,
    /// `sleep`, or `cpu` to keep a core busy.
    #[serde(default)]
    kind: WorkKind,
}

/// How a worker spends the time.
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WorkKind {
    #[default]
    Sleep,
    Cpu,
}

/// What a worker did.
#[derive(Serialize, ToSchema)]
struct WorkAnswer {
    /// Time worked, in milliseconds.
    worked_ms: u64,
}

/// Adds the development routes; `work` hands their jobs to the pool.
pub fn dev_routes(builder: ApiBuilder, work: Arc<dyn Work>) -> ApiBuilder {
    let echo_work = Arc::clone(&work);
    let echo = move |call: Call, Json(request): Json<EchoRequest>| {
        let answered = echo_work.submit(WorkItem::Echo(Bytes::from(request.message)), call);
        async move {
            let message = answered.await?;
            let message = std::str::from_utf8(&message)
                .map_err(|_| Error::new(Kind::Integrity, "the message came back as something else than text"))?;
            Ok::<_, Problem>(Json(EchoAnswer { message }).into_response())
        }
    };
    let work = move |call: Call, Query(request): Query<WorkRequest>| {
        let answered = request.item().map(|item| work.submit(item, call));
        async move {
            answered?.await?;
            Ok::<_, Problem>(Json(WorkAnswer { worked_ms: request.ms }))
        }
    };
    builder.surface(&SURFACE).operation(&ECHO, echo).operation(&WORK, work)
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
