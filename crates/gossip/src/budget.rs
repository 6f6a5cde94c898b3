//! Token buckets without a clock of their own: what a peer or a lane may do in a second, and at once.

use crate::names::Micros;

const SECOND: u64 = 1_000_000;

/// What a bucket allows. A rate of zero is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens that come back in a second; 0 for no bound.
    pub per_second: u64,
    /// Most tokens there can be: what may happen at once.
    pub burst: u64,
}

/// A bucket of tokens. A refusal says how long to wait, and takes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    tokens: u64,
    /// Time up to which tokens were added.
    filled_at: Micros,
}

impl Bucket {
    /// A full bucket.
    pub fn full(rate: Rate, now: Micros) -> Self {
        Bucket { tokens: rate.burst, filled_at: now }
    }

    /// Takes tokens, or says after how many microseconds they will be there. More than the burst at once is taken when
    /// the bucket is full: otherwise one large frame would wait for ever.
    pub fn take(&mut self, rate: Rate, now: Micros, tokens: u64) -> Result<(), Micros> {
        if rate.per_second == 0 {
            return Ok(());
        }
        self.fill(rate, now);
        let needed = tokens.min(rate.burst.max(1));
        if self.tokens >= needed {
            self.tokens -= needed;
            return Ok(());
        }
        let missing = u128::from(needed - self.tokens) * u128::from(SECOND);
        Err((missing.div_ceil(u128::from(rate.per_second))).min(u128::from(u64::MAX)) as u64)
    }

    fn fill(&mut self, rate: Rate, now: Micros) {
        let passed = now.saturating_sub(self.filled_at);
        if passed == 0 {
            return; // the common case of a batch, without a division
        }
        let came = u128::from(passed) * u128::from(rate.per_second) / u128::from(SECOND);
        if came == 0 {
            return;
        }
        if u128::from(self.tokens) + came >= u128::from(rate.burst) {
            self.tokens = rate.burst.max(1);
            self.filled_at = now;
        } else {
            self.tokens += came as u64;
            // Only the time that made whole tokens is spent, so that frequent calls lose nothing to rounding.
            self.filled_at += (came * u128::from(SECOND) / u128::from(rate.per_second)) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let rate = Rate { per_second: 1000, burst: 10 };
        let mut bucket = Bucket::full(rate, 0);
        assert_eq!(bucket.take(rate, 0, 10), Ok(()));
        assert_eq!(bucket.take(rate, 0, 1), Err(1000));
        assert_eq!(bucket.take(rate, 999, 1), Err(1000), "a refusal takes nothing, and waits for a whole token");
        assert_eq!(bucket.take(rate, 1000, 1), Ok(()));
        assert_eq!(bucket.take(rate, SECOND, 11), Ok(()), "more than the burst is taken from a full bucket");
        assert_eq!(bucket.take(rate, SECOND, 1), Err(1000));
    }

    #[test]
    fn frequent_calls_lose_nothing_to_rounding() {
        let rate = Rate { per_second: 3, burst: 3 };
        let mut bucket = Bucket::full(rate, 0);
        let taken = (0..10 * SECOND).step_by(1000).filter(|now| bucket.take(rate, *now, 1).is_ok()).count();
        assert_eq!(taken, 3 + 29);
    }

    #[test]
    fn zero_is_no_bound_and_huge_numbers_do_not_overflow() {
        let none = Rate { per_second: 0, burst: 0 };
        assert_eq!(Bucket::full(none, 0).take(none, 0, u64::MAX), Ok(()));
        let huge = Rate { per_second: u64::MAX, burst: u64::MAX };
        let mut bucket = Bucket::full(huge, 0);
        assert_eq!(bucket.take(huge, u64::MAX, u64::MAX), Ok(()));
        let slow = Rate { per_second: 1, burst: u64::MAX };
        let mut bucket = Bucket::full(slow, u64::MAX);
        assert_eq!(bucket.take(slow, 0, u64::MAX), Ok(()));
        assert_eq!(bucket.take(slow, 0, u64::MAX), Err(u64::MAX));
    }
}
