//! The registry of applications: which protocol the payload of a frame belongs to.

use std::fmt;

/// Number of the protocol that a frame's payload speaks (`app_proto_id`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub u16);

impl AppId {
    /// HELLO, PING, PONG, CREDIT and GOAWAY.
    pub const CONTROL: AppId = AppId(0);
    /// Answers a request with its own payload; for trying a connection out.
    pub const ECHO: AppId = AppId(1);
    /// The mailbox: send, recv, ack, nack, extend.
    pub const MAILBOX: AppId = AppId(0x0100);
    /// Gossip between nodes; clients have no part in it.
    pub const GOSSIP: AppId = AppId(0x0200);
    /// Publishing to lanes and subscribing to them, for clients.
    pub const LANES: AppId = AppId(0x0201);

    /// Name in logs and metrics; `None` for a number the registry does not hold.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            AppId::CONTROL => Some("control"),
            AppId::ECHO => Some("echo"),
            AppId::MAILBOX => Some("mailbox"),
            AppId::GOSSIP => Some("gossip"),
            AppId::LANES => Some("lanes"),
            _ => None,
        }
    }
}

impl fmt::Debug for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "app {:#06x}", self.0),
        }
    }
}
