//! The figures of a run, and the promises they are held to.

use std::fmt;

use ron_lookup::Millis;

use super::suite::DhtScenario;
use super::world::Membership;

/// Steps within which 99 of 100 lookups end.
const HOPS_P99_MAX: u32 = 5;
/// Time within which 99 of 100 lookups end where a fifth of the peers are black holes or slow: of one step, and of
/// several, each of which can meet one.
const SICK_P99_MS_MAX: (Millis, Millis) = (400, 700);

/// What lookups in one network brought and cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DhtReport {
    /// What the nodes knew of each other.
    pub membership: Membership,
    /// Nodes alive at the end.
    pub nodes: usize,
    /// Lookups of records that exist.
    pub lookups: usize,
    /// Those that found the newest record, if not at once then in the background.
    pub found: usize,
    /// Those whose first answer was an older record that is still valid.
    pub first_stale: usize,
    /// Those that had nothing newer than that after the look in the background either.
    pub stale: usize,
    /// Those that believed a record that is not valid.
    pub wrong: usize,
    /// Those that called an existing record absent.
    pub falsely_absent: usize,
    /// Lookups of keys without a record.
    pub absent_lookups: usize,
    /// Those that said so.
    pub absent: usize,
    /// Those that found something there.
    pub invented: usize,
    /// Median and 99th percentile of steps to the record.
    pub hops: (u32, u32),
    /// Median and 99th percentile of the time to the record.
    pub took_ms: (Millis, Millis),
    /// Longest lookup of all.
    pub longest_ms: Millis,
    /// Questions that were no hedges, and hedges.
    pub asks: (u64, u64),
    /// Records of which a copy is left, of all.
    pub surviving: (usize, usize),
    /// Nodes that left in the run.
    pub left: u64,
    /// Calls that handed records on.
    pub repair_calls: u64,
}

impl DhtReport {
    /// Hedges as a share of the other questions.
    pub fn hedge_share(&self) -> f64 {
        self.asks.1 as f64 / (self.asks.0.max(1)) as f64
    }

    /// The promises that are broken, in words.
    pub fn broken(&self, scenario: DhtScenario) -> Vec<String> {
        let found_per_mille = self.found * 1000 / self.lookups.max(1);
        let stale_per_mille = self.stale * 1000 / self.lookups.max(1);
        let (found_min, hedges_max) = match scenario {
            DhtScenario::Steady => (1000, 0.05),
            DhtScenario::Sick | DhtScenario::Churn => (999, 0.10),
            DhtScenario::Liars => (980, 0.10),
        };
        let falsely_absent_max = if scenario == DhtScenario::Liars { self.lookups / 1000 } else { 0 };
        let mut broken = Vec::new();
        let mut promise = |holds: bool, words: &str| {
            if !holds {
                broken.push(words.to_owned());
            }
        };
        promise(self.wrong == 0 && self.invented == 0, "a record that is not valid was believed");
        promise(found_per_mille >= found_min, "too few of the records were found");
        promise(stale_per_mille <= 10, "old records were believed for good too often");
        // The first liar with an old record wins the first answer: only those who lie make one.
        let is_first_newest = scenario == DhtScenario::Liars || self.first_stale == 0;
        promise(is_first_newest, "an old record was the first answer where nobody lies");
        promise(self.falsely_absent <= falsely_absent_max, "a record that exists was called absent");
        promise(self.surviving.0 == self.surviving.1, "records were lost");
        promise(self.hops.1 <= HOPS_P99_MAX, "the way was too long");
        promise(self.longest_ms <= 1200, "a lookup passed its deadline");
        promise(self.hedge_share() <= hedges_max, "hedges cost too much");
        let sick_p99_ms_max = match self.membership {
            Membership::Complete => SICK_P99_MS_MAX.0,
            Membership::Partial => SICK_P99_MS_MAX.1,
        };
        let is_quick = scenario != DhtScenario::Sick || self.took_ms.1 <= sick_p99_ms_max;
        promise(is_quick, "sick peers delayed the lookups");
        let absent_min = if scenario == DhtScenario::Steady { self.absent_lookups } else { 0 };
        promise(self.absent >= absent_min, "an absent record was not called absent");
        broken
    }
}

impl fmt::Display for DhtReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} nodes {} lookups {} found {} first stale {} stale {} wrong {} falsely absent {} absent {}/{} invented {} hops p50 {} \
             p99 {} ms p50 {} p99 {} max {} asks {} hedges {:.2} % surviving {}/{} left {} repair calls {}",
            self.membership,
            self.nodes,
            self.lookups,
            self.found,
            self.first_stale,
            self.stale,
            self.wrong,
            self.falsely_absent,
            self.absent,
            self.absent_lookups,
            self.invented,
            self.hops.0,
            self.hops.1,
            self.took_ms.0,
            self.took_ms.1,
            self.longest_ms,
            self.asks.0,
            self.hedge_share() * 100.0,
            self.surviving.0,
            self.surviving.1,
            self.left,
            self.repair_calls
        )
    }
}
