//! Scratch nodes and HTTP clients for black-box tests and benches of the real binary.
#![allow(clippy::disallowed_methods, reason = "the kernel's clocks, deadlines and tasks are what is under test")]

mod address;
mod alone;
mod browser;
mod calendar;
mod client;
pub mod frames;
mod load;
mod machine;
mod mailbox;
mod node;
mod options;
mod postgres;
mod pulse;
mod sqs;
mod trusting;
mod wait;

pub use address::own_address;
pub use alone::{Alone, BoundResult, alone, bound};
pub use browser::shown_in_browser;
pub use calendar::civil_date;
pub use client::{CallError, Client, PATIENCE, Reply};
pub use load::{Load, LoadReport, LoadShape, percentile};
pub use mailbox::{Delivered, MailboxClient, MailboxError, Outgoing, Sent, Take};
pub use node::{Node, Plane, Signal, anonymous_bytes, metric_in, notes_in, rss_bytes, serves};
pub use options::NodeOptions;
pub use postgres::{Postgres, PostgresStart};
pub use pulse::Pulse;
pub use sqs::SqsKey;
pub use wait::{PATIENCE_MAX, ask, eventually};

/// Whether this run was asked to take longer and try more often (`MACRO_SOAK=1`).
pub fn soak() -> bool {
    std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1")
}
