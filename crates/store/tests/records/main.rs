//! Ids, records, messages and the store, from outside.

mod ids;
mod ipns;
mod model;
mod precedence;
mod samples;
mod signing;
mod store;
mod wire;
