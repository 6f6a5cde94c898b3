//! The public HTTP plane: the layers every route gets, and the listener that serves them.
//!
//! Declare a [`RouteSpec`], give it with its handler to the [`ApiBuilder`], run [`serve`] as a task. Every route then
//! has a correlation id, one total deadline, admission that a drain closes, a bound on requests in flight, caps on head
//! and body, inflation that cannot explode, problem bodies, and its latency measured; a handler sees none of it.

mod auth;
mod body;
mod call;
mod connection;
mod connection_state;
mod corr;
pub mod dev;
mod extract;
mod guard;
mod limits;
mod mailbox;
mod problem;
mod refusal;
mod route;
mod serve;
mod sqs;
mod tls;
mod write_stall;

pub use call::Call;
pub use corr::CorrId;
pub use dev::{Work, WorkItem, dev_routes};
pub use extract::{Json, JsonText, Path, Payload, Query};
pub use limits::HttpLimits;
pub use mailbox::{mailbox_routes, read_any_mailbox_body};
pub use problem::{Failure, Problem};
pub use route::{Api, ApiBuilder, RouteSpec, Verb};
pub use serve::serve;
pub use sqs::{AccessKey, AuthSection, Keyring, SqsAuth, SqsOptions, SqsSection, sqs_routes};
pub use tls::{TlsError, tls_config};
