//! The admin plane: probes, metrics, the live picture and control, on a thread and runtime of its own, so that it
//! answers while the data plane is saturated and until the very end of a drain.

mod connection;
mod control;
mod linger;
mod places;
mod problem;
mod process;
mod routes;
mod thread;
mod token;

pub use control::{Control, ReloadReport};
pub use process::PROCESS_METRICS;
pub use thread::{AdminOptions, AdminThread, supervise};
pub use token::{OperatorToken, TokenError};

#[cfg(test)]
mod tests;
