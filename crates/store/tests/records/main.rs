//! Ids, records, messages and the store, from outside.

mod ids;
mod ipns;
mod model;
mod older_files;
mod precedence;
mod room;
mod samples;
mod signing;
mod store;
mod wire;
