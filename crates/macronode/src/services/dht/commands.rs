//! `macronode dht`: the node in its network, records in the network, and the way to them.

mod args;
mod peers;
mod records;
mod top;

pub use args::DhtCommand;
pub use peers::has_joined;
pub use top::panes;

use crate::commands::{Report, wait};
use crate::errors::Failure;

/// Carries out a `dht` command.
pub fn dht(command: &DhtCommand) -> Result<Report, Failure> {
    match command {
        DhtCommand::Peers(node) => wait(peers::list(node)),
        DhtCommand::Bootstrap(args) => wait(peers::bootstrap(args)),
        DhtCommand::Get(args) => wait(records::get(args)),
        DhtCommand::Trace(args) => wait(records::trace(args)),
        DhtCommand::Provide(args) => wait(records::provide(args)),
    }
}

/// The end of a peer id, for lines that people read: beginnings are alike.
fn short(id: &str) -> &str {
    id.len().checked_sub(8).and_then(|start| id.get(start..)).unwrap_or(id)
}
