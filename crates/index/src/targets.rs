//! What the node has seen of the targets it asks: breakers, latencies, the budget of hedges, and how each peer did.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ron_lookup::{
    BreakerLimits, BreakerState, BreakerTable, Experience, Guards, HedgeBudget, HedgeLimits, LatencyTrack, Millis,
    TargetGuards, Verdict,
};
use ron_store::PeerId;
use ron_types::limits::index::{PEERS_REMEMBERED_MAX, TARGETS_NAMED_MAX};

use crate::config::BreakerOptions;
use crate::ports::{TargetClass, TargetId};
use crate::words::TargetView;

/// Label of metrics for targets beyond those that are named.
const OTHER: &str = "other";

/// All targets. One lock, held for the length of a decision and never across a wait.
pub(crate) struct Targets {
    table: Mutex<Table>,
}

struct Table {
    guards: TargetGuards<TargetId, TargetClass>,
    peers: HashMap<PeerId, Experience>,
    /// Targets that were not closed when the janitor last looked.
    seen: BTreeMap<TargetId, BreakerState>,
    /// Times a breaker opened, by target.
    opened: BTreeMap<String, u64>,
}

/// The guards of one step of a lookup, which also learn how peers did.
pub(crate) struct Watching<'a> {
    table: MutexGuard<'a, Table>,
}

impl Targets {
    /// Nothing known yet; `seed` decides the jitter of cool-downs.
    pub fn new(options: BreakerOptions, seed: u64) -> Self {
        let breakers = BreakerTable::new(limits(options), seed);
        let guards = TargetGuards::new(breakers, HedgeBudget::default(), TargetId::class);
        let table = Table { guards, peers: HashMap::new(), seen: BTreeMap::new(), opened: BTreeMap::new() };
        Targets { table: Mutex::new(table) }
    }

    /// Applies changed thresholds.
    pub fn set_limits(&self, options: BreakerOptions) {
        self.lock().guards.breakers.set_limits(limits(options));
    }

    /// The guards for one step of a lookup.
    pub fn guards(&self) -> Watching<'_> {
        Watching { table: self.lock() }
    }

    /// Limits with the waits that fit these classes: a hedge is due when the quicker one is late, or `at_first` where
    /// too little is known, and a target has failed when the slower one would have answered.
    pub fn pace(&self, classes: &[TargetClass], at_first: Millis) -> HedgeLimits {
        let table = self.lock();
        let latency: &LatencyTrack<TargetClass> = &table.guards.latency;
        let defaults = HedgeLimits::default();
        let due = |class: &TargetClass| match latency.p95_ms(class) {
            Some(_) => latency.hedge_after_ms(class),
            None => at_first,
        };
        HedgeLimits {
            hedge_after_ms: classes.iter().map(due).min().unwrap_or(at_first),
            ask_timeout_ms: classes
                .iter()
                .map(|class| latency.ask_timeout_ms(class))
                .max()
                .unwrap_or(defaults.ask_timeout_ms),
            ..defaults
        }
    }

    /// What the node has seen of a peer, and the state of its breaker.
    pub fn standing(&self, peer: &PeerId) -> (Experience, BreakerState) {
        let table = self.lock();
        let experience = table.peers.get(peer).copied().unwrap_or_default();
        (experience, table.guards.breakers.state(&TargetId::Peer(*peer)))
    }

    /// Ends cool-downs; gives the targets whose state changed since the last call.
    pub fn roll(&self, now_ms: Millis) -> Vec<(TargetId, BreakerState)> {
        let mut table = self.lock();
        table.guards.breakers.roll(now_ms);
        let now: BTreeMap<TargetId, BreakerState> = table
            .guards
            .breakers
            .iter(now_ms)
            .filter(|(_, view)| view.state != BreakerState::Closed)
            .map(|(target, view)| (target.clone(), view.state))
            .collect();
        let mut changed: Vec<(TargetId, BreakerState)> =
            now.iter().filter(|(target, state)| table.seen.get(*target) != Some(*state)).map(copied).collect();
        let closed = table.seen.keys().filter(|target| !now.contains_key(*target));
        changed.extend(closed.map(|target| (target.clone(), BreakerState::Closed)));
        for (target, _) in changed.iter().filter(|(_, state)| *state == BreakerState::Open) {
            table.count_opened(target);
        }
        table.seen = now;
        changed
    }

    /// Targets and their breakers, those that are left out first, as many as metrics name.
    pub fn views(&self, now_ms: Millis) -> Vec<TargetView> {
        let table = self.lock();
        let mut views: Vec<TargetView> = table
            .guards
            .breakers
            .iter(now_ms)
            .map(|(target, view)| TargetView {
                target: target.clone(),
                state: view.state,
                calls: view.calls,
                failures: view.failures,
            })
            .collect();
        views.sort_by(|one, other| other.state.cmp(&one.state).then_with(|| one.target.cmp(&other.target)));
        views.truncate(TARGETS_NAMED_MAX);
        views
    }

    /// Times a breaker opened, by target.
    pub fn opened(&self) -> BTreeMap<String, u64> {
        self.lock().opened.clone()
    }

    /// Questions that were no hedges, and hedges, so far.
    pub fn asked(&self) -> (u64, u64) {
        self.lock().guards.budget.counts()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn count_opened(&mut self, target: &TargetId) {
        let name = target.to_string();
        let is_named = self.opened.contains_key(&name) || self.opened.len() < TARGETS_NAMED_MAX;
        *self.opened.entry(if is_named { name } else { OTHER.to_owned() }).or_default() += 1;
    }

    fn observe(&mut self, target: &TargetId, verdict: Verdict, took_ms: Millis) {
        let TargetId::Peer(peer) = target else { return };
        let took_ms = match verdict {
            Verdict::Answered => Some(took_ms),
            Verdict::Failed => None,
            Verdict::Cancelled => return,
        };
        if !self.peers.contains_key(peer) && self.peers.len() >= PEERS_REMEMBERED_MAX {
            // The order of a hash map is as good as chance, and costs nothing to keep.
            let leaving: Vec<PeerId> = self.peers.keys().take(PEERS_REMEMBERED_MAX / 16).copied().collect();
            for peer in &leaving {
                self.peers.remove(peer);
            }
        }
        self.peers.entry(*peer).or_default().observe(took_ms);
    }
}

impl Guards<TargetId> for Watching<'_> {
    fn admit(&mut self, target: &TargetId, now_ms: Millis) -> ron_lookup::Admission {
        self.table.guards.admit(target, now_ms)
    }

    fn is_closed(&self, target: &TargetId) -> bool {
        self.table.guards.is_closed(target)
    }

    fn asked(&mut self) {
        self.table.guards.asked();
    }

    fn take_hedge(&mut self) -> bool {
        self.table.guards.take_hedge()
    }

    fn ended(&mut self, target: &TargetId, verdict: Verdict, took_ms: Millis, now_ms: Millis) {
        self.table.guards.ended(target, verdict, took_ms, now_ms);
        self.table.observe(target, verdict, took_ms);
    }
}

fn limits(options: BreakerOptions) -> BreakerLimits {
    let defaults = BreakerLimits::default();
    let cooldown_ms = options.cooldown_s * 1000;
    BreakerLimits {
        error_window_ms: options.error_window_s * 1000,
        // The table opens above its threshold and the setting names the share that is too much, so one less.
        trip_per_mille: u32::try_from(options.trip_threshold * 10).unwrap_or(1000).saturating_sub(1),
        cooldown_ms,
        cooldown_max_ms: defaults.cooldown_max_ms.max(cooldown_ms),
        half_open_probes: options.half_open_probes,
        ..defaults
    }
}

fn copied((target, state): (&TargetId, &BreakerState)) -> (TargetId, BreakerState) {
    (target.clone(), *state)
}
