//! Ids, records, messages and the store, from outside.

mod ids;
mod ipns;
mod model;
mod older_files;
mod places;
mod precedence;
mod room;
mod samples;
mod signing;
mod store;
mod wire;
