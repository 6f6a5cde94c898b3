//! The index: a name or a hash to a manifest and ranked providers, by hedged lookups.

mod admission;
mod cache;
pub mod capabilities;
pub mod config;
mod flights;
mod handle;
pub mod ports;
mod query;
mod shared;
pub mod specs;
mod stream;
mod watchers;
pub mod words;

pub use admission::QuestionSlot;
pub use handle::Index;
pub use shared::IndexOptions;
pub use stream::ProviderStream;
pub use watchers::Watch;
