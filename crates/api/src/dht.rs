//! The HTTP surface of the DHT: how the node stands in its network, and walks through it.

mod peers;
mod records;
mod words;

use std::sync::Arc;

use ron_auth::{Action, Authority};
use ron_transport::NodeKey;
use ron_types::Error;
use svc_dht::Dht;

use crate::auth::Bearer;
use crate::operation::Operation;
use crate::route::ApiBuilder;
use crate::surface::{Surface, joined, operation_count};

/// The surface of the DHT.
pub static SURFACE: Surface = Surface {
    service: "dht",
    about: "A network of nodes that keep signed records near their keys: who takes part in it, and where a record lies.",
    tags: &["network", "records"],
    operations: &OPERATIONS,
};

static OPERATIONS: [&Operation; operation_count(GROUPS)] = joined(GROUPS);

const GROUPS: &[&[&Operation]] = &[peers::OPERATIONS, records::OPERATIONS];

/// Resource of rights: there is one network.
const WHOLE_NETWORK: &str = "*";

/// Parts of the node that the handlers of this surface use.
struct App {
    dht: Dht,
    authority: Authority,
    /// Signs that this node provides something.
    key: NodeKey,
}

/// Adds the routes of the DHT.
pub fn dht_routes(builder: ApiBuilder, dht: Dht, authority: Authority, key: NodeKey) -> ApiBuilder {
    let builder = builder.surface(&SURFACE).authority(&authority);
    let app = Arc::new(App { dht, authority, key });
    let groups: [fn(Routes) -> Routes; GROUPS.len()] = [peers::routes, records::routes];
    groups.into_iter().fold(Routes { builder, app }, |routes, add| add(routes)).builder
}

/// Collects routes that share one `App`.
type Routes = crate::surface::Routes<App>;

impl App {
    fn allow(&self, bearer: &Bearer, action: Action) -> Result<(), Error> {
        bearer.allow(&self.authority, action, WHOLE_NETWORK).map(drop)
    }
}
