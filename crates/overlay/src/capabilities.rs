//! What the overlay lets an operator grant: its verbs on lanes.

use ron_auth::{Action, Capabilities, VerbSpec};

/// Publish on a lane.
pub const PUBLISH: Action = Action::new("overlay:publish");
/// Hear a lane.
pub const SUBSCRIBE: Action = Action::new("overlay:subscribe");
/// See, add and remove peers.
pub const ADMIN: Action = Action::new("overlay:admin");

/// Everything of the overlay that can be granted.
pub static CAPABILITIES: Capabilities = Capabilities {
    service: "overlay",
    resource: "lane",
    verbs: &[
        VerbSpec { action: PUBLISH, does: "publish on a lane" },
        VerbSpec { action: SUBSCRIBE, does: "hear a lane" },
        VerbSpec { action: ADMIN, does: "see, add and remove peers" },
    ],
    limits: &[],
}
.validated();
