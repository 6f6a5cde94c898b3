//! Two services that exist in tests alone: this crate knows none.

use crate::capabilities::{Action, Capabilities, LimitSpec, VerbSpec};

pub(crate) const PUT: Action = Action::new("store:put");
pub(crate) const GET: Action = Action::new("store:get");
pub(crate) const WRITE: Action = Action::new("mail:write");
pub(crate) const READ: Action = Action::new("mail:read");
pub(crate) const ALL: [Action; 4] = [PUT, GET, WRITE, READ];

const fn verb(action: Action) -> VerbSpec {
    VerbSpec { action, does: "for tests" }
}

pub(crate) static STORE: Capabilities = Capabilities {
    service: "store",
    resource: "box",
    verbs: &[verb(PUT), verb(GET)],
    limits: &[LimitSpec { name: "store.bytes_max", does: "for tests" }],
}
.validated();

pub(crate) static MAIL: Capabilities = Capabilities {
    service: "mail",
    resource: "topic",
    verbs: &[verb(WRITE), verb(READ)],
    limits: &[LimitSpec { name: "mail.letters_per_day", does: "for tests" }],
}
.validated();
