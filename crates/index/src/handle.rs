//! The index as surfaces, commands and the network see it. It knows neither HTTP nor JSON.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ron_kernel::bus::BroadcastReceiver;
use ron_store::{ContentId, Name, NameRecord, PeerId, ProviderRecord, PublicKey, Record, Subject};
use ron_types::Error;

use crate::admission::QuestionSlot;
use crate::config::LiveOptions;
use crate::ports::{Question, Reply};
use crate::shared::Shared;
use crate::stream::ProviderStream;
use crate::watchers::Watch;
use crate::words::{
    AdminDone, AdminRequest, Capacity, IndexEvent, IndexStats, IpnsAnswer, LookupSummary, NameAnswer,
    PeerAnswer, ProviderOffer, PublishOutcome, Resolution, ResolveOptions, TargetView,
};

/// The index. Clones are the same index.
#[derive(Clone)]
pub struct Index {
    pub(crate) shared: Arc<Shared>,
}

impl Index {
    /// What a reload may change, as it is now.
    pub fn live(&self) -> LiveOptions {
        todo!()
    }

    /// Key of this node: the owner of names that name none.
    pub fn node_key(&self) -> PublicKey {
        todo!()
    }

    /// Peer id of this node.
    pub fn node_peer(&self) -> PeerId {
        todo!()
    }

    /// Lets a question of this address in, or says Busy: too many of it are under way, or it is too fast. Held while
    /// the question is answered.
    pub fn admit(&self, ip: IpAddr) -> Result<QuestionSlot, Error> {
        todo!()
    }

    /// What a name or a hash leads to. Answers within the budget, whatever peers do; Busy if too many lookups wait.
    pub async fn resolve(&self, tenant: &str, subject: Subject, options: ResolveOptions) -> Result<Resolution, Error> {
        todo!()
    }

    /// Who has the content, each as soon as they are known; the end of the stream says how the search ended.
    pub async fn providers_stream(
        &self,
        tenant: &str,
        content: ContentId,
        options: ResolveOptions,
    ) -> Result<ProviderStream, Error> {
        todo!()
    }

    /// Publishes a provider in this node's name, which signs and so vouches for it.
    pub async fn publish_provider(
        &self,
        tenant: &str,
        content: &ContentId,
        offer: ProviderOffer,
    ) -> Result<ProviderRecord, Error> {
        todo!()
    }

    /// Takes back what this node said of a provider; none for this node itself.
    pub async fn withdraw_provider(
        &self,
        tenant: &str,
        content: &ContentId,
        peer: Option<PeerId>,
    ) -> Result<ProviderRecord, Error> {
        todo!()
    }

    /// Publishes a record that somebody signed: a provider, a name or a peer. Integrity if the signature does not hold.
    pub async fn publish_record(&self, tenant: &str, record: Record) -> Result<PublishOutcome, Error> {
        todo!()
    }

    /// Keeps a document; gives its hash.
    pub async fn publish_manifest(&self, tenant: &str, bytes: Bytes) -> Result<ContentId, Error> {
        todo!()
    }

    /// A document that this node keeps, its bytes verified.
    pub async fn manifest(&self, id: &ContentId) -> Result<Option<Bytes>, Error> {
        todo!()
    }

    /// Points a name of this node's namespace somewhere from now on; 48 h where no time is given.
    pub async fn name_set(
        &self,
        tenant: &str,
        label: &str,
        value: ContentId,
        ttl: Option<Duration>,
    ) -> Result<NameRecord, Error> {
        todo!()
    }

    /// Where a name leads.
    pub async fn name_get(&self, tenant: &str, name: Name, options: ResolveOptions) -> Result<NameAnswer, Error> {
        todo!()
    }

    /// Names of an owner that this node knows, in order, from after this label on; none for this node's own.
    pub async fn names(
        &self,
        owner: Option<PublicKey>,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<NameRecord>, Error> {
        todo!()
    }

    /// The record of an IPNS name.
    pub async fn ipns_get(&self, tenant: &str, name: PeerId, options: ResolveOptions) -> Result<IpnsAnswer, Error> {
        todo!()
    }

    /// Publishes the record of an IPNS name; Schema or Integrity if it does not hold.
    pub async fn ipns_put(&self, tenant: &str, name: PeerId, record: &[u8]) -> Result<PublishOutcome, Error> {
        todo!()
    }

    /// Where a peer is reached.
    pub async fn peer(&self, tenant: &str, peer: PeerId, options: ResolveOptions) -> Result<PeerAnswer, Error> {
        todo!()
    }

    /// Changes of a name or of who has some content, from now on; Busy if too many watch.
    pub fn watch(&self, subject: &Subject) -> Result<Watch, Error> {
        todo!()
    }

    /// Pins, unpins or reindexes. Conflict if the idempotency key was used for something else.
    pub async fn administer(&self, request: AdminRequest) -> Result<AdminDone, Error> {
        todo!()
    }

    /// What is pinned, in order, from after this on, each with the Unix milliseconds of when it was.
    pub async fn pins(&self, after: Option<Subject>, max: usize) -> Result<Vec<(Subject, u64)>, Error> {
        todo!()
    }

    /// The last lookups among peers, newest first.
    pub fn recent_lookups(&self) -> Vec<Arc<LookupSummary>> {
        todo!()
    }

    /// Whether there are enough resolvers.
    pub fn capacity(&self) -> Capacity {
        todo!()
    }

    /// Targets and their breakers.
    pub fn targets(&self) -> Vec<TargetView> {
        todo!()
    }

    /// The index at a glance.
    pub async fn stats(&self) -> Result<IndexStats, Error> {
        todo!()
    }

    /// What happens in the index, from now on.
    pub fn events(&self) -> BroadcastReceiver<IndexEvent> {
        todo!()
    }

    /// What this node answers a peer that asks: from its store alone, never from another peer. Reads the store, which
    /// may block for a moment.
    pub fn answer(&self, question: &Question, now_ms: u64) -> Reply {
        todo!()
    }

    /// Records that a peer wants kept. Those that hold are queued for the store; gives how many, Busy if there is no
    /// room for the first of them.
    pub fn offer(&self, records: Vec<Record>) -> Result<usize, Error> {
        todo!()
    }
}
