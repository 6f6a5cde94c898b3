//! The native HTTP surface of the mailbox: routes that read, authorize, ask the handle and answer.

mod clock;
mod dlq;
mod dto;
mod events;
mod fields;
mod frames;
mod headers;
mod messages;
mod metered;
mod recv;
mod scrub;
mod send;
mod settle;
mod stream;
mod topics;

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use ron_auth::{Action, Authority, Subject};
use ron_kernel::KernelHandle;
use ron_types::Error;
use serde::Serialize;
use svc_mailbox::Mailbox;
use svc_mailbox::capabilities::ADMIN;

use crate::auth::Bearer;
use crate::extract::Json;
use crate::operation::Operation;
use crate::route::ApiBuilder;
use crate::surface::{Surface, joined, operation_count};
pub(crate) use dto::written_bytes;
pub(crate) use fields::Base64;
pub use frames::mailbox_frames;
use headers::Minimum;
pub(crate) use metered::Metered;
use stream::Streams;

/// The native surface of the mailbox.
pub static SURFACE: Surface = Surface {
    service: "mailbox",
    about: "A durable at-least-once queue with leases, idempotency keys, groups and dead letters. Every answer to a \
        change says how durable it is.",
    tags: &["messages", "leases", "topics", "dead letters", "operations"],
    operations: &OPERATIONS,
};

static OPERATIONS: [&Operation; operation_count(GROUPS)] = joined(GROUPS);

const GROUPS: &[&[&Operation]] = &[
    send::OPERATIONS,
    recv::OPERATIONS,
    stream::OPERATIONS,
    settle::OPERATIONS,
    topics::OPERATIONS,
    messages::OPERATIONS,
    dlq::OPERATIONS,
    events::OPERATIONS,
    scrub::OPERATIONS,
    clock::OPERATIONS,
];

/// Parts of the node that the handlers of this surface use.
struct App {
    mailbox: Mailbox,
    authority: Authority,
    kernel: KernelHandle,
    metered: Metered,
    streams: Arc<Streams>,
}

const DURABILITY_HEADER: HeaderName = HeaderName::from_static("x-durability");

/// Reads bytes as every body and payload that a node with a mailbox takes, as the fuzz target does; whatever they are,
/// it returns. The result is whether they are any.
#[doc(hidden)]
pub fn read_any_mailbox_body(bytes: &[u8]) -> bool {
    fn read<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> bool {
        serde_json::from_slice::<T>(bytes).is_ok()
    }
    let bodies = [
        read::<send::SendRequest>(bytes),
        read::<send::BatchRequest>(bytes),
        read::<recv::RecvRequest>(bytes),
        read::<stream::StreamRequest>(bytes),
        read::<stream::CreditRequest>(bytes),
        read::<settle::AckRequest<'_>>(bytes),
        read::<settle::NackRequest<'_>>(bytes),
        read::<settle::ExtendRequest<'_>>(bytes),
        read::<topics::Settings>(bytes),
        read::<messages::BrowseRequest>(bytes),
        read::<messages::ChangeRequest>(bytes),
        read::<dlq::ReprocessRequest>(bytes),
        read::<crate::tokens::MintRequest>(bytes),
        read::<crate::sqs::KeyRequest>(bytes),
        frames::read_any(bytes),
    ];
    bodies.contains(&true)
}

/// Adds the routes of the native surface.
pub fn mailbox_routes(builder: ApiBuilder, mailbox: Mailbox, authority: Authority) -> ApiBuilder {
    let kernel = builder.kernel().clone();
    let builder = builder.surface(&SURFACE).authority(&authority);
    let metered = Metered::new(kernel.meter());
    let app = Arc::new(App { mailbox, authority, kernel, metered, streams: Arc::default() });
    let subjects: [fn(Routes) -> Routes; GROUPS.len()] = [
        send::routes,
        recv::routes,
        stream::routes,
        settle::routes,
        topics::routes,
        messages::routes,
        dlq::routes,
        events::routes,
        scrub::routes,
        clock::routes,
    ];
    let routes = Routes { builder, app };
    subjects.into_iter().fold(routes, |routes, add| add(routes)).builder
}

/// Collects routes that share one `App`.
type Routes = crate::surface::Routes<App>;

impl App {
    fn allow(&self, bearer: &Bearer, action: Action, topic: &str) -> Result<Arc<Subject>, Error> {
        bearer.allow(&self.authority, action, topic)
    }

    /// The bearer may look after this topic.
    fn allow_admin(&self, bearer: &Bearer, topic: &str) -> Result<(), Error> {
        self.allow(bearer, ADMIN, topic).map(drop)
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

#[cfg(test)]
mod tests;
