//! What the mailbox lets an operator grant: its verbs on topics, and the limits of a sender.

use ron_auth::{Action, Capabilities, LimitSpec, VerbSpec};

/// Put messages in.
pub const SEND: Action = Action::new("mailbox:send");
/// Take messages out under a lease.
pub const RECV: Action = Action::new("mailbox:recv");
/// Say that a message is done with, or hold it for longer.
pub const ACK: Action = Action::new("mailbox:ack");
/// Give a message back.
pub const NACK: Action = Action::new("mailbox:nack");
/// Make, change and remove topics; look into them.
pub const ADMIN: Action = Action::new("mailbox:admin");

/// Name of the limit on messages sent in a second.
pub const SENDS_PER_SECOND: &str = "mailbox.sends_per_second";
/// Name of the limit on the size of a payload.
pub const PAYLOAD_BYTES_MAX: &str = "mailbox.payload_bytes_max";

/// Everything of the mailbox that can be granted.
pub static CAPABILITIES: Capabilities = Capabilities {
    service: "mailbox",
    resource: "topic",
    verbs: &[
        VerbSpec { action: SEND, does: "put messages in" },
        VerbSpec { action: RECV, does: "take messages out under a lease" },
        VerbSpec { action: ACK, does: "say that a message is done with, or hold it for longer" },
        VerbSpec { action: NACK, does: "give a message back" },
        VerbSpec { action: ADMIN, does: "make, change and remove topics; look into them" },
    ],
    limits: &[
        LimitSpec { name: SENDS_PER_SECOND, does: "messages sent in a second" },
        LimitSpec { name: PAYLOAD_BYTES_MAX, does: "bytes of the largest message sent: payload and attributes" },
    ],
}
.validated();
