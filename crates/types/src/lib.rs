//! Words every crate shares: the error taxonomy, the limits, how times and sizes are written. No tokio, no I/O.

pub mod error;
pub mod limits;
pub mod names;
pub mod settings;
pub mod values;
pub mod web_page;

pub use error::{Error, Kind};
pub use values::{Permits, Size, TimeSpan};

/// A moment or a span in milliseconds; of which clock, its owner says.
pub type Millis = u64;
