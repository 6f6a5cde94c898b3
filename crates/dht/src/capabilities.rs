//! What the DHT lets an operator grant: to look at the network and to steer it.

use ron_auth::{Action, Capabilities, VerbSpec};

/// See peers and follow lookups.
pub const READ: Action = Action::new("dht:read");
/// Join the network anew, and place records.
pub const ADMIN: Action = Action::new("dht:admin");

/// Everything of the DHT that can be granted.
pub static CAPABILITIES: Capabilities = Capabilities {
    service: "dht",
    resource: "network",
    verbs: &[
        VerbSpec { action: READ, does: "see peers and follow lookups" },
        VerbSpec { action: ADMIN, does: "join the network anew, and place records" },
    ],
    limits: &[],
}
.validated();
