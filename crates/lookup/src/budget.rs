//! The budget of hedges: a token bucket filled by the questions that are asked anyway, so that hedging stays a small
//! share of the load even when everything is late.

use ron_types::limits::lookup as limits;

/// Thousandths of a token, so that the share of a question is a whole number.
const TOKEN: u64 = 1000;

/// Tokens of a new budget: enough to hedge the first lookup, too few to be seen in the share of hedges.
const TOKENS_AT_START: u64 = 2 * TOKEN;

/// Tokens for hedges.
#[derive(Clone, Debug)]
pub struct HedgeBudget {
    per_mille: u64,
    tokens: u64,
    tokens_max: u64,
    asks: u64,
    hedges: u64,
}

impl HedgeBudget {
    /// A budget that allows `per_mille` hedges for a thousand questions, and `burst` of them in a row.
    pub fn new(per_mille: u32, burst: u32) -> Self {
        let tokens_max = u64::from(burst) * TOKEN;
        let tokens = TOKENS_AT_START.min(tokens_max);
        HedgeBudget { per_mille: u64::from(per_mille), tokens, tokens_max, asks: 0, hedges: 0 }
    }

    /// Counts a question that is no hedge, which earns a share of a token.
    pub fn asked(&mut self) {
        self.asks += 1;
        self.tokens = self.tokens_max.min(self.tokens + self.per_mille);
    }

    /// Takes a token for a hedge, if there is one.
    pub fn take(&mut self) -> bool {
        let is_granted = self.tokens >= TOKEN;
        if is_granted {
            self.tokens -= TOKEN;
            self.hedges += 1;
        }
        is_granted
    }

    /// Questions and hedges so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.asks, self.hedges)
    }
}

impl Default for HedgeBudget {
    fn default() -> Self {
        HedgeBudget::new(limits::HEDGE_PER_MILLE, limits::HEDGE_BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedges_never_exceed_the_burst_and_the_share() {
        let mut budget = HedgeBudget::new(95, 10);
        let mut hedges = 0;
        for asks in 0..100_000u64 {
            while budget.take() {
                hedges += 1;
            }
            assert!(hedges * 1000 <= 2_000 + asks * 95, "{hedges} hedges after {asks} asks");
            budget.asked();
        }
        assert!(hedges >= 9_490, "a share that is never used up would be no share: {hedges}");
        assert!(hedges * 10 <= 100_000, "the first tokens are paid back");
    }

    #[test]
    fn tokens_do_not_gather_beyond_the_burst() {
        let mut budget = HedgeBudget::new(1000, 2);
        (0..100).for_each(|_| budget.asked());
        assert_eq!((0..10).filter(|_| budget.take()).count(), 2);
        assert_eq!(budget.counts(), (100, 2));
    }
}
