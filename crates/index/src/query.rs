//! One question with one answer: what is cached, flown and asked under one key.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ron_store::{IpnsRecord, Key, Name, NameRecord, PeerId, PeerRecord, PublicKey};
use tokio::time::Instant;

use crate::ports::Question;
use crate::words::{AskView, MadeAnswer, ManifestView, Outcome, RankedProvider, Source};

/// A question, as the key of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// Who has the content at this key.
    Providers(Key),
    /// Where a name leads.
    Name {
        /// The key whose namespace it is in.
        owner: PublicKey,
        /// The label in it.
        label: Arc<str>,
    },
    /// The record of an IPNS name.
    Ipns(PeerId),
    /// Where a peer is reached.
    Peer(PeerId),
}

/// How far a lookup goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Breadth {
    /// The first answer that holds ends it.
    First,
    /// It asks on until the nearest targets all answered or the time is over.
    Wide,
}

/// The answer to a [`Query`].
#[derive(Debug)]
pub(crate) struct Finding {
    pub what: What,
    pub outcome: Outcome,
    pub open_targets: usize,
    /// Where it came from when it was found: the store or the network.
    pub source: Source,
    pub course: Arc<[AskView]>,
    pub found_at: Instant,
    /// Until when it may be used without asking again.
    pub expires_at: Instant,
    /// How far the search went: the first answer that came says nothing of who else there is.
    pub breadth: Breadth,
    /// Place for a surface's encoding of it.
    pub made: Arc<OnceLock<MadeAnswer>>,
    /// The document that the content is, once somebody looked for it.
    pub manifest: OnceLock<Option<ManifestView>>,
}

/// What was found.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Nothing.
    Nothing,
    /// Providers, best first; at least one.
    Providers(Arc<[RankedProvider]>),
    /// The record of a name.
    Name(NameRecord),
    /// The record of an IPNS name.
    Ipns(IpnsRecord),
    /// The record of a peer.
    Peer(PeerRecord),
}

impl Query {
    /// The query about a name; `node` owns those that name no owner.
    pub fn name(name: &Name, node: PublicKey) -> Self {
        Query::Name { owner: name.owner().unwrap_or(node), label: name.label().into() }
    }

    /// The question as peers are asked it.
    pub fn question(&self) -> Question {
        match self {
            Query::Providers(key) => Question::Providers(*key),
            Query::Name { owner, label } => Question::Name { owner: *owner, label: (**label).to_owned() },
            Query::Ipns(name) => Question::Ipns(*name),
            Query::Peer(peer) => Question::Peer(*peer),
        }
    }
}

impl Finding {
    /// Nothing was found, for this reason, at this time.
    pub fn nothing(outcome: Outcome, now: Instant) -> Self {
        Finding {
            what: What::Nothing,
            outcome,
            open_targets: 0,
            source: Source::Dht,
            course: Arc::default(),
            found_at: now,
            expires_at: now,
            breadth: Breadth::Wide,
            made: Arc::default(),
            manifest: OnceLock::new(),
        }
    }

    /// Whether it went as far as a question wants.
    pub fn reaches(&self, breadth: Breadth) -> bool {
        breadth == Breadth::First || self.breadth == Breadth::Wide
    }

    /// The providers, if these were asked for and found.
    pub fn providers(&self) -> Arc<[RankedProvider]> {
        match &self.what {
            What::Providers(providers) => Arc::clone(providers),
            _ => Arc::default(),
        }
    }

    /// Number of records found.
    pub fn count(&self) -> usize {
        match &self.what {
            What::Nothing => 0,
            What::Providers(providers) => providers.len(),
            What::Name(_) | What::Ipns(_) | What::Peer(_) => 1,
        }
    }

    /// Time since it was found.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.found_at)
    }

    /// Time for which it may be used without asking again.
    pub fn fresh_for(&self, now: Instant) -> Duration {
        self.expires_at.saturating_duration_since(now)
    }

    /// Memory it takes, about: the records, the course, and what a surface will make of them.
    pub fn weight(&self) -> u32 {
        const FIXED: usize = 512;
        const PER_ADDRESS: usize = 64;
        const PER_ASK: usize = 128;
        let records = match &self.what {
            What::Nothing => 0,
            What::Providers(providers) => providers
                .iter()
                .map(|provider| {
                    let record = &provider.record;
                    let addrs: usize = record.addrs.iter().map(|addr| addr.len() + PER_ADDRESS).sum();
                    let protocols: usize = record.protocols.iter().map(|name| name.len() + PER_ADDRESS).sum();
                    FIXED + addrs + protocols
                })
                .sum(),
            What::Name(_) | What::Peer(_) => FIXED,
            What::Ipns(record) => FIXED + record.bytes().len(),
        };
        // Twice: once as records, once as the text that answers are made of.
        u32::try_from(2 * records + FIXED + PER_ASK * self.course.len()).unwrap_or(u32::MAX)
    }
}
