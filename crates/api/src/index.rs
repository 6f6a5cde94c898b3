//! The HTTP surface of the index: routes that read, authorize, ask the handle and answer.

mod admin;
mod batch;
mod caching;
mod closest;
mod cross_origin;
mod encoding;
mod filters;
mod ipns;
mod kept;
mod lines;
mod manifests;
mod names;
mod negotiation;
mod overview;
mod page;
mod providers;
mod resolve;
mod routing;
mod watch;
mod words;

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use http::StatusCode;
use http::request::Parts;
use ron_auth::{Action, Authority};
use ron_kernel::KernelHandle;
use ron_store::{ContentId, Subject};
use ron_types::{Error, Kind};
use svc_index::capabilities::{ADMIN, READ};
use svc_index::config::Access;
use svc_index::{Index, QuestionSlot};

use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::JsonText;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::{ApiBuilder, Peer};
use crate::surface::{HasAuthority, Surface, joined, operation_count};

/// The surface of the index.
pub static SURFACE: Surface = Surface {
    service: "index",
    about: "A name or a hash to the content it stands for and to those who have it, best first: from memory, from the \
        node's own store, or by a lookup among peers that does not wait for the slow ones. Every answer says how much \
        it is worth. `/routing/v1` is the Delegated Routing V1 API that IPFS clients speak.",
    tags: &["lookups", "names", "manifests", "routing", "upkeep"],
    operations: &OPERATIONS,
};

static OPERATIONS: [&Operation; operation_count(GROUPS)] = joined(GROUPS);

const GROUPS: &[&[&Operation]] = &[
    resolve::OPERATIONS,
    batch::OPERATIONS,
    providers::OPERATIONS,
    watch::OPERATIONS,
    names::OPERATIONS,
    manifests::OPERATIONS,
    routing::OPERATIONS,
    closest::OPERATIONS,
    ipns::OPERATIONS,
    admin::OPERATIONS,
    overview::OPERATIONS,
    kept::OPERATIONS,
    page::OPERATIONS,
];

/// Words for who may ask.
const READERS: &str = "nothing; `index:read` if `index.access` is token";
/// Resource of rights that concern the node and no id.
const WHOLE_NODE: &str = "*";
/// Whom questions without a token are counted for.
const ANYONE: &str = "anyone";

/// Parts of the node that the handlers of this surface use.
struct App {
    index: Index,
    authority: Authority,
    kernel: KernelHandle,
    /// [`ANYONE`], shared by all questions without a token.
    anyone: Arc<str>,
}

/// Adds the routes of the index.
pub fn index_routes(builder: ApiBuilder, index: Index, authority: Authority) -> ApiBuilder {
    let kernel = builder.kernel().clone();
    let builder = builder.surface(&SURFACE).authority(&authority).path_space(&cross_origin::ROUTING_PATHS);
    let app = Arc::new(App { index, authority, kernel, anyone: ANYONE.into() });
    let groups: [fn(Routes) -> Routes; GROUPS.len()] = [
        resolve::routes,
        batch::routes,
        providers::routes,
        watch::routes,
        names::routes,
        manifests::routes,
        routing::routes,
        closest::routes,
        ipns::routes,
        admin::routes,
        overview::routes,
        kept::routes,
        page::routes,
    ];
    groups.into_iter().fold(Routes { builder, app }, |routes, add| add(routes)).builder
}

/// Collects routes that share one `App`.
type Routes = crate::surface::Routes<App>;

impl HasAuthority for App {
    fn authority(&self) -> &Authority {
        &self.authority
    }
}

/// Somebody who asks, perhaps without a token.
struct Asker {
    call: Call,
    address: IpAddr,
}

impl FromRequestParts<Call> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, call: &Call) -> Result<Self, Problem> {
        Ok(Asker { call: call.clone(), address: Peer::of(parts).address })
    }
}

/// A question that was let in.
struct Admitted {
    /// Whom it is counted for.
    tenant: Arc<str>,
    /// Who could have asked when it was let in.
    access: Access,
    /// Share of the questions that its address may have under way; none for other requests.
    _slot: Option<QuestionSlot>,
}

impl App {
    /// Reads the JSON object of a body, which is no longer than the index takes: much of it may come from anybody.
    async fn read(&self, call: &Call, request: Request) -> Result<JsonText, Problem> {
        let text = JsonText::read_up_to(request, call, self.index.live().body_bytes_max).await?;
        // A list of values would be read as the fields in their order, without a name that could be wrong.
        if text.is_list() {
            return Err(Problem::schema(StatusCode::BAD_REQUEST, "a JSON object is expected, not a list"));
        }
        Ok(text)
    }

    /// Lets a question in: by its token where the node asks for one, and as far as its address has questions left. The
    /// resource is what the question is about in its one spelling, not as it was asked: a right to some content holds
    /// for all of its CIDs, on every route. It is written only where a token is compared with it.
    fn admit(&self, asker: &Asker, resource: &dyn Display) -> Result<Admitted, Error> {
        let access = self.index.access();
        let tenant = match (&asker.call.bearer, access) {
            (Some(bearer), Access::Token) => {
                Arc::clone(&bearer.allow(&self.authority, READ, &resource.to_string())?.name)
            }
            (Some(bearer), Access::Public) => bearer.subject().unwrap_or_else(|| Arc::clone(&self.anyone)),
            (None, Access::Public) => Arc::clone(&self.anyone),
            (None, Access::Token) => return Err(no_token()),
        };
        Ok(Admitted { tenant, access, _slot: Some(self.index.admit(asker.address)?) })
    }

    /// Whom a signed record is counted for: the record says itself who may publish it.
    fn publisher(&self, asker: &Asker) -> Result<Admitted, Error> {
        let subject = asker.call.bearer.as_ref().and_then(Bearer::subject);
        let tenant = subject.unwrap_or_else(|| Arc::clone(&self.anyone));
        Ok(Admitted { tenant, access: self.index.access(), _slot: Some(self.index.admit(asker.address)?) })
    }

    /// The bearer, who may do this in the node's name.
    fn allow(&self, asker: &Asker, action: Action, resource: &str) -> Result<Admitted, Error> {
        let bearer = asker.call.bearer.as_ref().ok_or_else(no_token)?;
        let subject = bearer.allow(&self.authority, action, resource)?;
        Ok(Admitted { tenant: Arc::clone(&subject.name), access: self.index.access(), _slot: None })
    }

    /// The bearer may look after the index.
    fn allow_admin(&self, bearer: &Bearer, resource: &str) -> Result<Arc<str>, Error> {
        bearer.allow(&self.authority, ADMIN, resource).map(|subject| Arc::clone(&subject.name))
    }
}

fn no_token() -> Error {
    Error::new(Kind::Unauthenticated, "Authorization: Bearer <token> is needed, once")
}

/// The id that a path or a body names.
fn subject_of(text: &str) -> Result<Subject, Problem> {
    text.parse().map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("id: {error}")))
}

/// The content that a path or a body names.
fn content_of(field: &str, text: &str) -> Result<ContentId, Problem> {
    text.parse().map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("{field}: {error}")))
}

/// Reads bytes as every body that a node with an index takes, as the fuzz target does; whatever they are, it returns.
/// The result is whether they are any body, or an id.
#[doc(hidden)]
pub fn read_any_index_body(bytes: &[u8]) -> bool {
    let bodies = [
        batch::read_any(bytes),
        providers::read_any(bytes),
        serde_json::from_slice::<names::NameRequest>(bytes).is_ok(),
        serde_json::from_slice::<admin::AdminBody>(bytes).is_ok(),
    ];
    let Ok(text) = std::str::from_utf8(bytes) else { return bodies.contains(&true) };
    let pairs = [("filter-addrs", text), ("filter-protocols", text)];
    // Almost any text is a filter, so that it says nothing about the bytes.
    drop(filters::Filters::read(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    content_of("id", text).is_ok() || bodies.contains(&true)
}
