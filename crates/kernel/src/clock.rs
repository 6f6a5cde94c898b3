//! The one place that reads a clock, so that paused time reaches everything.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The current instant of the runtime's clock, which tests can pause.
#[expect(clippy::disallowed_methods, reason = "this is the replacement the ban names")]
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock milliseconds since 1970, for records and people; never for measuring.
#[expect(clippy::disallowed_methods, reason = "this is the replacement the ban names")]
pub fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as u64
}
