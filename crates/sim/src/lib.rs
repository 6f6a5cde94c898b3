//! The real policy under simulation: one seed is one small plan, one stretch of virtual time, and one run of bad luck.
//!
//! Everything is a function of the seed, so that a failing seed is a test. What is played here is the shell: it
//! starts tasks with a latency, lets them boot, crash, freeze, ignore the order to stop, and reports it all as
//! events. What decides is `ron_policy::Supervisor`; what judges is `ron_policy::invariants::Observer`, and
//! [`jobs`] for the jobs that travel from an intake to a pool of workers.
//!
//! A trace has one line per event, in these columns:
//!
//! | column | what |
//! |---|---|
//! | 1 | virtual time in ms |
//! | 2 | the seed |
//! | 3 | kind of the event, as in `ron_policy::Event`, or `job` for a job (not shown to the policy) |
//! | 4 | service or `service/task[instance]` it concerns, or `-` |
//! | 5 | in parentheses how it ended or what changed; then the actions of the policy, or the fate of the job |

pub mod dht;
pub mod gossip;
pub mod jobs;
pub mod lifecycle;
mod mutation;
mod plan;
mod rng;
mod shell;
mod trace;

pub use mutation::Mutation;
pub use plan::random_plan;
pub use shell::{run_seed, trace_seed};

use ron_policy::Millis;

/// Counts of one run or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of runs.
    pub seeds: u64,
    /// Number of events given to the policy.
    pub events: u64,
    /// Starts of a task that had been started before.
    pub restarts: u64,
    /// Number of drains that ended.
    pub drains: u64,
    /// Number of tasks aborted, for any reason.
    pub aborts: u64,
    /// Number of jobs admitted, and so answered.
    pub jobs: u64,
}

impl Stats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: Stats) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.restarts += other.restarts;
        self.drains += other.drains;
        self.aborts += other.aborts;
        self.jobs += other.jobs;
    }
}

/// A seed under which an invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed} at {at_ms} ms: {id}: {detail}")]
pub struct Failure {
    /// Seed that reproduces the failure.
    pub seed: u64,
    /// Virtual time of the failure.
    pub at_ms: Millis,
    /// `I1` to `I7` of the policy; `J1` each admitted job is answered once; `J2` nothing is admitted once a worker
    /// has left; `W1` the next wakeup lies ahead.
    pub id: &'static str,
    /// Events that broke the invariant, in words.
    pub detail: String,
}
