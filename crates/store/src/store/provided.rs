//! What this node tells others that it has.

use multiaddr::Multiaddr;

use crate::bytes_io::{Reader, put_bytes, put_number};
use crate::records::{check_addrs, put_addrs, put_protocols, take_addrs, take_content_id, take_protocols};
use crate::{ContentId, RecordError, TTL_MAX_MS};

/// Content that this node tells others it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provided {
    /// The content.
    pub content: ContentId,
    /// Where it can be had; none means where the node is reached.
    pub addrs: Vec<Multiaddr>,
    /// Protocols by which it can be had.
    pub protocols: Vec<String>,
    /// Milliseconds that each record of it lasts.
    pub ttl_ms: u64,
}

impl Provided {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, &self.content.cid_bytes());
        put_addrs(&mut bytes, &self.addrs);
        put_protocols(&mut bytes, &self.protocols);
        put_number(&mut bytes, self.ttl_ms);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new(bytes);
        let content = take_content_id(&mut reader)?;
        let addrs = take_addrs(&mut reader)?;
        let protocols = take_protocols(&mut reader)?;
        let ttl_ms = reader.number()?;
        reader.end()?;
        check_addrs(&addrs)?;
        if (1..=TTL_MAX_MS).contains(&ttl_ms) {
            Ok(Provided { content, addrs, protocols, ttl_ms })
        } else {
            Err(RecordError::Lifetime)
        }
    }
}
