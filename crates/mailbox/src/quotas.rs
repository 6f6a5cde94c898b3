//! How fast each capability may send: a token bucket for each, in a bounded table.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use ron_auth::Subject;
use ron_kernel::clock;
use ron_types::{Error, Kind};
use tokio::time::Instant;

use crate::engine::lock;

/// Capabilities whose pace is remembered; those that have not sent for a second need not be.
const SENDERS_MAX: usize = 100_000;

/// The pace of every sender that has one.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    buckets: Mutex<HashMap<Box<str>, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Messages that may be sent at once.
    tokens: f64,
    at: Instant,
}

impl Quotas {
    /// Lets so many messages pass, or says when to come back. A pace of 0 means any.
    pub fn admit(&self, by: &Subject, node_wide: u32, messages: u32) -> Result<(), Error> {
        let own = by.sends_per_second.unwrap_or(u32::MAX);
        let pace = if node_wide == 0 || by.is_operator { own } else { own.min(node_wide) };
        if pace == u32::MAX {
            return Ok(());
        }
        let (pace, now) = (f64::from(pace), clock::now());
        let mut buckets = lock(&self.buckets);
        if buckets.len() >= SENDERS_MAX {
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < Duration::from_secs(1));
        }
        let bucket =
            buckets.entry(by.name.as_ref().into()).or_insert_with(|| Bucket { tokens: pace.max(1.0), at: now });
        let gained = now.saturating_duration_since(bucket.at).as_secs_f64() * pace;
        // A second's worth may be saved up, and a batch larger than that passes when the bucket is full.
        let full = pace.max(1.0);
        bucket.tokens = (bucket.tokens + gained).min(full);
        bucket.at = now;
        let needed = f64::from(messages).min(full);
        if bucket.tokens < needed {
            let wait = Duration::from_secs_f64((needed - bucket.tokens) / pace.max(0.001));
            let mut error = Error::new(Kind::Busy, format!("{} may send {pace} messages in a second", by.name));
            error.retry_after = Some(wait.max(Duration::from_millis(1)));
            return Err(error);
        }
        bucket.tokens -= f64::from(messages);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(name: &str, sends_per_second: Option<u32>) -> Subject {
        Subject { name: name.into(), sends_per_second, payload_bytes_max: None, expires_ms: None, is_operator: false }
    }

    #[tokio::test(start_paused = true)]
    async fn each_sender_has_its_own_pace_and_gets_it_back_with_time() {
        let quotas = Quotas::default();
        let (slow, other) = (sender("slow", Some(10)), sender("other", Some(10)));
        assert!(quotas.admit(&slow, 0, 10).is_ok());
        let refused = quotas.admit(&slow, 0, 1).expect_err("used up");
        assert_eq!((refused.kind, refused.retry_after), (Kind::Busy, Some(Duration::from_millis(100))));
        assert!(quotas.admit(&other, 0, 1).is_ok(), "one sender does not slow another");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(quotas.admit(&slow, 0, 1).is_ok());
        assert!(quotas.admit(&sender("free", None), 0, 1_000_000).is_ok());
        assert!(quotas.admit(&sender("bound", None), 5, 5).is_ok());
        assert!(quotas.admit(&sender("bound", None), 5, 1).is_err(), "the node's own bound holds for everybody");
    }
}
