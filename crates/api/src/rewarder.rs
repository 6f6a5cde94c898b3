//! The HTTP surface of the rewarder: routes that read, authorize, ask the handle and answer.

mod answers;
mod compute;
mod epochs;
mod events;
mod inputs;
mod ledger;
mod page;
mod raw_json;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::header;
use http::request::Parts;
use ron_auth::{Action, Authority, Subject};
use ron_types::{Error, Kind};
use svc_rewarder::config::PageAccess;
use svc_rewarder::store::EpochStatus;
use svc_rewarder::usage_meter::UsageMeter;
use svc_rewarder::{EpochId, Rewarder};

use crate::auth::Bearer;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::ApiBuilder;
use crate::surface::{HasAuthority, Surface, joined, operation_count};

/// The surface of the rewarder.
pub static SURFACE: Surface = Surface {
    service: "rewarder",
    about: "Exact, reproducible, provable payouts: usage and a signed policy become an epoch with a manifest, proofs and \
        explanations, and its payouts go to a ledger once each.",
    tags: &["epochs", "payees", "inputs", "usage", "ledger"],
    operations: &OPERATIONS,
};

static OPERATIONS: [&Operation; operation_count(GROUPS)] = joined(GROUPS);

const GROUPS: &[&[&Operation]] = &[
    compute::OPERATIONS,
    epochs::OPERATIONS,
    events::OPERATIONS,
    page::OPERATIONS,
    inputs::OPERATIONS,
    usage::OPERATIONS,
    ledger::OPERATIONS,
];

/// Time that reading a large run may take: it is divided again.
const READ_DEADLINE: Duration = Duration::from_secs(30);
/// Words for who may read what payees read.
const READERS: &str = "`rewarder:read`; for settled epochs nothing if `rewarder.page` is public";

/// Parts of the node that the handlers of this surface use.
struct App {
    rewarder: Rewarder,
    usage: UsageMeter,
    authority: Authority,
}

/// Adds the routes of the rewarder.
pub fn rewarder_routes(builder: ApiBuilder, rewarder: Rewarder, authority: Authority) -> ApiBuilder {
    let builder = builder.surface(&SURFACE).authority(&authority);
    let app = Arc::new(App { usage: rewarder.usage().clone(), rewarder, authority });
    let groups: [fn(Routes) -> Routes; GROUPS.len()] =
        [compute::routes, epochs::routes, events::routes, page::routes, inputs::routes, usage::routes, ledger::routes];
    groups.into_iter().fold(Routes { builder, app }, |routes, add| add(routes)).builder
}

/// Collects routes that share one `App`.
type Routes = crate::surface::Routes<App>;

impl HasAuthority for App {
    fn authority(&self) -> &Authority {
        &self.authority
    }
}

impl App {
    fn allow(&self, bearer: &Bearer, action: Action, resource: &str) -> Result<Arc<Subject>, Error> {
        bearer.allow(&self.authority, action, resource)
    }

    /// The caller may read this epoch: by its token, or because settled epochs are public here.
    fn allow_read(&self, bearer: &MaybeBearer, epoch: &EpochId) -> Result<(), Problem> {
        if let Some(bearer) = &bearer.0 {
            return Ok(self.allow(bearer, svc_rewarder::capabilities::READ, epoch.as_str()).map(drop)?);
        }
        let is_public = self.rewarder.live().page == PageAccess::Public;
        let is_settled = || self.rewarder.row(epoch).is_ok_and(|row| row.status == EpochStatus::Settled);
        if is_public && is_settled() {
            return Ok(());
        }
        Err(Error::new(Kind::Unauthenticated, "Authorization: Bearer <token> is needed, once").into())
    }
}

/// The token of a request that may have none.
struct MaybeBearer(Option<Bearer>);

impl<S: Sync> FromRequestParts<S> for MaybeBearer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        if !parts.headers.contains_key(header::AUTHORIZATION) {
            return Ok(MaybeBearer(None));
        }
        Bearer::of(&parts.headers).map(|bearer| MaybeBearer(Some(bearer)))
    }
}

/// The epoch that a path names.
fn epoch_of(text: &str) -> Result<EpochId, Problem> {
    text.parse::<EpochId>().map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Lines of one page of an answer.
fn page_limit(asked: Option<u64>, default: u64, max: u64) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(default);
    if (1..=max).contains(&limit) {
        return Ok(limit as usize);
    }
    Err(Problem::schema(StatusCode::BAD_REQUEST, format!("limit: 1 to {max}, not {limit}")))
}

/// A quarantined epoch is told apart from one that is only in conflict with the request.
const STATUSES: &[(Kind, u16)] = &[(Kind::Quarantine, StatusCode::UNPROCESSABLE_ENTITY.as_u16())];

/// A refusal with the status that its kind has on this surface.
fn told(error: Error) -> Problem {
    let own = STATUSES.iter().find(|(kind, _)| *kind == error.kind);
    let status = own.and_then(|(_, status)| StatusCode::from_u16(*status).ok());
    let problem = Problem::from(error);
    Problem { status: status.unwrap_or(problem.status), ..problem }
}
