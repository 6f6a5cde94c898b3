//! The public HTTP plane: the layers every route gets, and the listener that serves them.
//!
//! A surface is a folder: it declares each [`Operation`] once, lists them in a [`Surface`], and gives them with their
//! handlers to the [`ApiBuilder`]; [`serve`] runs the result as a task. Every operation then has a correlation id, one
//! total deadline, admission that a drain closes, a bound on requests in flight, caps on head and body, inflation that
//! cannot explode, refusals in the format of its surface, its latency measured, and its place in `/openapi.json` and on
//! the page `/docs`; a handler sees none of it.

mod admission;
mod auth;
mod body;
mod call;
mod connection;
mod connection_state;
mod corr;
mod debts;
mod dev;
mod dht;
mod error_format;
mod extract;
mod fair_share;
pub mod frames;
mod guard;
mod handler;
mod index;
mod limits;
mod mailbox;
mod openapi;
mod operation;
mod overlay;
mod problem;
mod recognition;
mod reference;
mod refusal;
mod rewarder;
mod route;
mod serve;
mod socket;
mod sqs;
mod surface;
mod tls;
mod tokens;
mod unmatched;
mod upgrade;
mod web_page;
mod websocket;
mod write_stall;

pub use admission::{SharedShares, Waiting};
pub use auth::Bearer;
pub use call::Call;
pub use corr::CorrId;
pub use dev::{SURFACE as DEV_SURFACE, Work, WorkItem, dev_routes};
pub use dht::{SURFACE as DHT_SURFACE, dht_routes};
pub use error_format::{ErrorFormat, ErrorFormats, ProblemJson, RefusedRequest};
pub use extract::{Json, JsonText, Path, Payload, Query};
pub use frames::{echo_frames, overlay_frames};
pub use handler::HandlerResult;
pub use index::{SURFACE as INDEX_SURFACE, index_routes, read_any_index_body};
pub use limits::HttpLimits;
pub use mailbox::{SURFACE as MAILBOX_SURFACE, mailbox_frames, mailbox_routes, read_any_mailbox_body};
pub use operation::Operation;
pub use overlay::{SURFACE as OVERLAY_SURFACE, overlay_routes};
pub use problem::Problem;
pub use reference::http_reference;
pub use rewarder::{SURFACE as REWARDER_SURFACE, rewarder_routes};
pub use route::{Api, ApiBuilder};
pub use serve::serve;
pub use sqs::Regions;
pub use sqs::{AccessKey, AuthSection, Keyring, SURFACE as SQS_SURFACE, SqsAuth, SqsOptions, SqsSection, sqs_routes};
pub use surface::{Surface, joined, operation_count, out_of_service};
pub use tls::{TlsError, tls_config};
pub use tokens::{SURFACE as NODE_SURFACE, node_routes};
