//! Tests of whole sessions: two sides over a pipe or over TCP, and sides that do not keep the rules.

mod closing;
mod deadlines;
pub(crate) mod harness;
mod hello;
mod identity;
mod pressure;
mod talking;
