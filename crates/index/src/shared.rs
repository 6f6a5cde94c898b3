//! What the tasks of the index and its handle share.

use std::sync::Arc;

use ron_store::Store;
use ron_transport::NodeKey;

use crate::ports::{Network, Upstream};

/// What is fixed while the node runs.
pub struct IndexOptions {
    /// Records, documents and pins.
    pub store: Store,
    /// The network of peers; none where the node has none.
    pub network: Option<Arc<dyn Network>>,
    /// Routers asked beside the peers.
    pub upstreams: Vec<Arc<dyn Upstream>>,
    /// Identity of the node, which signs what it publishes.
    pub key: NodeKey,
    /// Whether nothing is kept on disk.
    pub is_amnesia: bool,
    /// Lookups under way at once.
    pub resolvers: usize,
    /// Memory for answers.
    pub cache_bytes: usize,
    /// Names and content looked up at the start; what cannot be read is told and left out.
    pub warmup_keys: Vec<String>,
    /// Permits of the gate `index_ingest`.
    pub ingest_permits: usize,
}

pub(crate) struct Shared {
    pub options: IndexOptions,
}
