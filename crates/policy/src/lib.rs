//! Pure decisions of the kernel: what to start, stop, abort and publish, given what happened and when.
//!
//! There is no clock, no I/O and no random state here. Time is passed in as monotonic milliseconds; the seed of the
//! jitter is passed in once. [`Supervisor::step`] is the whole interface: an [`Event`] goes in, [`Action`]s come out,
//! and [`Supervisor::next_wakeup`] says when to come back. The shell (`ron-kernel`) and the simulator (`sim`) run
//! the same code, and [`invariants::Observer`] judges both.

mod drain_plan;
mod event;
pub mod invariants;
mod law;
mod mutation;
mod plan;
mod pressure;
mod readiness;
mod supervisor;

pub use drain_plan::{DrainStep, drain_plan};
pub use event::{AbortReason, Action, Event, ExitReason, State};
pub use law::{Escalation, RestartLaw};
#[cfg(feature = "mutation")]
pub use mutation::Mutation;
pub use plan::{Phase, Plan, PlanError, ServicePlan, TaskId, TaskPlan};
pub use pressure::{PressureLimits, PressureMeter};
pub use readiness::{NodeState, NodeView, PressureView, ServiceView, TaskState, TaskView};
/// Here always of one monotonic clock.
pub use ron_types::Millis;
pub use supervisor::Supervisor;
