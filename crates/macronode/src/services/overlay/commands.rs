//! `macronode overlay`: the node's identity, its peers, and messages on lanes.

mod args;
mod identity;
mod peers;
mod publish;
mod subscribe;
mod top;
mod trace;

pub use args::OverlayCommand;
pub use top::panes;

use crate::commands::{Report, wait};
use crate::errors::Failure;

pub use peers::has_joined;

/// Carries out an `overlay` command.
pub fn overlay(command: &OverlayCommand) -> Result<Report, Failure> {
    match command {
        OverlayCommand::Id(node) => identity::id(node),
        OverlayCommand::Peers(node) => wait(peers::list(node)),
        OverlayCommand::Connect(args) => wait(peers::connect(args)),
        OverlayCommand::Disconnect(args) => wait(peers::disconnect(args)),
        OverlayCommand::Pub(args) => wait(publish::publish(args)),
        OverlayCommand::Sub(args) => wait(subscribe::subscribe(args)),
        OverlayCommand::Trace(args) => wait(trace::trace(args)),
    }
}

/// The beginning of an id, for lines that people read.
fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}
