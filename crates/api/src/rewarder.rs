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
use svc_rewarder::service::ReadShare;
use svc_rewarder::store::EpochStatus;
use svc_rewarder::usage_meter::UsageMeter;
use svc_rewarder::{EpochId, Rewarder};

use crate::auth::Bearer;
use crate::call::Call;
use crate::fair_share::FairShare;
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

/// How much of an epoch a caller sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Everything: it has the right to read the epoch.
    Whole,
    /// Sums of all, and of payees what concerns the id that it names: the epoch is public.
    Public,
}

/// Parts of the node that the handlers of this surface use.
struct App {
    rewarder: Rewarder,
    usage: UsageMeter,
    authority: Authority,
    /// Reads of sealed runs by whoever asks for them: each may take long, and there are few at once.
    reads: Arc<FairShare>,
}

/// Adds the routes of the rewarder.
pub fn rewarder_routes(builder: ApiBuilder, rewarder: Rewarder, authority: Authority) -> ApiBuilder {
    let builder = builder.surface(&SURFACE).authority(&authority);
    let app = Arc::new(App { usage: rewarder.usage().clone(), rewarder, authority, reads: Arc::default() });
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

    /// Lets a caller read a sealed run, if its subject and its address leave enough to others.
    fn read(&self, call: &Call) -> Result<ReadShare, Error> {
        let capacity = self.rewarder.read_permits();
        call.take_of(&self.reads, capacity, "the reads of sealed epochs").map(ReadShare::of)
    }

    /// How much of this epoch the caller may read: by its token, or because settled epochs are public here, for bearers
    /// of any token as for those without one.
    fn allow_read(&self, bearer: &MaybeBearer, epoch: &EpochId) -> Result<Sight, Problem> {
        let refused = match &bearer.0 {
            None => Error::new(Kind::Unauthenticated, "Authorization: Bearer <token> is needed, once"),
            Some(bearer) => match self.allow(bearer, svc_rewarder::capabilities::READ, epoch.as_str()) {
                Ok(_) => return Ok(Sight::Whole),
                Err(refused) => refused,
            },
        };
        let is_public = self.rewarder.live().page == PageAccess::Public;
        let is_settled = || self.rewarder.row(epoch).is_ok_and(|row| row.status == EpochStatus::Settled);
        if is_public && is_settled() { Ok(Sight::Public) } else { Err(refused.into()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_leaves_reads_of_sealed_epochs_to_others() {
        let reads: Arc<FairShare> = Arc::default();
        let (ann, others) = (Call::alone(), Call::alone());
        ann.admission.belongs_to("ann").expect("nobody is there");
        let fill = |call: &Call| std::iter::from_fn(|| call.take_of(&reads, 8, "the reads").ok()).collect::<Vec<_>>();
        let held = fill(&ann);
        assert_eq!(held.len(), 4, "half, alone");
        assert_eq!(ann.take_of(&reads, 8, "the reads").expect_err("its share").kind, Kind::Busy);
        assert_eq!(fill(&others).len(), 2, "who comes next finds as much as is left to each");
        drop(held);
        assert_eq!(fill(&ann).len(), 4);
    }
}
