//! Words every other crate shares: the error taxonomy and the limits. No tokio, no I/O.

pub mod error;
pub mod limits;

pub use error::{Error, Kind};
