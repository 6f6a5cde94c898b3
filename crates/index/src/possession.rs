//! Whether providers have what they say: in the background, the best of an answer are asked for a chunk of it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::future::join_all;
use ron_kernel::{Deadline, clock};
use ron_store::{ContentId, Key, PeerId, Record};
use ron_types::limits::index::{POSSESSION_TTL, POSSESSION_UNKNOWN_TTL, PROBE_TIME, PROBES_PER_ANSWER_MAX};
use tokio::time::Instant;

use crate::judge::known;
use crate::prefetch::{Refresh, Why};
use crate::query::{Finding, Query, What};
use crate::shared::Shared;

/// Verdicts of one generation; the older of two is forgotten when the younger is full.
const GENERATION_MAX: usize = 4096;

/// What probes came to, the last few thousand.
#[derive(Default)]
pub(crate) struct Possessions(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<(Key, PeerId), Verdict>,
    old: HashMap<(Key, PeerId), Verdict>,
}

/// What a probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    /// Whether the provider proved it; none if it could not be asked, or keeps the content elsewhere.
    is_proven: Option<bool>,
    until: Instant,
}

impl Possessions {
    /// Whether a provider proved lately to have the content at a key; none where it was not asked or did not say.
    pub fn of(&self, key: &Key, peer: &PeerId) -> Option<bool> {
        self.verdict(key, peer).and_then(|verdict| verdict.is_proven)
    }

    fn verdict(&self, key: &Key, peer: &PeerId) -> Option<Verdict> {
        let (known, at) = (self.lock(), (*key, *peer));
        let verdict = known.young.get(&at).or_else(|| known.old.get(&at)).copied();
        verdict.filter(|verdict| verdict.until > clock::now())
    }

    fn note(&self, key: Key, peer: PeerId, is_proven: Option<bool>) {
        let mut known = self.lock();
        if known.young.len() >= GENERATION_MAX {
            known.old = std::mem::take(&mut known.young);
        }
        let lasts = if is_proven.is_some() { POSSESSION_TTL } else { POSSESSION_UNKNOWN_TTL };
        known.young.insert((key, peer), Verdict { is_proven, until: clock::now() + lasts });
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.lock() = Generations::default();
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Whether providers are probed.
    pub fn probes(&self) -> bool {
        self.options.network.is_some() && self.live.get().value.possession_probe
    }

    /// Has the providers of an answer probed once whoever asked has it.
    pub fn probe_later(
        &self,
        query: &Query,
        content: Option<ContentId>,
        finding: &Finding,
        shown: &dyn std::fmt::Display,
    ) {
        if self.probes() && matches!(finding.what, What::Providers(_)) {
            // A full queue means that they are probed after the next answer.
            let (query, shown) = (query.clone(), shown.to_string());
            let _ = self.refresh.offer(Refresh { query, content, shown, why: Why::Probe });
        }
    }

    /// Probes the best providers of a remembered answer, and puts them into the order that follows from it.
    pub async fn probe(&self, query: &Query, content: Option<ContentId>) {
        let (Some(finding), Query::Providers(key)) = (self.cache.get(query).await, query) else { return };
        let digest = content.and_then(|content| content.blake3_digest());
        let (Some(digest), Some(network)) = (digest, &self.options.network) else { return };
        let unproven = self.unproven(key, &finding);
        let probes = unproven.into_iter().map(|peer| async move {
            let draw = draw();
            let proof = network.prove(&peer, digest, draw, PROBE_TIME);
            let proof = Deadline::after(PROBE_TIME).run("index_probe", proof).await;
            // Who cannot be asked, or keeps the content elsewhere, has proved nothing and told no lie.
            let is_proven = match proof {
                Ok(Ok(Some(proof))) => Some(proof.proves(&digest, draw)),
                Ok(Ok(None) | Err(_)) | Err(_) => None,
            };
            self.counts.probed(is_proven);
            self.possessions.note(*key, peer, is_proven);
        });
        join_all(probes).await;
        self.rank_anew(query).await;
    }

    /// Puts the answer that is remembered now, perhaps a newer one than was probed, into the order that follows from
    /// what its providers showed. A lookup that ended meanwhile may have ranked them before they showed it.
    async fn rank_anew(&self, query: &Query) {
        let epoch = self.cache.epoch(query);
        let Some(finding) = self.cache.get(query).await else { return };
        let ranked = self.ranked_anew(&finding);
        if shown(&ranked) != shown(&finding) {
            self.cache.keep(query, Arc::new(ranked), epoch).await;
        }
    }

    /// The best providers of which it is not known whether they have it, without this node.
    fn unproven(&self, key: &Key, finding: &Finding) -> Vec<PeerId> {
        let mut peers = Vec::new();
        for provider in finding.providers().iter() {
            let peer = provider.record.peer;
            let is_known = peer == self.node_peer() || self.possessions.verdict(key, &peer).is_some();
            if peers.len() < PROBES_PER_ANSWER_MAX && !is_known && !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        peers
    }

    fn ranked_anew(&self, finding: &Finding) -> Finding {
        let records = finding.providers().iter().map(|provider| Record::Provider(provider.record.clone())).collect();
        Finding {
            what: known(records, &self.ranking(), self.unix_ms()),
            outcome: finding.outcome,
            open_targets: finding.open_targets,
            source: finding.source,
            course: Arc::clone(&finding.course),
            found_at: finding.found_at,
            expires_at: finding.expires_at,
            breadth: finding.breadth,
            made: Arc::default(),
            manifest: OnceLock::new(),
        }
    }
}

/// Who provides, best first, and what their score has for possession.
fn shown(finding: &Finding) -> Vec<(PeerId, f64)> {
    finding.providers().iter().map(|provider| (provider.record.peer, provider.terms.possession)).collect()
}

/// A number that nobody can guess: whoever has a part of the content must not know which chunk will be asked for.
fn draw() -> u64 {
    // A fresh state is seeded by the system.
    RandomState::new().hash_one(0)
}
