//! The words of the breaker, which pauses deliveries while too many of them fail.

use serde::{Deserialize, Serialize};

use super::{Millis, PartKey};

/// When the deliveries of a topic pause because too many of them fail, instead of draining it into the dead letters.
///
/// Every partition counts for itself, and in memory only: after a restart it delivers again and counts anew, as it does
/// when this setting is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerSettings {
    /// More than this share of deliveries failing, in percent, opens it.
    pub failing_percent: u32,
    /// Deliveries that ended within this time count.
    pub window_ms: u64,
    /// With fewer deliveries in the window it never opens.
    pub deliveries_min: u32,
    /// How long nothing is delivered; then one message is, to see whether it succeeds.
    pub pause_ms: u64,
}

/// Whether a partition's messages go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// They do, as if there were no breaker.
    #[default]
    Closed,
    /// One at a time, until one is acknowledged or fails.
    HalfOpen,
    /// None.
    Open,
}

/// Where a partition's breaker stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BreakerView {
    /// Whether messages go out.
    pub state: BreakerState,
    /// When it last opened, unless it is closed.
    pub opened_ms: Option<Millis>,
    /// Until when nothing is delivered, while it is open.
    pub until_ms: Option<Millis>,
}

/// A partition's breaker opened, or closed because a message was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTurn {
    /// Partition whose breaker turned.
    pub part: PartKey,
    /// State of the breaker since then.
    pub view: BreakerView,
    /// Deliveries that failed, of those that decided it.
    pub failing: u64,
    /// Deliveries that decided it.
    pub deliveries: u64,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        BreakerSettings { failing_percent: 50, window_ms: 60_000, deliveries_min: 20, pause_ms: 30_000 }
    }
}

impl BreakerSettings {
    /// Each part with its value and the least and most it may be.
    pub(crate) fn ranges(&self) -> [(&'static str, u64, u64, u64); 4] {
        const HOUR_MS: u64 = 3_600_000;
        [
            // More than all deliveries can never fail.
            ("breaker.failing_percent", self.failing_percent.into(), 1, 99),
            ("breaker.window_ms", self.window_ms, 1_000, HOUR_MS),
            ("breaker.deliveries_min", self.deliveries_min.into(), 1, 1_000_000),
            ("breaker.pause_ms", self.pause_ms, 1_000, HOUR_MS),
        ]
    }
}

impl BreakerView {
    /// Of two partitions: how the one stands that delivers less.
    pub(crate) fn worse(self, other: BreakerView) -> BreakerView {
        match self.state.cmp(&other.state) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal => BreakerView {
                opened_ms: self.opened_ms.min(other.opened_ms),
                until_ms: self.until_ms.max(other.until_ms),
                ..self
            },
        }
    }
}
