//! Dead letters: listed, and sent back on their way by tasks that can be watched and held.

use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::{ADMIN, SEND};
use svc_mailbox::types::{MessageId, TopicName};
use svc_mailbox::{Filter, MoveControl, MoveOrder, MoveState, MoveView};
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
    /// Maximum dead letters in one page.
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
    state: &'static str,
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
    let controls = [(&PAUSE, MoveControl::Pause), (&RESUME, MoveControl::Resume), (&CANCEL, MoveControl::Cancel)];
    let routes = routes
        .add(&LIST, with!(app, list(call, bearer, topic, query)))
        .add(&REPROCESS, with!(app, reprocess(call, bearer, topic, body)))
        .add(&TASKS, with!(app, tasks(bearer)))
        .add(&TASK, with!(app, task(bearer, id)));
    controls.into_iter().fold(routes, |routes, (operation, control)| {
        let app = Arc::clone(&app);
        let handler = move |call: Call, bearer: Bearer, id: Path<String>| {
            let app = Arc::clone(&app);
            async move { app.control(&call, &bearer, &id.0, control).await }
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
    let order = request.order(from);
    if let Some(to) = &order.to {
        app.allow(&bearer, SEND, to.as_str())?;
    }
    if is_dry_run {
        let would_move = Some(app.mailbox.count_move(&order, call.deadline).await?);
        return Ok(Json(ReprocessAnswer { task: None, would_move }).into_response());
    }
    let view = app.mailbox.start_move(order, call.deadline).await?;
    let task = Some(Task::new(&view, app.mailbox.now()));
    Ok(app.changed(StatusCode::OK, &ReprocessAnswer { task, would_move: None }))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn tasks(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    bearer.is_known(&app.authority)?;
    let mut views = app.mailbox.all_moves();
    views.retain(|view| app.allow_admin(&bearer, view.from.as_str()).is_ok());
    let now = app.mailbox.now();
    Ok(Json(TasksAnswer { tasks: views.iter().map(|view| Task::new(view, now)).collect() }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn task(app: Arc<App>, bearer: Bearer, id: Path<String>) -> HandlerResult {
    let view = app.task(&bearer, &id.0)?;
    Ok(Json(TaskAnswer { task: Task::new(&view, app.mailbox.now()) }).into_response())
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

    fn task(&self, bearer: &Bearer, id: &str) -> Result<MoveView, Error> {
        bearer.is_known(&self.authority)?;
        let id = id.parse().map_err(|_| Error::schema("id: not the number of a task"))?;
        let view = self.mailbox.find_move(id)?;
        self.allow_admin(bearer, view.from.as_str())?;
        Ok(view)
    }

    async fn control(&self, call: &Call, bearer: &Bearer, id: &str, control: MoveControl) -> HandlerResult {
        let view = self.task(bearer, id)?;
        let view = self.mailbox.control_move(&view.from, view.task.id, control, call.deadline).await?;
        Ok(Json(TaskAnswer { task: Task::new(&view, self.mailbox.now()) }).into_response())
    }
}

impl ReprocessRequest {
    fn order(self, from: TopicName) -> MoveOrder {
        MoveOrder {
            to: self.to.map(|to| to.0),
            filter: self.filter.into(),
            rate_per_second: self.rate_per_second,
            limit: self.limit,
            ..MoveOrder::all_of(from)
        }
    }
}

impl<'a> Task<'a> {
    fn new(view: &'a MoveView, now_ms: u64) -> Self {
        let task = &view.task;
        Task {
            id: task.id,
            from: view.from.as_str(),
            to: task.to.as_ref().map(TopicName::as_str),
            state: state_word(task.state),
            moved: task.moved,
            looked_at: task.looked_at,
            to_look_at: Some(task.to_move).filter(|_| task.started_ms > 0),
            failed: task.failed,
            last_error: task.last_error.as_deref(),
            rate_per_second: task.rate_per_second,
            // Moves of older logs were begun when they were ordered.
            ordered_ts: if task.ordered_ms > 0 { task.ordered_ms } else { task.started_ms },
            eta_ts: view.eta_ms(now_ms),
        }
    }
}

/// A task that is being canceled moves nothing more, so it is shown as canceled.
const fn state_word(state: MoveState) -> &'static str {
    match state {
        MoveState::Waiting => "waiting",
        MoveState::Running => "running",
        MoveState::Paused => "paused",
        MoveState::Completed => "done",
        MoveState::Canceling | MoveState::Canceled => "canceled",
        MoveState::Failed => "failed",
    }
}
