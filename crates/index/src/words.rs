//! What the index is asked and what it answers, without a format.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ron_lookup::{AskEnd, BreakerState, Terms};
use ron_store::{ContentId, IpnsRecord, Multiaddr, NameRecord, PeerId, PeerRecord, ProviderRecord, PublicKey, Subject};

use ron_types::limits::index::PROVIDERS_MAX;

use crate::ports::TargetId;

/// How a question is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolveOptions {
    /// Time for the whole answer; never more than the configured deadline.
    pub budget: Option<Duration>,
    /// Ask the network, whatever the cache and the store know.
    pub fresh: bool,
    /// Maximum providers in the answer.
    pub max: usize,
    /// Address that asks, which shares the resolvers with others; none for the node itself.
    pub from: Option<IpAddr>,
}

impl Default for ResolveOptions {
    fn default() -> Self {
        ResolveOptions { budget: None, fresh: false, max: PROVIDERS_MAX, from: None }
    }
}

/// How much an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// There it is.
    Found,
    /// The peers nearest to the key all answered, and none knows it.
    Absent,
    /// The time was over, or too few answered, before either could be said.
    Unknown,
    /// As unknown, and some targets were not asked because they keep failing.
    Degraded,
}

impl Outcome {
    /// The word for it in answers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Found => "found",
            Outcome::Absent => "absent",
            Outcome::Unknown => "unknown",
            Outcome::Degraded => "degraded",
        }
    }
}

impl Source {
    /// The word for it in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Cache => "cache",
            Source::Store => "store",
            Source::Dht => "dht",
        }
    }
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// It was found a moment ago, and kept in memory.
    Cache,
    /// The node's own store.
    Store,
    /// A lookup among peers and upstream routers.
    Dht,
}

/// An answer: what a name or a hash leads to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// What was asked for.
    pub subject: Subject,
    /// The record of the name, if a name was asked for and found.
    pub name: Option<NameRecord>,
    /// The content that was asked for, or that the name leads to.
    pub content: Option<ContentId>,
    /// The document that the content is, where this node keeps it.
    pub manifest: Option<ManifestView>,
    /// Who has the content, best first.
    pub providers: Arc<[RankedProvider]>,
    /// Whether what was asked for was found: the name, or for content a provider or the document itself.
    pub outcome: Outcome,
    /// How the search for providers ended; for a name that was found this may differ from `outcome`.
    pub providers_outcome: Outcome,
    /// Targets that were left out because they keep failing.
    pub open_targets: usize,
    /// Time since it was found.
    pub age: Duration,
    /// Where the providers (or, without them, the name) come from.
    pub source: Source,
    /// Time for which the answer may be used without asking again.
    pub fresh_for: Duration,
    /// Questions of the lookup, in the order they were asked; empty if nobody was asked.
    pub course: Arc<[AskView]>,
    /// Time the answer took.
    pub took: Duration,
    /// Place for the encoding of a cached answer: all answers made from the same cached entry share it. It holds what
    /// does not change with age, time taken or the number of providers asked for.
    pub made: Arc<OnceLock<MadeAnswer>>,
}

/// A surface's encoding of an answer.
#[derive(Clone, Debug)]
pub struct MadeAnswer {
    /// The id it names: ids that differ in their codec alone share a cached entry, but not their text.
    pub subject: Subject,
    /// The encoding.
    pub bytes: Bytes,
}

/// A document that this node keeps. Its bytes were verified against the id before this was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestView {
    /// Hash of the document.
    pub id: ContentId,
    /// Length of the document in bytes.
    pub length: usize,
}

/// Somebody who has the content, and how good they look.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedProvider {
    /// What they, or somebody who vouches for them, said.
    pub record: ProviderRecord,
    /// Sum of the terms; larger is better.
    pub score: f64,
    /// What the score is made of.
    pub terms: Terms,
}

/// One question of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub struct AskView {
    /// Who was asked.
    pub target: TargetId,
    /// When, since the lookup began.
    pub started: Duration,
    /// When it was over, since the lookup began.
    pub ended: Duration,
    /// Whether it was asked because others took long.
    pub hedge: bool,
    /// Steps from the targets that were known first, which are step 1.
    pub hop: u32,
    /// What came of it.
    pub end: AskEnd,
    /// State of its breaker when it was to be asked: half-open if this question is the probe.
    pub breaker: BreakerState,
}

/// One value that a key leads to, with how it was found: for questions that are not about providers.
#[derive(Clone, Debug)]
pub struct Single<T> {
    /// The record, if there is one.
    pub record: Option<T>,
    /// How much the answer is worth.
    pub outcome: Outcome,
    /// Targets that were left out because they keep failing.
    pub open_targets: usize,
    /// Time since it was found.
    pub age: Duration,
    /// Where it comes from.
    pub source: Source,
    /// Time for which the answer may be used without asking again.
    pub fresh_for: Duration,
    /// Questions of the lookup.
    pub course: Arc<[AskView]>,
}

/// An answer about an IPNS name.
pub type IpnsAnswer = Single<IpnsRecord>;
/// An answer about where a peer is.
pub type PeerAnswer = Single<PeerRecord>;
/// An answer about a name.
pub type NameAnswer = Single<NameRecord>;

/// A provider as an operator publishes it: this node signs it, and so vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderOffer {
    /// The provider; none for this node itself.
    pub peer: Option<PeerId>,
    /// Where it is reached; none, for this node itself, means wherever it is reached then.
    pub addrs: Vec<Multiaddr>,
    /// Protocols it speaks.
    pub protocols: Vec<String>,
    /// Time after which the record ends. Where nobody says, 24 h, and a record of this node itself is renewed until it
    /// is withdrawn.
    pub ttl: Option<Duration>,
}

/// What became of something published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PublishOutcome {
    /// It is in the store, and on its way to the peers that keep it.
    Stored,
    /// It was known already.
    Same,
    /// A newer one is known; that one stays.
    Older,
}

/// Something that changed, for those who watch its subject.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A provider was published, renewed, or took its word back.
    Provider {
        /// The provider's record.
        record: ProviderRecord,
        /// Whether it has the content no more.
        withdrawn: bool,
    },
    /// The name leads somewhere from now on, or was taken back.
    Name(NameRecord),
    /// The document itself is here.
    Manifest(ContentId),
    /// Changes that came faster than this watcher read them, and were lost to it.
    Missed(u64),
}

/// What an operator does to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdminAction {
    /// Keep the document and what is known of it.
    Pin,
    /// Keep it no longer than others.
    Unpin,
    /// Forget what is cached and ask the network again.
    Reindex,
}

impl AdminAction {
    /// The word for it in routes and audit events.
    pub fn as_str(self) -> &'static str {
        match self {
            AdminAction::Pin => "pin",
            AdminAction::Unpin => "unpin",
            AdminAction::Reindex => "reindex",
        }
    }
}

/// An operator's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminRequest {
    /// What is to be done.
    pub action: AdminAction,
    /// To what.
    pub subject: Subject,
    /// Subject of the token that asks.
    pub by: String,
    /// Key under which the same request is done once in 24 hours.
    pub idempotency_key: Option<String>,
}

/// What became of an operator's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminDone {
    /// Whether it changed anything.
    pub changed: bool,
    /// Whether this is the answer to an earlier request with the same key.
    pub replayed: bool,
}

/// What happens in the index, for observers.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexEvent {
    /// An operator did something.
    Audited {
        /// What was done.
        action: AdminAction,
        /// To what.
        subject: Subject,
        /// By whom.
        by: String,
        /// What became of it.
        done: AdminDone,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// A lookup among peers ended.
    LookedUp(Arc<LookupSummary>),
    /// A target began or stopped to be left out.
    Breaker {
        /// The target.
        target: TargetId,
        /// Its state from now on.
        state: BreakerState,
    },
    /// Everything that was cached is forgotten.
    Purged {
        /// Answers that were forgotten.
        entries: u64,
    },
}

/// A lookup that ended, for the page that draws the last ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupSummary {
    /// What was looked up, as text.
    pub subject: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Targets that were left out because they keep failing.
    pub open_targets: usize,
    /// Records that were found.
    pub found: usize,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// Time it took.
    pub took: Duration,
    /// Its questions.
    pub course: Arc<[AskView]>,
}

/// Whether the pool of resolvers is large enough: `M >= ceil(lambda * E[service] / 0.7)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Lookups that came to the pool, in a second.
    pub lambda: f64,
    /// Mean time that a resolver has with one, in seconds.
    pub service_s: f64,
    /// Answers out of the cache, in a second; these take no resolver.
    pub hits: f64,
    /// Resolvers there are.
    pub workers: usize,
    /// Resolvers that the rule asks for.
    pub workers_wanted: usize,
}

/// How a target stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetView {
    /// The target.
    pub target: TargetId,
    /// State of its breaker.
    pub state: BreakerState,
    /// Questions in the error window.
    pub calls: u32,
    /// Of these, those that failed.
    pub failures: u32,
}

/// The index at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexStats {
    /// Answers in the cache.
    pub cached: u64,
    /// Bytes they take, about.
    pub cached_bytes: u64,
    /// Records in the store.
    pub records: u64,
    /// Lookups under way.
    pub flights: usize,
    /// Watchers.
    pub watchers: usize,
    /// Whether nothing is kept on disk.
    pub is_amnesia: bool,
    /// Key of this node, which is the owner of names without one.
    pub node_key: PublicKey,
}
