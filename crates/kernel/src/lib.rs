//! The microkernel: the tokio shell that obeys the pure supervisor of `ron-policy`.
//!
//! Declare specs, give them to the [`Builder`], run the [`Kernel`]. Tasks, queues, gates and the bus exist only through
//! their specs, so what is declared is what is documented and what is live.

pub mod builder;
pub mod bus;
pub mod clock;
pub mod coalesce;
pub mod connection_limiter;
pub mod deadline;
pub mod flowchart;
pub mod gate;
pub mod handle;
pub mod kernel;
pub mod meter;
pub mod metrics;
pub mod outages;
pub mod queue;
pub mod rate;
pub mod retry;
pub mod scope;
pub mod scrape;
pub mod share;
pub mod shutdown;
pub mod snapshot;
pub mod spec;
pub mod status;
pub mod task;
pub mod topology;

pub use builder::{Builder, KernelOptions};
pub use deadline::Deadline;
pub use handle::KernelHandle;
pub use kernel::{ExitReport, Kernel};
pub use meter::Meter;
pub use metrics::Metrics;
pub use snapshot::Snapshot;
pub use task::{TaskContext, TaskError, TaskResult};
