//! Bytes in a second that a peer may be sent, shared by all engines.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Longest time that somebody is told to wait.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// What a peer has left of its budget. It begins with a second's worth, and never has more.
#[derive(Debug, Default)]
pub(crate) struct SendBudget(Mutex<Option<Left>>);

#[derive(Clone, Copy, Debug)]
struct Left {
    /// Negative after a message that was larger than what was left: large ones are not refused for ever.
    bytes: i64,
    at: Instant,
}

impl SendBudget {
    /// Whether something may be sent now; otherwise the time after which it may be.
    pub(crate) fn check(&self, now: Instant, bytes_per_second: usize) -> Result<(), Duration> {
        if bytes_per_second == 0 {
            return Ok(());
        }
        let left = self.refilled(now, bytes_per_second, 0);
        match u64::try_from(1 - left) {
            Ok(missing) if left <= 0 => {
                let wait = Duration::from_secs_f64(missing as f64 / bytes_per_second as f64);
                Err(wait.clamp(Duration::from_millis(1), WAIT_MAX))
            }
            _ => Ok(()),
        }
    }

    /// Counts what was sent.
    pub(crate) fn spend(&self, now: Instant, bytes_per_second: usize, bytes: usize) {
        if bytes_per_second > 0 {
            self.refilled(now, bytes_per_second, bytes as i64);
        }
    }

    fn refilled(&self, now: Instant, bytes_per_second: usize, spent: i64) -> i64 {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = bytes_per_second as i64;
        let before = left.unwrap_or(Left { bytes: most, at: now });
        let came = now.saturating_duration_since(before.at).as_secs_f64() * bytes_per_second as f64;
        // Parts of a byte are left for the next time, with the time that brought them.
        let at = if came >= 1.0 { now } else { before.at };
        let came = if came >= 1.0 { came as i64 } else { 0 };
        let bytes = before.bytes.saturating_add(came).min(most) - spent;
        *left = Some(Left { bytes, at });
        bytes
    }
}

#[cfg(test)]
mod tests {
    use ron_kernel::clock;

    use super::*;

    #[test]
    fn a_second_is_worth_so_many_bytes_whatever_their_size() {
        let (budget, began) = (SendBudget::default(), clock::now());
        let (mut sent, mut now) = (0, began);
        while now < began + Duration::from_secs(10) {
            match budget.check(now, 10_000) {
                Ok(()) => {
                    budget.spend(now, 10_000, 3_000);
                    sent += 3_000;
                }
                Err(wait) => now += wait,
            }
        }
        assert!((108_000..=113_000).contains(&sent), "a second's worth, and ten more: {sent}");
    }

    #[test]
    fn one_that_is_larger_goes_once_and_is_waited_for() {
        let (budget, began) = (SendBudget::default(), clock::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        budget.spend(began, 1_000, 100_000);
        assert_eq!(budget.check(began, 1_000), Err(WAIT_MAX));
        assert!(budget.check(after(98), 1_000).is_err());
        assert_eq!(budget.check(after(100), 1_000), Ok(()));
        budget.spend(began, 0, 1 << 40);
        assert_eq!(budget.check(began, 0), Ok(()), "zero is no bound");
    }
}
