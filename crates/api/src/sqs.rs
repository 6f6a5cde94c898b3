//! The SQS surface of the mailbox: two protocols, one typed core, queues that are topics.

mod attributes;
mod caller;
mod config;
mod digest;
mod error;
mod error_format;
mod json;
mod key_routes;
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
use http::Method;
use http::request::Parts;
use ron_auth::{Authority, Subject};
use ron_types::Kind;
use serde::de::DeserializeOwned;
use svc_mailbox::Mailbox;

use crate::body::{self, WireBody};
use crate::call::Call;
use crate::mailbox::Metered;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::ApiBuilder;
use crate::surface::{Surface, joined, operation_count};
pub(crate) use attributes::{lost_target, reattach};
use caller::{Caller, SignerRecognizer};
use error::SqsError;
use error_format::SQS_ERRORS;
pub(crate) use key_routes::KeyRequest;
use model::ActionOutput;
use protocol::Protocol;
use query::{Form, FromForm};

pub use config::{AuthSection, SqsAuth, SqsSection};
pub use keys::{AccessKey, Keyring};
pub use options::{Regions, SqsOptions};

/// Parts of the node that the actions use.
struct App {
    mailbox: Mailbox,
    authority: Authority,
    keyring: Keyring,
    options: SqsOptions,
    state: state::State,
    metered: Metered,
    /// Subject of every request while signatures are off.
    anyone: Arc<Subject>,
}

/// Long polls wait for twenty seconds and then still have an answer to write.
const DEADLINE: Duration = Duration::from_secs(30);

/// Every path takes the same requests; on the path of a queue they need not name it.
static POST: Operation = post("/", "takes an action of SQS, in JSON or as a form");
static GET: Operation = get("/", "takes an action of SQS in the query");
static POST_QUEUE: Operation = post("/{account}/{queue}", "takes an action of SQS on this queue, in JSON or as a form");
static GET_QUEUE: Operation = get("/{account}/{queue}", "takes an action of SQS on this queue in the query");
static POST_QUEUE_SLASH: Operation = post("/{account}/{queue}/", "the same, as some clients write it");
static GET_QUEUE_SLASH: Operation = get("/{account}/{queue}/", "the same, as some clients write it");

const ACTIONS: &[&Operation] = &[&POST, &GET, &POST_QUEUE, &GET_QUEUE, &POST_QUEUE_SLASH, &GET_QUEUE_SLASH];

/// The SQS surface of the mailbox, with the access keys of its clients.
pub static SURFACE: Surface = Surface {
    service: "mailbox",
    about: "The same queues for every client of Amazon SQS: both of its protocols, signed with an access key of this \
        node. Requests and answers are those of the Amazon SQS API Reference.",
    tags: &["SQS", "access keys"],
    operations: &OPERATIONS,
};

const GROUPS: &[&[&Operation]] = &[ACTIONS, key_routes::OPERATIONS];

static OPERATIONS: [&Operation; operation_count(GROUPS)] = joined(GROUPS);

const fn post(pattern: &'static str, does: &'static str) -> Operation {
    action(Operation::post(pattern, "SQS", does), &[json::MEDIA_TYPE, query::MEDIA_TYPE])
}

const fn get(pattern: &'static str, does: &'static str) -> Operation {
    action(Operation::get(pattern, "SQS", does), &[])
}

const fn action(operation: Operation, requests: &'static [&'static str]) -> Operation {
    operation
        .deadline(DEADLINE)
        .needs("a signature (version 4) with an access key, or a token, that allows the action")
        .speaks(requests, &[json::MEDIA_TYPE, xml::MEDIA_TYPE])
        .error_formats(&SQS_ERRORS)
        .claims(is_sqs_path)
        .errors(&[Kind::Forbidden, Kind::NotFound, Kind::FrameTooLarge])
}

/// Adds the routes of the SQS surface.
pub fn sqs_routes(
    builder: ApiBuilder,
    mailbox: Mailbox,
    authority: Authority,
    keyring: Keyring,
    options: SqsOptions,
) -> ApiBuilder {
    keyring.renew(&authority);
    let anyone = Arc::new(caller::anyone());
    let builder = builder.surface(&SURFACE).authority(&authority);
    let builder = match &options.base_url {
        Some(url) => builder.reached_at(url),
        None => builder,
    };
    let metered = Metered::new(builder.kernel().meter());
    let state = state::State::default();
    let app = Arc::new(App { mailbox, authority, keyring, options, state, metered, anyone });
    let builder = ACTIONS.iter().fold(builder, |builder, operation| {
        let (recognizer, app) = (Arc::new(SignerRecognizer(Arc::clone(&app))), Arc::clone(&app));
        builder.operation_for(operation, recognizer, move |call, request| handle(app, call, request))
    });
    key_routes::routes(builder, &app)
}

/// Whether a path may be one of SQS: the root, or a queue below an account, whose name is made of digits. All others
/// belong to the native surface, though they may look alike.
fn is_sqs_path(path: &str) -> bool {
    path == "/" || queue_path(path).is_some()
}

/// The path of a queue without a slash at its end.
fn queue_path(path: &str) -> Option<&str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (account, queue) = path.strip_prefix('/')?.split_once('/')?;
    let is_account = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit());
    // Dots and doubled slashes vanish from the path that is signed, so none may be in one that means something.
    let is_queue = !matches!(queue, "" | "." | "..") && !queue.contains('/');
    (is_account && is_queue).then_some(path)
}

async fn handle(app: Arc<App>, call: Call, request: Request) -> Result<Response, Problem> {
    let protocol = Protocol::of(request.headers());
    let corr_id = call.corr_id;
    let (parts, reading) = body::begin(request, &call)?;
    if protocol == Protocol::Query && parts.method == Method::GET && !query::names_action(&parts) {
        return Ok(protocol::unknown_operation(&corr_id));
    }
    let wire = reading.wire().await?;
    Ok(match perform(&app, protocol, call, &parts, wire).await? {
        Ok((action, answer)) => protocol.answer(action.name(), &answer, &corr_id),
        Err(error) => protocol.refusal(&error, &corr_id, false),
    })
}

/// Verifies the caller by the bytes that came over the wire, and only then looks at what they say. The outer error is
/// of the plane, the inner one of SQS.
async fn perform(
    app: &App,
    protocol: Protocol,
    call: Call,
    parts: &Parts,
    wire: WireBody,
) -> Result<Result<(Action, ActionOutput), SqsError>, Problem> {
    // The names of the actions are no secret, and this one stands in a header.
    let named = match protocol {
        Protocol::Json => json::action_of(&parts.headers).map(Some),
        Protocol::Query => Ok(None),
    };
    let verified = named.and_then(|action| Ok((action, Caller::verify(app, call, parts, &wire.bytes)?)));
    let (action, caller) = match verified {
        Ok(verified) => verified,
        Err(error) => return Ok(Err(error)),
    };
    let body = wire.inflated().await?;
    Ok(obey(app, &caller, action, parts, &body).await)
}

/// Does what a verified caller asks for; the action of a form is read from it.
async fn obey(
    app: &App,
    caller: &Caller,
    action: Option<Action>,
    parts: &Parts,
    body: &Bytes,
) -> Result<(Action, ActionOutput), SqsError> {
    let (action, mut form) = match action {
        Some(action) => (action, None),
        None => {
            let form = Form::read(parts.uri.query(), body)?;
            (form.action()?, Some(form))
        }
    };
    let queue_url = queue_path(parts.uri.path()).map(|path| format!("{}{path}", caller.base_url));
    if let (Some(form), Some(url)) = (&mut form, &queue_url) {
        form.default_queue_url(url);
    }
    let source = match &form {
        Some(form) => Source::Form(form),
        None => Source::Json { body, queue_url: queue_url.as_deref() },
    };
    let answer = action.perform(app, caller, source).await?;
    Ok((action, answer))
}

/// A request in one of the two protocols, not yet decoded.
#[derive(Clone, Copy)]
enum Source<'a> {
    Json {
        body: &'a [u8],
        /// URL of the queue whose path was asked for; the default if the body names none.
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
