//! The SQS surface of the mailbox: two protocols, one typed core, queues that are topics.

mod attributes;
mod caller;
mod digest;
mod error;
mod json;
pub(crate) mod key_routes;
mod keys;
mod message;
mod model;
mod moves;
mod names;
mod options;
mod protocol;
mod query;
mod queues;
mod receive;
mod send;
mod settle;
mod sigv4;
mod state;
mod tags;
mod xml;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use ron_auth::{Authority, Subject};
use ron_types::{Error, Kind};
use serde::de::DeserializeOwned;
use svc_mailbox::Mailbox;

use crate::body;
use crate::call::Call;
use crate::problem::Problem;
use crate::route::{ApiBuilder, ErrorFormat, RouteSpec, Verb};
pub(crate) use attributes::{lost_target, reattach};
use caller::Caller;
pub(crate) use error::SqsError;
use model::ActionOutput;
pub(crate) use protocol::{Protocol, REQUEST_ID_HEADER};
use query::{Form, FromForm};

pub use keys::{AccessKey, Keyring};
pub use options::SqsOptions;

/// What every action has at hand.
struct App {
    mailbox: Mailbox,
    authority: Authority,
    keyring: Keyring,
    options: SqsOptions,
    state: state::State,
    /// Who asks where signatures are off.
    anyone: Arc<Subject>,
}

/// Long polls wait for twenty seconds and then still have an answer to write.
const DEADLINE: Duration = Duration::from_secs(30);
/// Most requests here only wait for messages.
const CONCURRENCY: usize = 8192;

const fn route(pattern: &'static str, method: Verb, does: &'static str) -> RouteSpec {
    RouteSpec { pattern, method, deadline: Some(DEADLINE), concurrency: Some(CONCURRENCY), does }
}

/// The same requests are taken everywhere; on the address of a queue they need not name it.
static ROUTES: [RouteSpec; 6] = [
    route("/", Verb::Post, "takes an action of SQS, in JSON or as a form"),
    route("/", Verb::Get, "takes an action of SQS in the query"),
    route("/{account}/{queue}", Verb::Post, "takes an action of SQS on this queue, in JSON or as a form"),
    route("/{account}/{queue}", Verb::Get, "takes an action of SQS on this queue in the query"),
    route("/{account}/{queue}/", Verb::Post, "the same, as some clients write it"),
    route("/{account}/{queue}/", Verb::Get, "the same, as some clients write it"),
];

/// Adds the routes that speak SQS.
pub fn sqs_routes(
    builder: ApiBuilder,
    mailbox: Mailbox,
    authority: Authority,
    keyring: Keyring,
    options: SqsOptions,
) -> ApiBuilder {
    keyring.renew(&authority);
    let anyone = Arc::new(caller::anyone());
    let app = Arc::new(App { mailbox, authority, keyring, options, state: state::State::default(), anyone });
    ROUTES.iter().fold(builder, |builder, spec| {
        let app = Arc::clone(&app);
        builder.route_in(ErrorFormat::Sqs, spec, move |call, request| handle(app, call, request))
    })
}

/// Whether a path may be one of SQS: the root, or a queue below an account, whose name is made of digits. All others
/// belong to the native surface, though they may look alike.
pub(crate) fn is_sqs_path(path: &str) -> bool {
    path == "/" || queue_path(path).is_some()
}

/// The path of a queue without a slash at its end.
fn queue_path(path: &str) -> Option<&str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (account, queue) = path.strip_prefix('/')?.split_once('/')?;
    let is_account = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit());
    (is_account && !queue.is_empty() && !queue.contains('/')).then_some(path)
}

async fn handle(app: Arc<App>, call: Call, request: Request) -> Result<Response, Problem> {
    if !is_sqs_path(request.uri().path()) {
        return Err(Error::new(Kind::NotFound, "no route has this path").into());
    }
    let protocol = Protocol::of(request.headers());
    let corr_id = call.corr_id;
    let (parts, reading) = body::begin(request, &call)?;
    let body = reading.whole().await?;
    Ok(match perform(&app, protocol, call, &parts, &body).await {
        Ok((action, answer)) => protocol.answer(action.name(), &answer, &corr_id),
        Err(error) => protocol.refusal(&error, &corr_id, false),
    })
}

/// Finds out what is asked before who asks: the names of the actions are no secret.
async fn perform(
    app: &App,
    protocol: Protocol,
    call: Call,
    parts: &Parts,
    body: &Bytes,
) -> Result<(Action, ActionOutput), SqsError> {
    let (action, mut form) = match protocol {
        Protocol::Json => (json::action_of(&parts.headers)?, None),
        Protocol::Query => {
            let form = Form::read(parts.uri.query(), body)?;
            (form.action()?, Some(form))
        }
    };
    let caller = Caller::verify(app, call, parts, body)?;
    let queue_url = queue_path(parts.uri.path()).map(|path| format!("{}{path}", caller.base_url));
    if let (Some(form), Some(url)) = (&mut form, &queue_url) {
        form.default_queue_url(url);
    }
    let source = match &form {
        Some(form) => Source::Form(form),
        None => Source::Json { body, queue_url: queue_url.as_deref() },
    };
    let answer = action.perform(app, &caller, source).await?;
    Ok((action, answer))
}

/// A request not yet read.
#[derive(Clone, Copy)]
enum Source<'a> {
    Json {
        body: &'a [u8],
        /// The queue of the path.
        queue_url: Option<&'a str>,
    },
    Form(&'a Form),
}

impl Source<'_> {
    fn decode<T: DeserializeOwned + FromForm>(self) -> Result<T, SqsError> {
        match self {
            Source::Json { body, queue_url } => json::decode(body, queue_url),
            Source::Form(form) => query::decode(form),
        }
    }
}

/// Every action, the function that does it and nothing else: what a request contains follows from the function.
macro_rules! actions {
    ($($action:ident => $module:ident::$function:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Action { $($action),* }

        impl Action {
            #[cfg(test)]
            const ALL: &[Action] = &[$(Action::$action),*];

            fn parse(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($action) => Some(Action::$action),)*
                    _ => None,
                }
            }

            fn name(self) -> &'static str {
                match self { $(Action::$action => stringify!($action)),* }
            }

            async fn perform(self, app: &App, caller: &Caller, source: Source<'_>) -> Result<ActionOutput, SqsError> {
                match self {
                    $(Action::$action => $module::$function(app, caller, source.decode()?).await,)*
                }
            }
        }
    };
}

actions! {
    AddPermission => tags::add_permission,
    CancelMessageMoveTask => moves::cancel_message_move_task,
    ChangeMessageVisibility => settle::change_message_visibility,
    ChangeMessageVisibilityBatch => settle::change_message_visibility_batch,
    CreateQueue => queues::create_queue,
    DeleteMessage => settle::delete_message,
    DeleteMessageBatch => settle::delete_message_batch,
    DeleteQueue => queues::delete_queue,
    GetQueueAttributes => queues::get_queue_attributes,
    GetQueueUrl => queues::get_queue_url,
    ListDeadLetterSourceQueues => queues::list_dead_letter_source_queues,
    ListMessageMoveTasks => moves::list_message_move_tasks,
    ListQueueTags => tags::list_queue_tags,
    ListQueues => queues::list_queues,
    PurgeQueue => queues::purge_queue,
    ReceiveMessage => receive::receive_message,
    RemovePermission => tags::remove_permission,
    SendMessage => send::send_message,
    SendMessageBatch => send::send_message_batch,
    SetQueueAttributes => queues::set_queue_attributes,
    StartMessageMoveTask => moves::start_message_move_task,
    TagQueue => tags::tag_queue,
    UntagQueue => tags::untag_queue,
}

#[cfg(test)]
mod tests;
