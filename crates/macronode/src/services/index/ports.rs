//! The index and the DHT joined: each sees of the other only the port it declares.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_kernel::{Deadline, clock};
use ron_store::wire::{AskError, Question, Reply};
use ron_store::{Key, PeerId, Possession, PublicKey, Record, Store};
use ron_types::Error;
use svc_dht::{Dht, Held, Records};
use svc_index::WeakIndex;
use svc_index::ports::{IpGroup, NearPeer, Network};

/// The DHT as the network of the index.
pub struct DhtNetwork(pub Dht);

impl Network for DhtNetwork {
    fn nearest(&self, key: &Key, count: usize) -> Vec<PeerId> {
        self.0.nearest(key, count)
    }

    fn ask(
        &self,
        target: &PeerId,
        question: Question,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Reply, AskError>> {
        self.0.ask(target, question, budget)
    }

    fn closest(&self, key: &Key, count: usize, budget: Duration) -> BoxFuture<'static, Vec<NearPeer>> {
        let closest = self.0.closest(*key, count, Deadline::after(budget));
        closest.map(|found| found.into_iter().map(|(peer, addrs)| NearPeer { peer, addrs }).collect()).boxed()
    }

    fn prove(
        &self,
        target: &PeerId,
        digest: [u8; 32],
        draw: u64,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Option<Possession>, AskError>> {
        self.0.prove(target, digest, draw, budget)
    }

    fn keep(&self, record: Record) -> Result<(), Error> {
        self.0.keep(record)
    }

    fn group(&self, peer: &PeerId) -> Option<IpGroup> {
        self.0.ip_group(peer)
    }

    fn complete(&self) -> bool {
        self.0.complete()
    }
}

/// The index as the keeper of the DHT's records.
pub struct IndexRecords {
    /// Answers questions, and takes what is offered through its queue. The index holds the DHT, which holds this: one
    /// of them must let go, or neither would ever be freed, and with them the node's key.
    pub index: WeakIndex,
    /// Records by their keys.
    pub store: Store,
    /// Key of this node, which signs what it publishes.
    pub own: PublicKey,
}

impl Records for IndexRecords {
    fn answer(&self, question: &Question, now_ms: u64) -> Reply {
        self.index.upgrade().map_or_else(Reply::default, |index| index.answer(question, now_ms))
    }

    fn possession(&self, digest: &[u8; 32], draw: u64) -> Option<Possession> {
        self.index.upgrade()?.possession(digest, draw)
    }

    fn offer(&self, records: Vec<Record>) -> usize {
        self.index.upgrade().and_then(|index| index.offer(records).ok()).unwrap_or(0)
    }

    fn held(&self, from: &Key, to: &Key, max: usize) -> Vec<Held> {
        let found = self.store.records_in(*from, *to, max, clock::unix_millis());
        let records = found.unwrap_or_else(|error| {
            tracing::warn!(%error, "held records cannot be read; they are not moved this time");
            Vec::new()
        });
        records.into_iter().map(|record| Held { is_own: is_signed_by(&record, self.own), record }).collect()
    }
}

/// Whether a record is this key's own.
fn is_signed_by(record: &Record, key: PublicKey) -> bool {
    match record {
        Record::Provider(record) => record.signer == key,
        Record::Name(record) => record.owner == key,
        Record::Peer(record) => record.peer.public_key() == Some(key),
        Record::Ipns(record) => record.name().public_key() == Some(key),
    }
}
