//! A session: what is known of it, and its parts.

use std::net::SocketAddr;
use std::sync::Arc;

use oap::{Agreed, Hello};

use crate::identity::NodeId;
use crate::outbox::Outbox;
use crate::reader::Reader;
use crate::writer::Writer;

/// Who the other side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remote {
    /// A node that proved its id by its certificate.
    Node(NodeId),
    /// A client without certificate; what it may do, its token says.
    Client,
}

/// Who dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The other side.
    In,
    /// This side.
    Out,
}

/// What is known of a session from its beginning on.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// Who the other side is.
    pub remote: Remote,
    /// Who dialled.
    pub direction: Direction,
    /// Address of the other side.
    pub address: SocketAddr,
    /// Group of the key exchange: `X25519MLKEM768` or `X25519`.
    pub tls_group: &'static str,
    /// What both sides agreed on.
    pub agreed: Agreed,
    /// What the other side said of itself.
    pub their_hello: Hello,
}

/// A session between two sides that know each other. Reader and writer are run by the owner, side by side; when one of
/// them ends, the other does too.
pub struct Session {
    /// What is known of it.
    pub facts: Arc<SessionFacts>,
    /// The reading half.
    pub reader: Reader,
    /// The writing half.
    pub writer: Writer,
    /// The queue in front of the writer.
    pub outbox: Outbox,
}
