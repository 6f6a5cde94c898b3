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
use super::messages::{PAGE_DEFAULT, PAGES_AT_ONCE_MAX, PageAnswer};
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

static LIST: Operation = list_at("/v1/dlq/{topic}", "lists the dead letters of a topic; `tasks` is another operation");
static LIST_OF_ANY: Operation =
    list_at("/v1/topics/{topic}/dlq", "lists the dead letters of a topic, whatever its name");

static REPROCESS: Operation =
    reprocess_at("/v1/dlq/{topic}/reprocess", "sends dead letters back, or counts which it would");
static REPROCESS_ANY: Operation =
    reprocess_at("/v1/topics/{topic}/dlq/reprocess", "sends dead letters of a topic of any name back");

static TASKS: Operation =
    Operation::get("/v1/dlq/tasks", "dead letters", "lists the tasks whose topics the token covers")
        .allows(ADMIN)
        .query::<TasksQuery>()
        .answers::<TasksAnswer<'static>>();

static TASK: Operation = Operation::get("/v1/dlq/tasks/{id}", "dead letters", "shows how far a task is")
    .allows(ADMIN)
    .answers::<TaskAnswer<'static>>()
    .errors(&[Kind::NotFound]);

static PAUSE: Operation = control("/v1/dlq/tasks/{id}/pause", "holds a task");
static RESUME: Operation = control("/v1/dlq/tasks/{id}/resume", "lets a held task go on");
static CANCEL: Operation = control("/v1/dlq/tasks/{id}/cancel", "ends a task; what it moved stays moved");

const fn list_at(pattern: &'static str, does: &'static str) -> Operation {
    Operation::get(pattern, "dead letters", does)
        .concurrency(PAGES_AT_ONCE_MAX)
        .allows(ADMIN)
        .query::<ListQuery>()
        .answers::<PageAnswer<'static>>()
        .errors(&[Kind::NotFound])
}

const fn reprocess_at(pattern: &'static str, does: &'static str) -> Operation {
    Operation::post(pattern, "dead letters", does)
        .allows(ADMIN)
        .body::<ReprocessRequest>(
            r#"{"filter":{"reason":"max_attempts"},"rate_per_second":100,"limit":1000,"dry_run":true}"#,
        )
        .optional_body()
        .answers::<ReprocessAnswer<'static>>()
        .marked()
        .errors(&[Kind::NotFound, Kind::Conflict])
}

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
    /// Maximum dead letters in one page. A page also ends after about 4 MiB; the next goes on there.
    #[schema(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u64>,
}

/// Which page of the tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TasksQuery {
    /// Where to go on: `next` of the page before.
    cursor: Option<u64>,
    /// Maximum tasks in one page.
    #[schema(minimum = 1, maximum = 100, default = 100)]
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

/// A page of tasks, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TasksAnswer<'a> {
    tasks: Vec<Task<'a>>,
    /// Where to go on, if there is more. A page may be empty and still have a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
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

pub(super) const OPERATIONS: &[&Operation] =
    &[&LIST, &REPROCESS, &LIST_OF_ANY, &REPROCESS_ANY, &TASKS, &TASK, &PAUSE, &RESUME, &CANCEL];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    let controls = [(&PAUSE, MoveControl::Pause), (&RESUME, MoveControl::Resume), (&CANCEL, MoveControl::Cancel)];
    let routes = routes
        .add(&LIST, with!(app, list(call, bearer, topic, query)))
        .add(&REPROCESS, with!(app, reprocess(call, bearer, topic, body)))
        .add(&LIST_OF_ANY, with!(app, list(call, bearer, topic, query)))
        .add(&REPROCESS_ANY, with!(app, reprocess(call, bearer, topic, body)))
        .add(&TASKS, with!(app, tasks(bearer, query)))
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
    let Letters { topic, origin } = app.letters(&bearer, name)?;
    let ListQuery { cursor, limit } = query.0;
    let cursor: Option<MessageId> = cursor.map(|cursor| dto::parse("cursor", &cursor)).transpose()?;
    let limit = dto::check_limit(limit, PAGE_DEFAULT, limits::BATCH_MAX)?;
    let page = match origin {
        Some(origin) => app.mailbox.browse_letters_of(&topic, &[origin], cursor, limit, call.deadline).await?,
        None => app.mailbox.browse(&topic, Filter::default(), cursor, limit, call.deadline).await?,
    };
    Ok(Json(PageAnswer::from(&page)).into_response())
}

async fn reprocess(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>, body: JsonText) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    let letters = app.letters(&bearer, name)?;
    let request: ReprocessRequest = body.parse_or_default()?;
    let is_dry_run = request.dry_run;
    let order = request.order(&app, &bearer, letters)?;
    let order = MoveOrder { ordered_by: bearer.subject().map(|subject| (*subject).to_owned()), ..order };
    if is_dry_run {
        let would_move = Some(app.mailbox.count_move(&order, call.deadline).await?);
        return Ok(Json(ReprocessAnswer { task: None, would_move }).into_response());
    }
    let view = app.mailbox.start_move(order, call.deadline).await?;
    let task = Some(Task::new(&view, app.mailbox.now()));
    Ok(app.changed(StatusCode::OK, &ReprocessAnswer { task, would_move: None }))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn tasks(app: Arc<App>, bearer: Bearer, query: Query<TasksQuery>) -> HandlerResult {
    bearer.is_known(&app.authority)?;
    let TasksQuery { cursor, limit } = query.0;
    let limit = dto::check_limit(limit, limits::BATCH_MAX, limits::BATCH_MAX)?;
    let (views, next) = app.mailbox.page_of_moves(cursor, limit, |from| app.allow_task_of(&bearer, from).is_ok());
    let now = app.mailbox.now();
    Ok(Json(TasksAnswer { tasks: views.iter().map(|view| Task::new(view, now)).collect(), next }).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn task(app: Arc<App>, bearer: Bearer, id: Path<String>) -> HandlerResult {
    let view = app.task(&bearer, &id.0)?;
    Ok(Json(TaskAnswer { task: Task::new(&view, app.mailbox.now()) }).into_response())
}

/// The topic that dead letters are in.
struct Letters {
    topic: TopicName,
    /// The topic whose letters are meant, because others may have theirs there; none where all that is there is meant.
    origin: Option<TopicName>,
}

impl App {
    /// Where the dead letters of a topic are. Where that is any topic, the bearer must look after it, too.
    fn letters(&self, bearer: &Bearer, name: TopicName) -> Result<Letters, Error> {
        let view = self.mailbox.topic(&name)?;
        if view.dead_letters_of.is_some() {
            return Ok(Letters { topic: name, origin: None });
        }
        let gone = || Error::new(Kind::NotFound, format!("the topic named for the dead letters of {name} is gone"));
        let topic = view.dead_letters.ok_or_else(gone)?;
        if view.settings.dlq.is_some() {
            self.allow_admin(bearer, topic.as_str())?;
        }
        Ok(Letters { topic, origin: Some(name) })
    }

    /// Whoever looks after a topic looks after the moves out of its own dead letters as well.
    fn allow_task_of(&self, bearer: &Bearer, from: &TopicName) -> Result<(), Error> {
        let owner = self.mailbox.topic(from).ok().and_then(|view| view.dead_letters_of);
        match owner.map(|owner| self.allow_admin(bearer, owner.as_str())) {
            Some(Ok(())) => Ok(()),
            _ => self.allow_admin(bearer, from.as_str()),
        }
    }

    fn task(&self, bearer: &Bearer, id: &str) -> Result<MoveView, Error> {
        bearer.is_known(&self.authority)?;
        let id = id.parse().map_err(|_| Error::schema("id: not the number of a task"))?;
        let view = self.mailbox.find_move(id)?;
        self.allow_task_of(bearer, &view.from)?;
        Ok(view)
    }

    async fn control(&self, call: &Call, bearer: &Bearer, id: &str, control: MoveControl) -> HandlerResult {
        let view = self.task(bearer, id)?;
        let view = self.mailbox.control_move(&view.from, view.task.id, control, call.deadline).await?;
        Ok(Json(TaskAnswer { task: Task::new(&view, self.mailbox.now()) }).into_response())
    }
}

impl ReprocessRequest {
    /// The order, if the bearer may send where the letters would go. Those of the topic that was asked for go back to
    /// it, and its admin may do that.
    fn order(self, app: &App, bearer: &Bearer, letters: Letters) -> Result<MoveOrder, Error> {
        let may_send = |topic: &str| app.allow(bearer, SEND, topic).map(drop);
        let origins = match (&self.to, letters.origin) {
            (Some(to), origin) => {
                may_send(to.0.as_str())?;
                origin.map(|origin| vec![origin])
            }
            (None, Some(origin)) => Some(vec![origin]),
            (None, None) => app.mailbox.origins_for(&letters.topic, may_send)?,
        };
        Ok(MoveOrder {
            to: self.to.map(|to| to.0),
            origins,
            filter: self.filter.into(),
            rate_per_second: self.rate_per_second,
            limit: self.limit,
            ..MoveOrder::all_of(letters.topic)
        })
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
