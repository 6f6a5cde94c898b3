//! What the rewarder lets an operator grant: its verbs on epochs.

use ron_auth::{Action, Capabilities, VerbSpec};

/// Read manifests, settlements, proofs, explanations and allocations.
pub const READ: Action = Action::new("rewarder:read");
/// Have an epoch computed.
pub const COMPUTE: Action = Action::new("rewarder:compute");
/// Bring usage files.
pub const UPLOAD: Action = Action::new("rewarder:upload");
/// Let the payouts of an epoch leave.
pub const RELEASE: Action = Action::new("rewarder:release");
/// Remove the artifacts of an epoch.
pub const REMOVE: Action = Action::new("rewarder:remove");
/// Read the embedded ledger.
pub const LEDGER: Action = Action::new("rewarder:ledger");

/// Everything of the rewarder that can be granted.
pub static CAPABILITIES: Capabilities = Capabilities {
    service: "rewarder",
    resource: "epoch",
    verbs: &[
        VerbSpec { action: READ, does: "read manifests, proofs, explanations and allocations" },
        VerbSpec { action: COMPUTE, does: "have an epoch computed" },
        VerbSpec { action: UPLOAD, does: "bring usage files; their resource is `inputs`" },
        VerbSpec { action: RELEASE, does: "let the payouts of an epoch leave" },
        VerbSpec { action: REMOVE, does: "remove the artifacts of an epoch that is over" },
        VerbSpec { action: LEDGER, does: "read the embedded ledger; its resource is the account" },
    ],
    limits: &[],
}
.validated();
