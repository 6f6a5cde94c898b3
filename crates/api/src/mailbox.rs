//! The native HTTP surface of the mailbox: routes that read, authorize, ask the handle and answer.

mod dlq;
mod dto;
mod events;
mod fields;
mod headers;
mod messages;
pub(crate) mod openapi;
mod recv;
mod scrub;
mod send;
mod settle;
mod stream;
pub(crate) mod tokens;
mod topics;

use std::sync::Arc;

use axum::handler::Handler;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use ron_auth::{Authority, Op, Subject};
use ron_kernel::KernelHandle;
use ron_types::{Error, Kind};
use serde::Serialize;
use svc_mailbox::Mailbox;

use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::Json;
use crate::problem::Problem;
use crate::route::ApiBuilder;
use crate::sqs::{Keyring, key_routes};
use events::EventStreams;
use headers::Minimum;
use openapi::Operation;
use stream::Streams;

/// What every handler of the surface has at hand.
pub(crate) struct App {
    mailbox: Mailbox,
    pub(crate) authority: Authority,
    /// The access keys of the SQS surface, which are made and revoked on this one.
    pub(crate) keyring: Keyring,
    kernel: KernelHandle,
    streams: Arc<Streams>,
    event_streams: Arc<EventStreams>,
}

/// Every handler answers with one of these.
pub(crate) type HandlerResult = Result<Response, Problem>;

const DURABILITY_HEADER: HeaderName = HeaderName::from_static("x-durability");

/// Reads bytes as the body of every route of this surface, as the fuzz target does; whatever they are, it returns.
#[doc(hidden)]
pub fn read_any_mailbox_body(bytes: &[u8]) {
    fn read<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) {
        drop(serde_json::from_slice::<T>(bytes));
    }
    read::<send::SendRequest>(bytes);
    read::<send::BatchRequest>(bytes);
    read::<recv::RecvRequest>(bytes);
    read::<stream::StreamRequest>(bytes);
    read::<stream::CreditRequest>(bytes);
    read::<settle::AckRequest<'_>>(bytes);
    read::<settle::NackRequest<'_>>(bytes);
    read::<settle::ExtendRequest<'_>>(bytes);
    read::<topics::Settings>(bytes);
    read::<messages::BrowseRequest>(bytes);
    read::<messages::ChangeRequest>(bytes);
    read::<dlq::ReprocessRequest>(bytes);
    read::<tokens::MintRequest>(bytes);
    read::<key_routes::KeyRequest>(bytes);
}

/// Adds the native routes of the mailbox and of the access keys, with their description and its page.
pub fn mailbox_routes(builder: ApiBuilder, mailbox: Mailbox, authority: Authority, keyring: Keyring) -> ApiBuilder {
    let kernel = builder.kernel().clone();
    let (streams, event_streams) = Default::default();
    let app = Arc::new(App { mailbox, authority, keyring, kernel, streams, event_streams });
    collected(Routes { builder, app, operations: Vec::new() }).builder
}

fn collected(routes: Routes) -> Routes {
    let subjects: [fn(Routes) -> Routes; 12] = [
        send::routes,
        recv::routes,
        stream::routes,
        settle::routes,
        topics::routes,
        messages::routes,
        dlq::routes,
        events::routes,
        scrub::routes,
        tokens::routes,
        key_routes::routes,
        // The last one describes all that were before it.
        openapi::routes,
    ];
    subjects.into_iter().fold(routes, |routes, add| add(routes))
}

/// Routes being collected: each is served and described from one declaration.
pub(crate) struct Routes {
    builder: ApiBuilder,
    pub(crate) app: Arc<App>,
    operations: Vec<&'static Operation>,
}

impl Routes {
    pub(crate) fn add<H, T>(mut self, operation: &'static Operation, handler: H) -> Self
    where
        H: Handler<T, Call>,
        T: 'static,
    {
        self.builder = self.builder.route(&operation.spec, handler);
        self.operations.push(operation);
        self
    }
}

/// A handler with the application as its first argument: `with!(app, function(argument, …))`.
macro_rules! with {
    ($app:expr, $function:ident($($argument:ident),*)) => {{
        let app = std::sync::Arc::clone(&$app);
        move |$($argument),*| $function(app, $($argument),*)
    }};
}
pub(crate) use with;

impl App {
    fn allow(&self, bearer: &Bearer, op: Op, topic: &str) -> Result<Arc<Subject>, Error> {
        bearer.allow(&self.authority, op, topic)
    }

    /// The bearer may look after this topic.
    fn allow_admin(&self, bearer: &Bearer, topic: &str) -> Result<(), Error> {
        self.allow(bearer, Op::Admin, topic).map(drop)
    }

    /// The bearer is the operator of the node.
    pub(crate) fn allow_operator(&self, bearer: &Bearer) -> Result<(), Error> {
        match self.allow(bearer, Op::Admin, "")?.is_operator {
            true => Ok(()),
            false => Err(Error::new(Kind::Forbidden, "only the operator of the node may do this")),
        }
    }

    fn require(&self, minimum: Minimum) -> Result<(), Error> {
        minimum.0.map_or(Ok(()), |minimum| self.mailbox.require(minimum))
    }

    /// The answer to something that was changed, with how safely it was.
    fn changed(&self, status: StatusCode, answer: &impl Serialize) -> Response {
        let mut response = Json(answer).into_response();
        if response.status().is_success() {
            *response.status_mut() = status;
        }
        self.mark(response)
    }

    /// The answer to something that was changed and leaves nothing to say.
    fn done(&self) -> Response {
        self.mark(StatusCode::NO_CONTENT.into_response())
    }

    fn mark(&self, mut response: Response) -> Response {
        let durability = HeaderValue::from_static(self.mailbox.durability().as_str());
        response.headers_mut().insert(DURABILITY_HEADER, durability);
        response
    }
}
