//! Decisions of a lookup without I/O: hedging, breakers, ranking, distance, sweeps. Events in, actions out; clock and
//! chance are passed in.
//!
//! A target is whatever the caller asks: a peer, an upstream router, a number in a simulation. Times are milliseconds
//! of one clock that never runs backwards.

mod breaker;
mod budget;
mod chance;
mod guards;
mod latency;
mod lookup;
mod rank;
mod space;
mod sweep;
mod table;

pub use breaker::{Admission, BreakerLimits, BreakerState, BreakerTable, BreakerView};
pub use budget::HedgeBudget;
pub use chance::Chance;
pub use guards::{Guards, TargetGuards, Verdict};
pub use latency::LatencyTrack;
pub use lookup::{
    Action, AskEnd, AskRecord, Candidate, Conclusion, Course, Event, Finished, HedgeLimits, Lookup, LookupTarget,
};
pub use rank::{Experience, ProviderFacts, Ranked, Terms, rank};
pub use space::{Distance, Position, distance, shared_bits};
pub use sweep::{Region, Sweep, batches};
pub use table::{Inserted, IpGroup, PeerTable, TableLimits, ip_group};

/// Milliseconds of the caller's clock.
pub type Millis = u64;

fn millis(duration: std::time::Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
