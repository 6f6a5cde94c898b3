//! What of the replies holds: records are verified, are about what was asked, and the better of two wins.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ron_lookup::{ProviderFacts, rank};
use ron_store::{PeerId, ProviderRecord, PublicKey, Record};
use ron_types::limits::index::CANDIDATES_MAX;
use ron_types::limits::records::WIRE_RECORDS_MAX;

use crate::ports::Question;
use crate::possession::Possessions;
use crate::query::What;
use crate::targets::Targets;
use crate::words::RankedProvider;

/// What the replies of one lookup come to.
pub(crate) struct Judge {
    question: Question,
    /// Providers by who they are and who says so.
    providers: BTreeMap<(PeerId, PublicKey), ProviderRecord>,
    /// The best record, for questions that have one.
    single: Option<Record>,
    /// Encodings that were verified: several targets keep the same record, and a signature costs fifty microseconds.
    verified: HashSet<Vec<u8>>,
}

/// What the order of providers depends on beside their records.
pub(crate) struct Ranking<'a> {
    pub targets: &'a Targets,
    pub possessions: &'a Possessions,
    /// Region of this node; none if nobody said.
    pub region: Option<Arc<str>>,
}

impl Ranking<'_> {
    /// What a provider says of itself; what others say of its region is hearsay.
    fn is_same_region(&self, record: &ProviderRecord) -> Option<bool> {
        let said = record.region.as_deref().filter(|_| record.is_self_signed())?;
        Some(self.region.as_deref()? == said)
    }
}

/// What one reply is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// It holds a record that was wanted and verified.
    Satisfactory,
    /// It holds none.
    Empty,
    /// It holds a record that pretends to be one: whoever sent it is not to be trusted.
    Forged,
}

impl Judge {
    /// Nothing heard yet.
    pub fn new(question: Question) -> Self {
        Judge { question, providers: BTreeMap::new(), single: None, verified: HashSet::new() }
    }

    /// Takes the records of one reply.
    pub fn hear(&mut self, records: Vec<Record>, now_ms: u64) -> Worth {
        let mut holding = Vec::new();
        for record in records.into_iter().take(WIRE_RECORDS_MAX) {
            if !self.question.is_answered_by(&record) {
                continue;
            }
            match self.verifies(&record, now_ms) {
                Verified::Yes => holding.push(record),
                Verified::Over => {}
                // Whoever shows one forged record is believed in nothing.
                Verified::No => return Worth::Forged,
            }
        }
        let of_use = holding.into_iter().filter(|record| self.take(record, now_ms)).count();
        if of_use > 0 { Worth::Satisfactory } else { Worth::Empty }
    }

    fn verifies(&mut self, record: &Record, now_ms: u64) -> Verified {
        // A clock that is behind by a moment makes nobody a liar.
        if record.kept_until_ms() <= now_ms {
            return Verified::Over;
        }
        let encoded = record.encode();
        if self.verified.contains(&encoded) {
            return Verified::Yes;
        }
        if record.verify(now_ms).is_err() {
            return Verified::No;
        }
        self.verified.insert(encoded);
        Verified::Yes
    }

    /// Keeps a record that was verified; whether it is of use to whoever asked.
    fn take(&mut self, record: &Record, now_ms: u64) -> bool {
        let Record::Provider(provider) = record else {
            let is_better = self.single.as_ref().is_none_or(|known| record.supersedes(known));
            if is_better {
                self.single = Some(record.clone());
            }
            // That a name was taken back is worth keeping, but others may know better.
            return !matches!(record, Record::Name(name) if name.withdraws());
        };
        let is_live = !provider.withdraws() && provider.expires_ms > now_ms;
        let by = (provider.peer, provider.signer);
        match self.providers.get(&by) {
            Some(known) if !supersedes(provider, known) => {}
            None if self.providers.len() >= CANDIDATES_MAX => {}
            _ => drop(self.providers.insert(by, provider.clone())),
        }
        is_live
    }

    /// What was found, ranked.
    pub fn what(&self, ranking: &Ranking<'_>, now_ms: u64) -> What {
        let live = self.live(now_ms).into_iter().map(Record::Provider);
        known(self.single.iter().cloned().chain(live).collect(), ranking, now_ms)
    }

    /// Providers that have the content now. What a peer says of itself counts, and not what others say of it.
    fn live(&self, now_ms: u64) -> Vec<ProviderRecord> {
        let speaks_itself =
            |peer: &PeerId| peer.public_key().is_some_and(|own| self.providers.contains_key(&(*peer, own)));
        let counts = |record: &&ProviderRecord| {
            let is_live = !record.withdraws() && record.expires_ms > now_ms;
            is_live && (record.is_self_signed() || !speaks_itself(&record.peer))
        };
        self.providers.values().filter(counts).cloned().collect()
    }
}

enum Verified {
    Yes,
    /// Its time is over, which is nobody's fault.
    Over,
    No,
}

fn supersedes(one: &ProviderRecord, other: &ProviderRecord) -> bool {
    Record::Provider(one.clone()).supersedes(&Record::Provider(other.clone()))
}

/// What records come to that are known to hold: the one there is, or all providers in order.
pub(crate) fn known(records: Vec<Record>, ranking: &Ranking<'_>, now_ms: u64) -> What {
    let mut providers = Vec::with_capacity(records.len());
    for record in records {
        match record {
            Record::Provider(record) => providers.push(record),
            Record::Name(record) if record.withdraws() => {}
            Record::Name(record) => return What::Name(record),
            Record::Ipns(record) => return What::Ipns(record),
            Record::Peer(record) => return What::Peer(record),
        }
    }
    ranked(&providers, ranking, now_ms)
}

/// Providers in order, best first.
fn ranked(records: &[ProviderRecord], ranking: &Ranking<'_>, now_ms: u64) -> What {
    let facts = records.iter().enumerate().map(|(place, record)| {
        let (experience, breaker) = ranking.targets.standing(&record.peer);
        ProviderFacts {
            provider: (record.peer, record.signer, place),
            experience,
            age_ms: now_ms.saturating_sub(record.issued_ms),
            lifetime_ms: record.expires_ms.saturating_sub(record.issued_ms),
            same_region: ranking.is_same_region(record),
            breaker,
            vouched: !record.is_self_signed(),
            possession: ranking.possessions.of(&record.key, &record.peer),
        }
    });
    let ranked = rank(facts.collect());
    let providers: Vec<RankedProvider> = ranked
        .into_iter()
        // All that were looked at: a caller that filters must not be left with the best of those it does not want.
        .take(CANDIDATES_MAX)
        .map(|ranked| RankedProvider {
            record: records[ranked.provider.2].clone(),
            score: ranked.score,
            terms: ranked.terms,
        })
        .collect();
    if providers.is_empty() { What::Nothing } else { What::Providers(providers.into()) }
}
