//! The index as surfaces, commands and the network see it. It knows neither HTTP nor JSON.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use ron_kernel::bus::BroadcastReceiver;
use ron_kernel::connection_limiter::network_of;
use ron_kernel::{Deadline, clock};
use ron_store::{
    ContentId, IpnsRecord, Key, Name, NameRecord, PeerId, Possession, Provided, ProviderRecord, PublicKey, Record,
    RecordError, Subject,
};
use ron_types::Error;
use ron_types::limits::index::ANSWER_MARGIN;

use crate::admission::QuestionSlot;
use crate::config::{Access, LiveOptions};
use crate::find::{Answer, Asked, Begun, stored};
use crate::ports::{NearPeer, Question, Reply};
use crate::prefetch::query;
use crate::publish::refused;
use crate::query::{Breadth, Query, What};
use crate::shared::Shared;
use crate::specs::SERVICE;
use crate::stream::{ProviderStream, Search};
use crate::watchers::Watch;
use crate::words::{
    AdminDone, AdminRequest, AskView, Capacity, IndexEvent, IndexStats, IpnsAnswer, LookupSummary, ManifestView,
    NameAnswer, Outcome, PeerAnswer, ProviderOffer, PublishOutcome, Resolution, ResolveOptions, Single, Source,
    TargetView,
};
use crate::work::Asker;

/// Metric of the usage meter for questions that a tenant asked.
const RESOLVES: &str = "index.resolves";
/// Metric of the usage meter for records and documents that a tenant published.
const PUBLICATIONS: &str = "index.publications";
/// Metric of the usage meter for bytes of documents that a tenant published.
const MANIFEST_BYTES: &str = "index.manifest_bytes";

/// The index. Clones are the same index.
#[derive(Clone)]
pub struct Index {
    pub(crate) shared: Arc<Shared>,
}

/// The index for somebody whom the index itself holds: it keeps nothing of it in memory.
#[derive(Clone)]
pub struct WeakIndex(Weak<Shared>);

impl WeakIndex {
    /// The index, while its node has it.
    pub fn upgrade(&self) -> Option<Index> {
        self.0.upgrade().map(|shared| Index { shared })
    }
}

impl Index {
    /// A handle that does not keep the index in memory.
    pub fn downgrade(&self) -> WeakIndex {
        WeakIndex(Arc::downgrade(&self.shared))
    }

    /// What a reload may change, as it is now.
    pub fn live(&self) -> LiveOptions {
        self.shared.live.get().value.clone()
    }

    /// Who may resolve, as it is now.
    pub fn access(&self) -> Access {
        self.shared.live.get().value.access
    }

    /// Key of this node: the owner of names that name none.
    pub fn node_key(&self) -> PublicKey {
        self.shared.node_key()
    }

    /// Peer id of this node.
    pub fn node_peer(&self) -> PeerId {
        self.shared.node_peer()
    }

    /// Lets a question of this address in, or says Busy: too many of it are under way, or it is too fast. Held while
    /// the question is answered.
    pub fn admit(&self, ip: IpAddr) -> Result<QuestionSlot, Error> {
        let live = self.shared.live.get();
        self.shared.addresses.admit(ip, live.value.per_ip_connections, live.value.per_ip_per_second)
    }

    /// What a name or a hash leads to. Answers within the budget, whatever peers do; Busy if too many lookups wait.
    pub async fn resolve(&self, tenant: &str, subject: Subject, options: ResolveOptions) -> Result<Resolution, Error> {
        let began = clock::now();
        let deadline = self.shared.deadline(&options);
        self.count(tenant, RESOLVES, 1);
        let resolution = match &subject {
            Subject::Content(content) => self.resolve_content(&subject, *content, &options, deadline).await,
            Subject::Name(name) => self.resolve_name(&subject, name, &options, deadline).await,
        };
        let took = clock::now() - began;
        self.shared.counts.resolved(took);
        resolution.map(|resolution| Resolution { took, ..resolution })
    }

    async fn resolve_content(
        &self,
        subject: &Subject,
        content: ContentId,
        options: &ResolveOptions,
        deadline: Deadline,
    ) -> Result<Resolution, Error> {
        let (query, breadth, fresh) = (Query::Providers(content.key()), Breadth::First, options.fresh);
        let asked =
            Asked { query, content: Some(content), shown: subject, breadth, fresh, deadline, from: asker(options) };
        let Answer { finding, source } = self.shared.find(asked).await?;
        let manifest = match finding.manifest.get() {
            Some(known) if known.is_none_or(|known| known.id == content) => *known,
            _ => {
                let found = self.manifest_view(content).await?;
                let _ = finding.manifest.set(found);
                found
            }
        };
        let mut providers = finding.providers();
        if providers.len() > options.max {
            providers = providers.iter().take(options.max).cloned().collect();
        }
        let now = clock::now();
        Ok(Resolution {
            subject: subject.clone(),
            name: None,
            content: Some(content),
            outcome: if manifest.is_some() { Outcome::Found } else { finding.outcome },
            manifest,
            providers,
            providers_outcome: finding.outcome,
            open_targets: finding.open_targets,
            age: finding.age(now),
            source,
            fresh_for: finding.fresh_for(now),
            course: Arc::clone(&finding.course),
            took: Duration::ZERO,
            made: Arc::clone(&finding.made),
        })
    }

    async fn resolve_name(
        &self,
        subject: &Subject,
        name: &Name,
        options: &ResolveOptions,
        deadline: Deadline,
    ) -> Result<Resolution, Error> {
        let answer = self.find_name(name, options, deadline).await?;
        let now = clock::now();
        let finding = answer.finding;
        let What::Name(record) = &finding.what else {
            return Ok(Resolution {
                subject: subject.clone(),
                name: None,
                content: None,
                manifest: None,
                providers: Arc::default(),
                outcome: finding.outcome,
                providers_outcome: finding.outcome,
                open_targets: finding.open_targets,
                age: finding.age(now),
                source: answer.source,
                fresh_for: finding.fresh_for(now),
                course: Arc::clone(&finding.course),
                took: Duration::ZERO,
                made: Arc::default(),
            });
        };
        // The same budget goes on: what the name took is not there for the providers.
        let content = self.resolve_content(subject, record.value, options, deadline).await?;
        Ok(Resolution {
            name: Some(record.clone()),
            outcome: Outcome::Found,
            open_targets: finding.open_targets + content.open_targets,
            age: finding.age(now).max(content.age),
            fresh_for: finding.fresh_for(now).min(content.fresh_for),
            course: one_after_the_other(&finding.course, &content.course),
            // What is made of the content alone does not say which name led to it.
            made: Arc::default(),
            ..content
        })
    }

    async fn find_name(&self, name: &Name, options: &ResolveOptions, deadline: Deadline) -> Result<Answer, Error> {
        let query = Query::name(name, self.shared.node_key());
        let (breadth, fresh) = (Breadth::First, options.fresh);
        let asked = Asked { query, content: None, shown: name, breadth, fresh, deadline, from: asker(options) };
        self.shared.find(asked).await
    }

    async fn manifest_view(&self, id: ContentId) -> Result<Option<ManifestView>, Error> {
        let bytes = self.manifest(&id).await?;
        Ok(bytes.map(|bytes| ManifestView { id, length: bytes.len() }))
    }

    /// Who has the content, each as soon as they are known; the end of the stream says how the search ended.
    pub async fn providers_stream(
        &self,
        tenant: &str,
        content: ContentId,
        options: ResolveOptions,
    ) -> Result<ProviderStream, Error> {
        self.count(tenant, RESOLVES, 1);
        let deadline = self.shared.deadline(&options);
        let (fresh, from) = (options.fresh, asker(&options));
        let search = Search { shared: Arc::clone(&self.shared), content, fresh, deadline, from };
        Ok(match search.begin().await? {
            Begun::Known(answer) => ProviderStream::of(&answer.finding, options.max),
            Begun::UnderWay(waiter) => ProviderStream::under_way(waiter, search, options.max),
        })
    }

    /// Publishes a provider in this node's name, which signs and so vouches for it.
    pub async fn publish_provider(
        &self,
        tenant: &str,
        content: &ContentId,
        offer: ProviderOffer,
    ) -> Result<ProviderRecord, Error> {
        let record = self.shared.publish_provider(content, offer).await?;
        self.count(tenant, PUBLICATIONS, 1);
        Ok(record)
    }

    /// Takes back what this node said of a provider; none for this node itself.
    pub async fn withdraw_provider(
        &self,
        tenant: &str,
        content: &ContentId,
        peer: Option<PeerId>,
    ) -> Result<ProviderRecord, Error> {
        let record = self.shared.withdraw_provider(content, peer).await?;
        self.count(tenant, PUBLICATIONS, 1);
        Ok(record)
    }

    /// Publishes a record that somebody signed: a provider, a name or a peer. Integrity if the signature does not hold.
    pub async fn publish_record(&self, tenant: &str, record: Record) -> Result<PublishOutcome, Error> {
        let outcome = self.shared.publish_record(record).await?;
        self.count(tenant, PUBLICATIONS, 1);
        Ok(outcome)
    }

    /// Keeps a document; gives its hash.
    pub async fn publish_manifest(&self, tenant: &str, bytes: Bytes) -> Result<ContentId, Error> {
        let length = bytes.len() as u64;
        let content = self.shared.publish_manifest(bytes).await?;
        self.count(tenant, PUBLICATIONS, 1);
        self.count(tenant, MANIFEST_BYTES, length);
        Ok(content)
    }

    /// A document that this node keeps, its bytes verified.
    pub async fn manifest(&self, id: &ContentId) -> Result<Option<Bytes>, Error> {
        let id = *id;
        self.shared.read(move |store| store.manifest(&id)).await
    }

    /// Points a name of this node's namespace somewhere from now on: for this time, or where none is given until it is
    /// pointed elsewhere or removed.
    pub async fn name_set(
        &self,
        tenant: &str,
        label: &str,
        value: ContentId,
        ttl: Option<Duration>,
    ) -> Result<NameRecord, Error> {
        let record = self.shared.name_set(label, value, ttl).await?;
        self.count(tenant, PUBLICATIONS, 1);
        Ok(record)
    }

    /// Lets a name of this node's namespace stand for nothing from now on.
    pub async fn name_remove(&self, tenant: &str, label: &str) -> Result<NameRecord, Error> {
        let record = self.shared.name_remove(label).await?;
        self.count(tenant, PUBLICATIONS, 1);
        Ok(record)
    }

    /// Where a name leads.
    pub async fn name_get(&self, tenant: &str, name: Name, options: ResolveOptions) -> Result<NameAnswer, Error> {
        self.count(tenant, RESOLVES, 1);
        let answer = self.find_name(&name, &options, self.shared.deadline(&options)).await?;
        Ok(single(&answer, |what| match what {
            What::Name(record) => Some(record.clone()),
            _ => None,
        }))
    }

    /// Names of an owner that this node knows, in order, from after this label on; none for this node's own.
    pub async fn names(
        &self,
        owner: Option<PublicKey>,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<NameRecord>, Error> {
        let owner = owner.unwrap_or_else(|| self.node_key());
        let (after, now_ms) = (after.map(str::to_owned), self.shared.unix_ms());
        self.shared.read(move |store| store.names(&owner, after.as_deref(), max, now_ms)).await
    }

    /// The record of an IPNS name.
    pub async fn ipns_get(&self, tenant: &str, name: PeerId, options: ResolveOptions) -> Result<IpnsAnswer, Error> {
        let answer = self.find_single(tenant, Query::Ipns(name), &name, &options).await?;
        Ok(single(&answer, |what| match what {
            What::Ipns(record) => Some(record.clone()),
            _ => None,
        }))
    }

    /// Publishes the record of an IPNS name; Schema or Integrity if it does not hold.
    pub async fn ipns_put(&self, tenant: &str, name: PeerId, record: &[u8]) -> Result<PublishOutcome, Error> {
        let record = IpnsRecord::parse(&name, record).map_err(|error| refused(&RecordError::Ipns(error)))?;
        self.publish_record(tenant, Record::Ipns(record)).await
    }

    /// Where a peer is reached. Of this node nobody knows better than the node itself.
    pub async fn peer(&self, tenant: &str, peer: PeerId, options: ResolveOptions) -> Result<PeerAnswer, Error> {
        if peer == self.node_peer()
            && let Some(record) = self.shared.sign_own_peer()
        {
            self.count(tenant, RESOLVES, 1);
            return Ok(PeerAnswer {
                record: Some(record),
                outcome: Outcome::Found,
                open_targets: 0,
                age: Duration::ZERO,
                source: Source::Store,
                fresh_for: Duration::ZERO,
                course: Arc::default(),
            });
        }
        let answer = self.find_single(tenant, Query::Peer(peer), &peer, &options).await?;
        Ok(single(&answer, |what| match what {
            What::Peer(record) => Some(record.clone()),
            _ => None,
        }))
    }

    /// The peers of the network nearest to a key, nearest first, within the budget of a question; none where the node
    /// has no network.
    pub async fn closest_peers(&self, tenant: &str, key: Key, max: usize) -> Vec<NearPeer> {
        self.count(tenant, RESOLVES, 1);
        let Some(network) = &self.shared.options.network else { return Vec::new() };
        let budget = self.shared.deadline(&ResolveOptions::default()).remaining().saturating_sub(ANSWER_MARGIN);
        let mut near = network.closest(&key, max, budget).await;
        near.sort_by_key(|near| near.peer.key().distance(&key));
        near.truncate(max);
        near
    }

    async fn find_single(
        &self,
        tenant: &str,
        query: Query,
        peer: &PeerId,
        options: &ResolveOptions,
    ) -> Result<Answer, Error> {
        self.count(tenant, RESOLVES, 1);
        let deadline = self.shared.deadline(options);
        let (breadth, fresh) = (Breadth::First, options.fresh);
        let asked = Asked { query, content: None, shown: peer, breadth, fresh, deadline, from: asker(options) };
        self.shared.find(asked).await
    }

    /// Changes of a name or of who has some content, from now on: those of this node's store at once, those elsewhere
    /// when it is looked up again, which it is now and then while somebody watches. Busy if too many watch.
    pub fn watch(&self, subject: &Subject) -> Result<Watch, Error> {
        let (query, content) = query(&self.shared, subject);
        self.shared.watchers.watch(query, content, subject.to_string())
    }

    /// Pins, unpins or reindexes. Conflict if the idempotency key was used for something else.
    pub async fn administer(&self, request: AdminRequest) -> Result<AdminDone, Error> {
        self.shared.administer(request).await
    }

    /// What is pinned, in order, from after this on, each with the Unix milliseconds of when it was.
    pub async fn pins(&self, after: Option<Subject>, max: usize) -> Result<Vec<(Subject, u64)>, Error> {
        self.shared.read(move |store| store.pins(after.as_ref(), max)).await
    }

    /// What this node says that it has until it is withdrawn, in order of keys, from after this content on.
    pub async fn provided(&self, after: Option<&ContentId>, max: usize) -> Result<Vec<Provided>, Error> {
        let after = after.map(ContentId::key);
        let provided = self.shared.read(move |store| store.provided(after, max)).await?;
        Ok(provided.into_iter().map(|(_, provided)| provided).collect())
    }

    /// Names of this node that are renewed until they are removed, and what they stand for, in order, from after this
    /// label on.
    pub async fn kept_names(&self, after: Option<String>, max: usize) -> Result<Vec<(String, ContentId)>, Error> {
        self.shared.read(move |store| store.named(after.as_deref(), max)).await
    }

    /// The last lookups among peers, newest first.
    pub fn recent_lookups(&self) -> Vec<Arc<LookupSummary>> {
        self.shared.recent.all()
    }

    /// Whether there are enough resolvers.
    pub fn capacity(&self) -> Capacity {
        self.shared.load.capacity(self.shared.counts.sums(), self.shared.options.resolvers)
    }

    /// Targets and their breakers, those that are left out first.
    pub fn targets(&self) -> Vec<TargetView> {
        self.shared.targets.views(self.shared.now_ms())
    }

    /// The index at a glance.
    pub async fn stats(&self) -> Result<IndexStats, Error> {
        let records = self.shared.read(|store| Ok(store.count())).await?;
        let (cached, cached_bytes) = self.shared.cache.size();
        Ok(IndexStats {
            cached,
            cached_bytes,
            records: records as u64,
            flights: self.shared.flights.len(),
            watchers: self.shared.watchers.len(),
            is_amnesia: self.shared.options.is_amnesia,
            node_key: self.node_key(),
        })
    }

    /// What happens in the index, from now on.
    pub fn events(&self) -> BroadcastReceiver<IndexEvent> {
        self.shared.events.subscribe(SERVICE, self.shared.kernel.metrics())
    }

    /// What this node answers a peer that asks: from its store alone, never from another peer. Reads the store, which
    /// may block for a moment.
    pub fn answer(&self, question: &Question, now_ms: u64) -> Reply {
        let records = stored(&self.shared.options.store, question, now_ms);
        // A store that fails knows nothing; the failure is counted and told where it is looked for.
        let records: Vec<Record> = records.unwrap_or_else(|error| {
            self.shared.store_failed(&error);
            Vec::new()
        });
        Reply { records, closer: Vec::new() }
    }

    /// Proof that this node keeps a document, for a peer that asks; none if it does not, or if only bearers of a token
    /// may ask. Reads the store, which may block for a moment.
    pub fn possession(&self, digest: &[u8; 32], draw: u64) -> Option<Possession> {
        if self.access() != Access::Public {
            return None;
        }
        let bytes = self.shared.options.store.manifest(&ContentId::blake3(*digest));
        let bytes = bytes.unwrap_or_else(|error| {
            self.shared.store_failed(&error);
            None
        })?;
        Some(Possession::of(&bytes, draw))
    }

    /// Records that a peer wants kept. Those that hold are queued for the store; gives how many, Busy if there is no
    /// room for the first of them.
    pub fn offer(&self, records: Vec<Record>) -> Result<usize, Error> {
        self.shared.offer(records)
    }

    fn count(&self, tenant: &str, metric: &'static str, amount: u64) {
        self.shared.kernel.meter().count(tenant, metric, amount);
    }
}

/// Whose share of the resolvers a question is answered from.
fn asker(options: &ResolveOptions) -> Asker {
    options.from.map(network_of)
}

/// The course of two lookups of which the second began when the first had ended.
fn one_after_the_other(first: &[AskView], second: &[AskView]) -> Arc<[AskView]> {
    let ended = first.iter().map(|ask| ask.ended).max().unwrap_or_default();
    let later = |ask: &AskView| AskView { started: ended + ask.started, ended: ended + ask.ended, ..ask.clone() };
    first.iter().cloned().chain(second.iter().map(later)).collect()
}

fn single<T>(answer: &Answer, record: impl Fn(&What) -> Option<T>) -> Single<T> {
    let (finding, now) = (&answer.finding, clock::now());
    Single {
        record: record(&finding.what),
        outcome: finding.outcome,
        open_targets: finding.open_targets,
        age: finding.age(now),
        source: answer.source,
        fresh_for: finding.fresh_for(now),
        course: Arc::clone(&finding.course),
    }
}
