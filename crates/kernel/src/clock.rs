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

/// Time that a machine has been up, and which of its starts that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootTime {
    /// Number of the start, drawn by the system.
    pub id: u128,
    /// Milliseconds since then, sleep included; nobody can set it.
    pub since_ms: u64,
}

/// What the machine's own clock shows; none where the system does not say.
pub fn boot_time() -> Option<BootTime> {
    let id: String = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = u128::from_str_radix(&id.trim().replace('-', ""), 16).ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some(BootTime { id, since_ms: (seconds * 1e3) as u64 })
}
