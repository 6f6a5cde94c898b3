//! What the binary does besides running: each command makes a report, and one place prints it and ends the process.

mod cluster;
mod drain;
mod settings;
pub mod status;
pub mod table;
pub mod text;
pub mod token;
pub mod top;
mod topology;
mod version;
pub mod view;

use std::io::Write as _;

pub use cluster::ClusterCommand;
pub use token::TokenCommand;
pub use top::{Pane, TopArgs};

use crate::cli::{Command, ConfigCommand, RunArgs, UnitCommand};
use crate::client::Client;
use crate::doctor;
use crate::errors::{Code, Exit, Failure};
use crate::services;

/// Outcome of a command that could be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Text for standard output.
    pub text: String,
    /// Exit status of the process.
    pub exit: Exit,
}

impl Report {
    /// A report with exit status 0.
    pub fn clean(text: impl Into<String>) -> Self {
        Report { text: text.into(), exit: Exit::Clean }
    }
}

/// Does what was asked; `run` runs the node.
pub fn dispatch(command: Command, run: impl FnOnce(&RunArgs) -> Result<Exit, Failure>) -> Exit {
    let report = match command {
        Command::Run(args) => {
            if args.with_parent {
                cluster::end_with_parent();
            }
            run(&args).map(|exit| Report { text: String::new(), exit })
        }
        Command::Check(args) => settings::check(&args.sources()),
        Command::Config(ConfigCommand::Print { sources, run }) => settings::print(&run.sources(), sources),
        Command::Config(ConfigCommand::Validate { file }) => settings::validate(file),
        Command::Config(ConfigCommand::Schema) => Ok(settings::schema()),
        Command::Version(args) => wait(version::version(&args)),
        Command::Status(args) => wait(status::status(&args)),
        Command::Topology(args) => wait(topology::topology(&args)),
        Command::Drain(args) => wait(drain::drain(&args)),
        Command::Service(UnitCommand::Restart { name, client }) => {
            let asked = async {
                let path = format!("/services/{name}/restart");
                let answer = Client::find(&client)?.post(&path).await?.expect_success(&path)?;
                let text = format!("{name} is being restarted; follow it with `macronode status`\n");
                Ok(Report::clean(if client.json { answer.text() + "\n" } else { text }))
            };
            wait(asked)
        }
        Command::Token(command) => token::token(&command),
        Command::Cluster(ClusterCommand::Dev(args)) => wait(cluster::dev(&args)),
        Command::OfService(command, matches) => command.run(&matches),
        Command::Top(args) => top::top(&args, services::panes()),
        Command::Doctor(args) => Ok(doctor::doctor(&args.run.sources(), args.json)),
    };
    finish(report)
}

/// Runs one command that waits for a node.
pub fn wait<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::CannotStart, format!("no runtime: {error}")))?;
    runtime.block_on(command)
}

/// Prints a report, or what went wrong, and says how to exit. A reader that has left is not an error.
pub fn finish(report: Result<Report, Failure>) -> Exit {
    match report {
        Ok(report) => {
            let _ = std::io::stdout().lock().write_all(report.text.as_bytes());
            report.exit
        }
        Err(failure) => {
            complain(&failure);
            failure.code.exit()
        }
    }
}

/// Writes to standard output now; an error means that nobody reads it.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Tells the operator what went wrong and where to read on.
pub fn complain(failure: &Failure) {
    let _ = writeln!(std::io::stderr().lock(), "{failure}\nsee docs/errors/{}.md", failure.code);
}
