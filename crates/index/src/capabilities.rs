//! What the index lets an operator grant: its verbs on names and content.

use ron_auth::{Action, Capabilities, VerbSpec};

/// Resolve, where the node answers only those who show a token.
pub const READ: Action = Action::new("index:read");
/// Publish providers and documents in the node's name.
pub const PUBLISH: Action = Action::new("index:publish");
/// Point a name of the node's own namespace somewhere.
pub const NAME: Action = Action::new("index:name");
/// Pin, unpin and reindex; see targets and their breakers.
pub const ADMIN: Action = Action::new("index:admin");

/// Everything of the index that can be granted.
pub static CAPABILITIES: Capabilities = Capabilities {
    service: "index",
    resource: "name",
    verbs: &[
        VerbSpec { action: READ, does: "resolve names and content" },
        VerbSpec { action: PUBLISH, does: "publish providers and documents" },
        VerbSpec { action: NAME, does: "point a name somewhere" },
        VerbSpec { action: ADMIN, does: "pin, unpin and reindex; see targets" },
    ],
    limits: &[],
}
.validated();
