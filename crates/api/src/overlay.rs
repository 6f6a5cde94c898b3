//! The HTTP surface of the overlay: routes that read, authorize, ask the handle and answer.

mod feed;
mod page;
mod peers;
mod publish;
mod socket;
mod subscribe;
mod trace;
mod words;

use std::sync::Arc;

use http::StatusCode;
use ron_auth::{Action, Authority, Subject};
use ron_kernel::KernelHandle;
use ron_transport::NodeId;
use ron_types::Error;
use svc_overlay::capabilities::ADMIN;
use svc_overlay::{LaneName, Overlay};

use crate::auth::Bearer;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::ApiBuilder;
use crate::surface::{Surface, joined, operation_count};

/// The surface of the overlay.
pub static SURFACE: Surface = Surface {
    service: "overlay",
    about: "Live messages between nodes without a broker: lanes that every node of a network relays, each message once \
        and in the order of its origin to whoever listens, and a gap told where one could not be filled.",
    tags: &["lanes", "peers"],
    operations: &OPERATIONS,
};

static OPERATIONS: [&Operation; operation_count(GROUPS)] = joined(GROUPS);

const GROUPS: &[&[&Operation]] =
    &[publish::OPERATIONS, subscribe::OPERATIONS, peers::OPERATIONS, trace::OPERATIONS, page::OPERATIONS];

/// Resource of rights that concern the node and no lane of it.
const WHOLE_NODE: &str = "*";

/// Parts of the node that the handlers of this surface use.
struct App {
    overlay: Overlay,
    authority: Authority,
    kernel: KernelHandle,
}

/// Adds the routes of the overlay.
pub fn overlay_routes(builder: ApiBuilder, overlay: Overlay, authority: Authority) -> ApiBuilder {
    let kernel = builder.kernel().clone();
    let builder = builder.surface(&SURFACE).authority(&authority);
    let app = Arc::new(App { overlay, authority, kernel });
    let groups: [fn(Routes) -> Routes; GROUPS.len()] =
        [publish::routes, subscribe::routes, peers::routes, trace::routes, page::routes];
    groups.into_iter().fold(Routes { builder, app }, |routes, add| add(routes)).builder
}

/// Collects routes that share one `App`.
type Routes = crate::surface::Routes<App>;

impl App {
    fn allow(&self, bearer: &Bearer, action: Action, lane: &LaneName) -> Result<Arc<Subject>, Error> {
        bearer.allow(&self.authority, action, lane.as_str())
    }

    /// The bearer may look after the node's peers.
    fn allow_admin(&self, bearer: &Bearer) -> Result<(), Error> {
        bearer.allow(&self.authority, ADMIN, WHOLE_NODE).map(drop)
    }
}

/// The lane that a path names.
fn lane_of(text: &str) -> Result<LaneName, Problem> {
    LaneName::new(text).map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("lane: {error}")))
}

/// The node that a path or a body names.
fn node_id_of(text: &str) -> Result<NodeId, Problem> {
    text.parse().map_err(|error| Problem::schema(StatusCode::BAD_REQUEST, format!("node_id: {error}")))
}
