//! Dead letters: listed, and sent back on their way by tasks that can be watched and held.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::{ADMIN, SEND};
use svc_mailbox::types::{MessageId, TopicName};
use svc_mailbox::{Filter, RedriveControl, RedriveOrder, RedriveState, RedriveView};
use utoipa::ToSchema;

use super::dto::{self, FilterFields};
use super::fields::Topic;
use super::messages::{PAGE_DEFAULT, PageAnswer};
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static LIST: Operation = Operation::get("/v1/dlq/{topic}", "dead letters", "lists the dead letters of a topic")
    .allows(ADMIN)
    .query::<ListQuery>()
    .answers::<PageAnswer<'static>>()
    .errors(&[Kind::NotFound]);

static REPROCESS: Operation =
    Operation::post("/v1/dlq/{topic}/reprocess", "dead letters", "sends dead letters back, or counts which it would")
        .allows(ADMIN)
        .body::<ReprocessRequest>(
            r#"{"filter":{"reason":"max_attempts"},"rate_per_second":100,"limit":1000,"dry_run":true}"#,
        )
        .optional_body()
        .answers::<ReprocessAnswer<'static>>()
        .marked()
        .errors(&[Kind::NotFound, Kind::Conflict]);

static TASKS: Operation =
    Operation::get("/v1/dlq/tasks", "dead letters", "lists the tasks whose topics the token covers")
        .allows(ADMIN)
        .answers::<TasksAnswer<'static>>();

static TASK: Operation = Operation::get("/v1/dlq/tasks/{id}", "dead letters", "shows how far a task is")
    .allows(ADMIN)
    .answers::<TaskAnswer<'static>>()
    .errors(&[Kind::NotFound]);

static PAUSE: Operation = control("/v1/dlq/tasks/{id}/pause", "holds a task");
static RESUME: Operation = control("/v1/dlq/tasks/{id}/resume", "lets a held task go on");
static CANCEL: Operation = control("/v1/dlq/tasks/{id}/cancel", "ends a task; what it moved stays moved");

const fn control(pattern: &'static str, does: &'static str) -> Operation {
    Operation::post(pattern, "dead letters", does)
        .allows(ADMIN)
        .answers::<TaskAnswer<'static>>()
        .errors(&[Kind::NotFound, Kind::Conflict])
}

/// Which page.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Where to go on: `next` of the page before.
    cursor: Option<String>,
    /// At most so many.
    #[schema(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u64>,
}

/// Which dead letters go back, where to, and how fast.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReprocessRequest {
    /// Which; all if not given.
    #[serde(default)]
    filter: FilterFields,
    /// Where to; each to the topic it was for if not given.
    to: Option<Topic>,
    /// At most so many in a second.
    #[schema(minimum = 1)]
    rate_per_second: Option<u32>,
    /// At most so many in all.
    #[schema(minimum = 1)]
    limit: Option<u64>,
    /// True only counts.
    #[serde(default)]
    dry_run: bool,
}

/// The task that was started, or how many letters it would move.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReprocessAnswer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_move: Option<u64>,
}

/// Every task that is known.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TasksAnswer<'a> {
    tasks: Vec<Task<'a>>,
}

/// One task.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskAnswer<'a> {
    task: Task<'a>,
}

/// A task that moves dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Task<'a> {
    id: u64,
    /// The topic that is read.
    from: &'a str,
    /// Where everything goes, unless each goes to the topic it was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    /// `waiting`, `running`, `paused`, `done`, `canceled` or `failed`.
    #[schema(value_type = String)]
    state: RedriveState,
    /// Letters moved.
    moved: u64,
    /// Letters looked at.
    looked_at: u64,
    /// Letters there were when it began, wanted or not, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_look_at: Option<u64>,
    /// Letters that could not be moved.
    failed: u64,
    /// Why the last of them could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    /// At most so many in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<u32>,
    /// When it was ordered.
    ordered_ts: u64,
    /// When it will be done at this pace.
    #[serde(skip_serializing_if = "Option::is_none")]
    eta_ts: Option<u64>,
}

pub(super) const OPERATIONS: &[&Operation] = &[&LIST, &REPROCESS, &TASKS, &TASK, &PAUSE, &RESUME, &CANCEL];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    let controls =
        [(&PAUSE, RedriveControl::Pause), (&RESUME, RedriveControl::Resume), (&CANCEL, RedriveControl::Cancel)];
    let routes = routes
        .add(&LIST, with!(app, list(call, bearer, topic, query)))
        .add(&REPROCESS, with!(app, reprocess(call, bearer, topic, body)))
        .add(&TASKS, with!(app, tasks(bearer)))
        .add(&TASK, with!(app, task(bearer, id)));
    controls.into_iter().fold(routes, |routes, (operation, control)| {
        let app = Arc::clone(&app);
        let handler = move |bearer: Bearer, id: Path<String>| {
            let answer = app.control(&bearer, &id.0, control);
            async move { answer }
        };
        routes.add(operation, handler)
    })
}

async fn list(
    app: Arc<App>,
    call: Call,
    bearer: Bearer,
    topic: Path<String>,
    query: Query<ListQuery>,
) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    let letters = app.letters(&bearer, &name)?;
    let ListQuery { cursor, limit } = query.0;
    let cursor: Option<MessageId> = cursor.map(|cursor| dto::parse("cursor", &cursor)).transpose()?;
    let limit = dto::check_limit(limit, PAGE_DEFAULT, limits::BATCH_MAX)?;
    let mut page = app.mailbox.browse(&letters, Filter::default(), cursor, limit, call.deadline).await?;
    // Several topics may share one place for their dead letters.
    let is_of_topic = |dead: &svc_mailbox::DeadInfo| letters == name || dead.source == name;
    page.messages.retain(|seen| seen.dead.as_ref().is_none_or(is_of_topic));
    Ok(Json(PageAnswer::from(&page)).into_response())
}

async fn reprocess(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>, body: JsonText) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    let from = app.letters(&bearer, &name)?;
    let request: ReprocessRequest = body.parse_or_default()?;
    let is_dry_run = request.dry_run;
    let order = request.order(from)?;
    if let Some(to) = &order.to {
        app.allow(&bearer, SEND, to.as_str())?;
    }
    if is_dry_run {
        let would_move = Some(app.mailbox.count_redrive(&order, call.deadline).await?);
        return Ok(Json(ReprocessAnswer { task: None, would_move }).into_response());
    }
    let view = app.mailbox.start_redrive(order)?;
    Ok(app.changed(StatusCode::OK, &ReprocessAnswer { task: Some(Task::from(&view)), would_move: None }))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn tasks(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    bearer.is_known(&app.authority)?;
    let mut views = app.mailbox.redrives();
    views.retain(|view| app.allow_admin(&bearer, view.from.as_str()).is_ok());
    Ok(Json(TasksAnswer { tasks: views.iter().map(Task::from).collect() }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn task(app: Arc<App>, bearer: Bearer, id: Path<String>) -> HandlerResult {
    let view = app.task(&bearer, &id.0)?;
    Ok(Json(TaskAnswer { task: Task::from(&view) }).into_response())
}

impl App {
    /// The topic that holds the dead letters of this one. Where that is any topic, the bearer must look after it, too.
    fn letters(&self, bearer: &Bearer, name: &TopicName) -> Result<TopicName, Error> {
        let view = self.mailbox.topic(name)?;
        if view.dead_letters_of.is_some() {
            return Ok(name.clone());
        }
        let Some(target) = &view.settings.dlq else { return Ok(name.dead_letters()) };
        let target: TopicName = target.parse()?;
        self.allow_admin(bearer, target.as_str())?;
        Ok(target)
    }

    fn task(&self, bearer: &Bearer, id: &str) -> Result<RedriveView, Error> {
        bearer.is_known(&self.authority)?;
        let id = id.parse().map_err(|_| Error::schema("id: not the number of a task"))?;
        let view = self.mailbox.redrive(id)?;
        self.allow_admin(bearer, view.from.as_str())?;
        Ok(view)
    }

    fn control(&self, bearer: &Bearer, id: &str, control: RedriveControl) -> HandlerResult {
        let view = self.task(bearer, id)?;
        let view = self.mailbox.control_redrive(view.id, control)?;
        Ok(Json(TaskAnswer { task: Task::from(&view) }).into_response())
    }
}

impl ReprocessRequest {
    fn order(self, from: TopicName) -> Result<RedriveOrder, Error> {
        if let Some(rate) = self.rate_per_second {
            dto::check_range("rate_per_second", rate.into(), 1..=u32::MAX.into())?;
        }
        if let Some(limit) = self.limit {
            dto::check_range("limit", limit, 1..=u64::MAX)?;
        }
        Ok(RedriveOrder {
            from,
            to: self.to.map(|to| to.0),
            filter: self.filter.into(),
            rate_per_second: self.rate_per_second,
            limit: self.limit,
        })
    }
}

impl<'a> From<&'a RedriveView> for Task<'a> {
    fn from(view: &'a RedriveView) -> Self {
        Task {
            id: view.id,
            from: view.from.as_str(),
            to: view.to.as_ref().map(TopicName::as_str),
            state: view.state,
            moved: view.moved,
            looked_at: view.looked_at,
            to_look_at: view.to_look_at,
            failed: view.failed,
            last_error: view.last_error.as_deref(),
            rate_per_second: view.rate_per_second,
            ordered_ts: view.ordered_ms,
            eta_ts: view.eta_ms,
        }
    }
}
