//! `macronode index`: what an id stands for and who has it; publishing, names, and looking after the index.

mod args;
mod changes;
mod course;
mod kept;
mod names;
mod publish;
mod resolve;
mod top;
mod watch;
mod words;

pub use args::IndexCommand;
pub use top::panes;

use args::NameCommand;

use crate::commands::{Report, wait};
use crate::errors::Failure;

/// Carries out an `index` command.
pub fn index(command: &IndexCommand) -> Result<Report, Failure> {
    match command {
        IndexCommand::Resolve(args) => wait(resolve::resolve(args)),
        IndexCommand::Providers(args) => wait(resolve::providers(args)),
        IndexCommand::Publish(args) => wait(publish::publish(args)),
        IndexCommand::Unprovide(args) => wait(publish::unprovide(args)),
        IndexCommand::Pin(args) => wait(changes::pin(args)),
        IndexCommand::Unpin(args) => wait(changes::unpin(args)),
        IndexCommand::Reindex(args) => wait(changes::reindex(args)),
        IndexCommand::Kept(args) => wait(kept::kept(args)),
        IndexCommand::Watch(args) => wait(watch::watch(args)),
        IndexCommand::Name(NameCommand::Set(args)) => wait(names::set(args)),
        IndexCommand::Name(NameCommand::Get(args)) => wait(names::get(args)),
        IndexCommand::Name(NameCommand::Remove(args)) => wait(names::remove(args)),
        IndexCommand::Capacity(node) => wait(changes::capacity(node)),
    }
}
