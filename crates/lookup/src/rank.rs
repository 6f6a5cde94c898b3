//! The order of providers: what is known about each as terms of a score, the best first, the dead last.

use crate::Millis;
use crate::breaker::BreakerState;

/// Weight of a new observation in an average.
const EWMA_WEIGHT: f64 = 0.2;
/// Round trip at which half of its term is left.
const RTT_HALF_MS: f64 = 100.0;
/// Tries without a success after which a provider is dead.
const DEAD_TRIES: u32 = 3;

/// What the node itself has seen of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Experience {
    /// Average round trip of the successes, newest weighing most.
    pub rtt_ms: Option<f64>,
    /// Average share of successes, newest weighing most.
    pub success: Option<f64>,
    /// Tries, up to a bound where counting on says nothing.
    pub tries: u32,
}

impl Experience {
    /// Counts one try and, if it succeeded, how long it took.
    pub fn observe(&mut self, took_ms: Option<Millis>) {
        let blend = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + EWMA_WEIGHT * (new - old)));
        self.success = blend(self.success, f64::from(u8::from(took_ms.is_some())));
        if let Some(took_ms) = took_ms {
            self.rtt_ms = blend(self.rtt_ms, took_ms as f64);
        }
        self.tries = self.tries.saturating_add(1);
    }

    fn is_dead(&self) -> bool {
        self.tries >= DEAD_TRIES && self.success.is_some_and(|success| success < 0.01 || self.rtt_ms.is_none())
    }
}

/// A provider and everything its rank depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderFacts<T> {
    /// The provider; equal scores are ordered by it, so that an order can be repeated.
    pub provider: T,
    /// What the node has seen of it.
    pub experience: Experience,
    /// Age of its record.
    pub age_ms: Millis,
    /// Time from issue to expiry of its record.
    pub lifetime_ms: Millis,
    /// Whether it says to be in the caller's region; `None` where one of them does not say.
    pub same_region: Option<bool>,
    /// State of its breaker.
    pub breaker: BreakerState,
    /// Whether somebody else signed for it: the provider itself has not promised anything.
    pub vouched: bool,
    /// Whether it proved to have the content; `None` where it was not asked.
    pub possession: Option<bool>,
}

/// Parts of a score; they add up to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// 0 to 0.30: short round trips; the middle where none is known.
    pub rtt: f64,
    /// 0 to 0.30: successes; the middle where none is known.
    pub success: f64,
    /// 0 to 0.15: a young record.
    pub age: f64,
    /// 0 to 0.10: the caller's region; the middle where it is not known.
    pub region: f64,
    /// 0 to 0.10: proof of possession, or the middle; a failed proof is -1.
    pub possession: f64,
    /// 0.05 for a record the provider signed itself.
    pub vouched: f64,
    /// 0 closed, -0.50 half-open, -1 open or dead by experience: below everything that lives.
    pub breaker: f64,
}

impl Terms {
    /// The score.
    pub fn sum(&self) -> f64 {
        self.rtt + self.success + self.age + self.region + self.possession + self.vouched + self.breaker
    }
}

/// A provider with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked<T> {
    /// The provider.
    pub provider: T,
    /// Sum of the terms.
    pub score: f64,
    /// What the score is made of.
    pub terms: Terms,
}

/// Orders providers, best first.
pub fn rank<T: Ord>(candidates: Vec<ProviderFacts<T>>) -> Vec<Ranked<T>> {
    let rank_one = |facts: ProviderFacts<T>| {
        let terms = terms(&facts);
        Ranked { provider: facts.provider, score: terms.sum(), terms }
    };
    let mut ranked: Vec<_> = candidates.into_iter().map(rank_one).collect();
    ranked.sort_by(|one, other| other.score.total_cmp(&one.score).then_with(|| one.provider.cmp(&other.provider)));
    ranked
}

fn terms<T>(facts: &ProviderFacts<T>) -> Terms {
    let either = |known: Option<bool>| known.map_or(0.5, |yes| f64::from(u8::from(yes)));
    let lifetime_ms = facts.lifetime_ms.max(1) as f64;
    let used_up = (facts.age_ms as f64 / lifetime_ms).clamp(0.0, 1.0);
    let is_dead = facts.breaker == BreakerState::Open || facts.experience.is_dead();
    Terms {
        rtt: 0.30 * facts.experience.rtt_ms.map_or(0.5, |rtt_ms| RTT_HALF_MS / (RTT_HALF_MS + rtt_ms.max(0.0))),
        success: 0.30 * facts.experience.success.unwrap_or(0.5),
        age: 0.15 * (1.0 - used_up),
        region: 0.10 * either(facts.same_region),
        possession: if facts.possession == Some(false) { -1.0 } else { 0.10 * either(facts.possession) },
        vouched: if facts.vouched { 0.0 } else { 0.05 },
        breaker: match facts.breaker {
            _ if is_dead => -1.0,
            BreakerState::HalfOpen => -0.5,
            _ => 0.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(provider: &'static str) -> ProviderFacts<&'static str> {
        ProviderFacts {
            provider,
            experience: Experience::default(),
            age_ms: 1_000,
            lifetime_ms: 10_000,
            same_region: None,
            breaker: BreakerState::Closed,
            vouched: false,
            possession: None,
        }
    }

    fn seen(tries: &[Option<Millis>]) -> Experience {
        let mut experience = Experience::default();
        tries.iter().for_each(|took| experience.observe(*took));
        experience
    }

    fn order(candidates: Vec<ProviderFacts<&'static str>>) -> Vec<&'static str> {
        rank(candidates).into_iter().map(|ranked| ranked.provider).collect()
    }

    #[test]
    fn each_fact_alone_decides_between_equals() {
        let base = || facts("base");
        let better = [
            ProviderFacts { experience: seen(&[Some(10)]), ..facts("quick") },
            ProviderFacts { age_ms: 10, ..facts("young") },
            ProviderFacts { same_region: Some(true), ..facts("near") },
            ProviderFacts { possession: Some(true), ..facts("proven") },
        ];
        for one in better {
            let name = one.provider;
            assert_eq!(order(vec![base(), one]), [name, "base"]);
        }
        let worse = [
            ProviderFacts { experience: seen(&[Some(400), None]), ..facts("slow") },
            ProviderFacts { age_ms: 9_999, ..facts("old") },
            ProviderFacts { same_region: Some(false), ..facts("far") },
            ProviderFacts { vouched: true, ..facts("vouched") },
            ProviderFacts { possession: Some(false), ..facts("without") },
            ProviderFacts { breaker: BreakerState::HalfOpen, ..facts("ailing") },
        ];
        for one in worse {
            let name = one.provider;
            assert_eq!(order(vec![one, base()]), ["base", name]);
        }
    }

    #[test]
    fn the_dead_sink_below_the_worst_that_live() {
        let best_but_open = ProviderFacts {
            experience: seen(&[Some(1); 50]),
            age_ms: 0,
            same_region: Some(true),
            possession: Some(true),
            breaker: BreakerState::Open,
            ..facts("open")
        };
        let never_answered = ProviderFacts { experience: seen(&[None; 3]), same_region: Some(true), ..facts("silent") };
        let worst_alive = ProviderFacts {
            experience: seen(&[Some(5_000), None, None, None]),
            age_ms: 10_000,
            same_region: Some(false),
            vouched: true,
            ..facts("worst")
        };
        let ranked = rank(vec![best_but_open, never_answered, worst_alive]);
        assert_eq!(ranked[0].provider, "worst");
        assert!(ranked[0].score > 0.0 && ranked[1].score <= 0.0 && ranked[2].score <= 0.0, "{ranked:?}");
    }

    #[test]
    fn the_terms_are_returned_and_add_up() {
        let ranked = rank(vec![ProviderFacts { experience: seen(&[Some(100)]), ..facts("one") }]);
        let Terms { rtt, success, age, region, possession, vouched, breaker } = ranked[0].terms;
        let all = [rtt, success, age, region, possession, vouched, breaker];
        assert_eq!(all.map(|term| (term * 1000.0).round()), [150.0, 300.0, 135.0, 50.0, 50.0, 50.0, 0.0]);
        assert!((ranked[0].score - all.iter().sum::<f64>()).abs() < 1e-12);
    }

    #[test]
    fn experience_follows_what_happens() {
        let experience = seen(&[Some(100), Some(200), None]);
        assert_eq!(experience.rtt_ms.map(f64::round), Some(120.0));
        assert_eq!(experience.success.map(|share| (share * 100.0).round()), Some(80.0));
        assert!(!experience.is_dead());
        let mut gone = seen(&[Some(100)]);
        (0..30).for_each(|_| gone.observe(None));
        assert!(gone.is_dead(), "answered once, long ago: {gone:?}");
    }

    #[test]
    fn equals_are_ordered_by_name() {
        assert_eq!(order(vec![facts("b"), facts("a"), facts("c")]), ["a", "b", "c"]);
    }
}
