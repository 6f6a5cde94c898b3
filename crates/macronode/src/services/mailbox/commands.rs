//! `macronode mailbox`: messages and topics of a running node, and its log while none runs.

mod args;
mod browse;
mod clock;
mod events;
mod explain;
mod recv;
mod redrive;
mod send;
mod settle;
mod stats;
mod tail;
mod top;
mod topics;
pub mod types;
mod verify;

pub use args::MailboxCommand;
use serde_json::Value;
pub use top::panes;

use crate::commands::{Report, wait};
use crate::errors::Failure;

/// Carries out a `mailbox` command.
pub fn mailbox(command: &MailboxCommand) -> Result<Report, Failure> {
    match command {
        MailboxCommand::Send(args) => wait(send::send(args)),
        MailboxCommand::Recv(args) => wait(recv::recv(args)),
        MailboxCommand::Tail(args) => wait(tail::tail(args)),
        MailboxCommand::Ack(args) => wait(settle::ack(args)),
        MailboxCommand::Nack(args) => wait(settle::nack(args)),
        MailboxCommand::Topics(args) => wait(topics::topics(args)),
        MailboxCommand::Stats(args) => wait(stats::stats(args)),
        MailboxCommand::Browse(args) => wait(browse::browse(args)),
        MailboxCommand::Explain(args) => wait(explain::explain(args)),
        MailboxCommand::Redrive(args) => wait(redrive::redrive(args)),
        MailboxCommand::Events(args) => wait(events::events(args)),
        MailboxCommand::Verify(args) if args.online => wait(verify::verify_online(args)),
        MailboxCommand::Verify(args) => verify::verify(args),
        MailboxCommand::Clock(args) => wait(clock::clock(args)),
    }
}

/// The code and the detail of an item that was refused.
fn error_of(result: &Value) -> (&str, &str) {
    let error = &result["error"];
    (error["code"].as_str().unwrap_or("E_UNKNOWN"), error["detail"].as_str().unwrap_or("the node gave no reason"))
}
