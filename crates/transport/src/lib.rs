//! Sessions over TLS: who the other side is, what it may cost, one reader and one writer for each.
//!
//! [`accept`], [`dial`] and [`dial_as_client`] make a [`Session`]: TLS 1.3 with pinned node keys, then HELLO, all
//! within one deadline. Its [`Reader`] hands out batches of frames, its [`Writer`] is the only one that writes, and
//! everybody else has an [`Outbox`]. Every wait has a deadline and everything that waits has a bound
//! ([`SessionLimits`]).

mod address;
mod closed;
mod connect;
mod identity;
mod limits;
mod outbox;
pub mod quic;
mod reader;
mod records;
pub mod scheduler;
mod session;
mod sync;
#[cfg(test)]
mod tests;
mod timer;
mod tls;
mod writer;

pub use address::{AddressError, Carrier, PeerAddress};
pub use closed::{BadHello, Closed, ConnectError, GoAway, Stage};
pub use connect::{accept, accept_on, dial, dial_as_client, dial_on};
pub use identity::{KeyError, NODE_ID_BYTES, NodeId, NodeKey, NotANodeId};
pub use limits::SessionLimits;
#[cfg(feature = "shuttle")]
#[doc(hidden)]
pub use outbox::writer_side;
pub use outbox::{Outbox, Place, PushError};
pub use reader::{Heard, Reader};
pub use session::{Direction, Remote, Session, SessionFacts};
pub use tls::{PostQuantum, Tls, TlsError};
pub use writer::Writer;
