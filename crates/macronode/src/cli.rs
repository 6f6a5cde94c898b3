//! The command line: what can be asked of the binary, and how a run's flags become configuration.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use toml::{Table, Value};

use crate::commands::{ClusterCommand, TokenCommand, TopArgs};
use crate::config::{Key, Sources};
use crate::errors::Exit;
use crate::services::{self, ServiceCommand};

const EXAMPLES: &str = "\
Examples:
  macronode                              run with ./macronode.toml or the defaults
  macronode run --dev --amnesia          try it out; nothing is written to disk
  macronode check --config node.toml     would it start?
  macronode config print --sources       every value and where it came from
  macronode status                       how the running node stands
  macronode drain --dry-run              what a drain would wait for
  macronode top                          watch the node at work
  macronode cluster dev 3                three nodes on this machine that know each other
";

const EXITS: &str = "
Exit codes:
   0  done; for run: left cleanly
  64  wrong command line or configuration
  70  cannot start, a check failed, or no node answers
  75  left, but tasks had to be aborted at the drain deadline

Errors have codes such as MN0003, each with a page in docs/errors.";

/// One node: its services on one supervised kernel.
///
/// Without a command the node runs.
#[derive(Debug, Parser)]
#[command(name = "macronode", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the node; what happens without a command.
    Run(RunArgs),
    /// Load the configuration, try the ports and the data directory, and say whether the node would start.
    Check(RunArgs),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say the version of this binary, and with --admin that of a running node.
    Version(ClientArgs),
    /// Say how the running node stands; exits with 70 unless it is ready or degraded.
    Status(ClientArgs),
    /// Show the services, tasks, queues and gates of the running node.
    Topology(TopologyArgs),
    /// Ask the running node to finish its work and leave.
    Drain(DrainArgs),
    /// Act on one service of the running node.
    #[command(subcommand)]
    Service(UnitCommand),
    /// Make, narrow, read and revoke tokens that let clients use the node.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Watch the node at work: its queues, and what its services do.
    Top(TopArgs),
    /// Examine this machine: ports, limits, clock, disk, memory, TLS files.
    Doctor(DoctorArgs),
    /// Start several nodes on this machine, joined, to try things out.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Do what a service offers.
    #[command(skip)]
    OfService(ServiceCommand, ArgMatches),
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective configuration as TOML.
    Print {
        /// Say for each value where it came from.
        #[arg(long)]
        sources: bool,
        /// How the node would run.
        #[command(flatten)]
        run: Box<RunArgs>,
    },
    /// Check a file together with the environment.
    Validate {
        /// The file; ./macronode.toml if none is named.
        file: Option<PathBuf>,
    },
    /// Print the JSON schema of the file.
    Schema,
}

/// What to do with a service.
#[derive(Debug, Subcommand)]
pub enum UnitCommand {
    /// Restart its tasks; also clears a service that stays failed.
    Restart {
        /// Its name, as `macronode status` shows it.
        name: String,
        /// Which node.
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// The flags of a run; each overrides the environment and the file.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// The configuration file [default: ./macronode.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the public HTTP plane listens [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// Where the admin plane listens [default: 127.0.0.1:9600]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Where OAP frames are taken [default: 127.0.0.1:9500]
    #[arg(long, value_name = "ADDR")]
    pub oap: Option<String>,
    /// The directory of everything the node keeps [default: ./macronode-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// The services to run, with commas between [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub services: Option<Vec<String>>,
    /// A node to keep a session with, by the id and the OAP port of it; may be given again for more
    #[arg(long, value_name = "NODEID@HOST:PORT")]
    pub peer: Option<Vec<String>>,
    /// Where other nodes of the DHT are heard, over TCP and QUIC [default: 127.0.0.1, a free port]
    #[arg(long, value_name = "ADDR")]
    pub dht: Option<String>,
    /// A node through which the DHT is joined, by the id and the DHT port of it; may be given again for more
    #[arg(long, value_name = "NODEID@HOST:PORT")]
    pub bootstrap: Option<Vec<String>>,
    /// Keep everything in memory; open no file for writing
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub amnesia: Option<bool>,
    /// Serve the development routes and echo frames, to try the node out
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub dev: Option<bool>,
    /// Allow tasks to be killed and frozen through the admin plane
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub chaos: Option<bool>,
    /// A thread for each core, or one thread
    #[arg(long, value_name = "KIND", value_parser = ["multi", "current"])]
    pub runtime: Option<String>,
    /// How the log is written
    #[arg(long, value_name = "FORMAT", value_parser = ["pretty", "json"])]
    pub log: Option<String>,
    /// Drain when the process that started this one is gone, however it ended; for `cluster dev`
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

/// How to reach a running node.
#[derive(Args, Clone, Debug, Default)]
pub struct ClientArgs {
    /// The admin plane: HOST:PORT or https://HOST:PORT [default: from the node's data directory, else 127.0.0.1:9600]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// The public plane, to see whether it answers as well
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// The data directory of the node, for its addresses and its operator token
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The file with the operator token [default: operator.token in the data directory]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The PEM file with the root to trust for https
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Print JSON as the node gave it
    #[arg(long)]
    pub json: bool,
}

/// How to reach the public plane of a running node.
#[derive(Args, Clone, Debug, Default)]
pub struct ApiArgs {
    /// The public plane: HOST:PORT or https://HOST:PORT [default: from the node's data directory, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// The data directory of the node, for its addresses and its operator token
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The token to show [default: $MACRO_TOKEN, else operator.token in the data directory]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The file with the token to show
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// The PEM file with the root to trust for https
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Print JSON as the node gave it
    #[arg(long)]
    pub json: bool,
}

/// How to show the topology.
#[derive(Args, Debug)]
pub struct TopologyArgs {
    /// Print a Mermaid map
    #[arg(long, conflicts_with_all = ["json", "check"])]
    pub mermaid: bool,
    /// Compare what runs with what this binary declares; exits with 70 if they differ
    #[arg(long)]
    pub check: bool,
    /// Which node.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// How to drain.
#[derive(Args, Debug)]
pub struct DrainArgs {
    /// Only show the phases, their deadlines and what waits
    #[arg(long)]
    pub dry_run: bool,
    /// Which node.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// What to examine.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How the node would run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Reads the command line. On `Err` everything has been printed and the process ends like that.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Exit> {
    match try_parse(arguments) {
        Ok(command) => Ok(command),
        Err(error) => {
            // Nobody is left to be told that the terminal is gone.
            let _ = error.print();
            Err(if error.use_stderr() { Exit::Usage } else { Exit::Clean })
        }
    }
}

fn try_parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let mut matches = parser().try_get_matches_from(arguments)?;
    let of_service = matches.subcommand().and_then(|(name, inside)| {
        let command = services::commands().find(|command| command.name == name)?;
        Some(Command::OfService(command, inside.clone()))
    });
    if let Some(command) = of_service {
        return Ok(command);
    }
    let cli = Cli::from_arg_matches_mut(&mut matches)?;
    Ok(cli.command.unwrap_or(Command::Run(cli.run)))
}

/// The whole command line: the node's own commands and those of services.
pub fn parser() -> clap::Command {
    let examples: String =
        services::commands().flat_map(|command| command.examples).fold(EXAMPLES.to_owned(), |mut examples, line| {
            examples.extend(["  ", line, "\n"]);
            examples
        });
    let commands = services::commands().map(|command| command.parser());
    Cli::command().subcommands(commands).after_help(examples + EXITS)
}

impl RunArgs {
    /// From where the configuration of this run is loaded.
    pub fn sources(&self) -> Sources {
        Sources::of_process(self.config.clone(), self.flags())
    }

    /// What the flags set, in the shape of the file.
    pub fn flags(&self) -> Table {
        let text = |value: &Option<String>| value.clone().map(Value::String);
        let names = |names: &Vec<String>| Value::Array(names.iter().cloned().map(Value::String).collect());
        let given = [
            ("services", self.services.as_ref().map(names)),
            ("amnesia", self.amnesia.map(Value::Boolean)),
            ("dev", self.dev.map(Value::Boolean)),
            ("chaos", self.chaos.map(Value::Boolean)),
            ("runtime", text(&self.runtime)),
            ("data_dir", text(&self.data_dir)),
            ("api.addr", text(&self.api)),
            ("admin.addr", text(&self.admin)),
            ("oap.addr", text(&self.oap)),
            ("log.format", text(&self.log)),
            ("overlay.peers", self.peer.as_ref().map(names)),
            ("dht.addr", text(&self.dht)),
            ("dht.bootstrap", self.bootstrap.as_ref().map(names)),
        ];
        let mut table = Table::new();
        for (path, value) in given {
            if let (Some(key), Some(value)) = (Key::find(path), value) {
                key.put(&mut table, value);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    fn parsed(line: &str) -> Result<Command, Exit> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn flags(line: &str) -> String {
        match parsed(line) {
            Ok(Command::Run(run)) => run.flags().to_string(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        parser().debug_assert();
    }

    #[test]
    fn run_is_the_default_and_its_flags_work_without_the_word() {
        assert_eq!(flags("macronode"), "");
        for line in ["macronode --amnesia --api 127.0.0.1:1", "macronode run --amnesia --api 127.0.0.1:1"] {
            assert_eq!(flags(line), "amnesia = true\n\n[api]\naddr = \"127.0.0.1:1\"\n", "{line}");
        }
        assert_eq!(flags("macronode --dev=false --services http,oap"), "dev = false\nservices = [\"http\", \"oap\"]\n");
    }

    #[test]
    fn every_key_with_a_flag_is_set_by_that_flag() {
        for key in keys() {
            let Some(flag) = key.flag.as_deref() else { continue };
            let value = match flag {
                "--amnesia" | "--dev" | "--chaos" => "",
                "--runtime" => " multi",
                "--log" => " json",
                _ => " x",
            };
            let Ok(Command::Run(run)) = parsed(&format!("macronode {flag}{value}")) else { panic!("{flag}") };
            assert!(key.value_in(&run.flags()).is_some(), "{flag} sets {}", key.path);
        }
    }

    #[test]
    fn a_wrong_line_is_a_usage_error_and_help_is_none() {
        for line in ["macronode --amnesai", "macronode rnu", "macronode service", "macronode --runtime both"] {
            assert_eq!(parsed(line).map(|_| ()), Err(Exit::Usage), "{line}");
        }
        for line in ["macronode --help", "macronode --version", "macronode help drain"] {
            assert_eq!(parsed(line).map(|_| ()), Err(Exit::Clean), "{line}");
        }
    }

    #[test]
    fn every_command_parses() {
        for line in [
            "macronode check --config x",
            "macronode config print --sources",
            "macronode config validate x.toml",
            "macronode config schema",
            "macronode version",
            "macronode status --json --admin 127.0.0.1:1",
            "macronode topology --json",
            "macronode topology --mermaid",
            "macronode topology --check --data-dir d",
            "macronode drain --dry-run --token-file t",
            "macronode service restart http",
            "macronode token mint --subject a --op send --op recv --topic t --topic j.* --expires 1h",
            "macronode token attenuate --token x --topic t",
            "macronode token inspect --json",
            "macronode token revoke --id 00 --data-dir d",
            "macronode top --interval 2s --once",
            "macronode doctor --json --amnesia",
            "macronode cluster dev 5 --dir d --json",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn help_names_the_exit_codes() {
        let help = parser().render_long_help().to_string();
        for exit in [Exit::Clean, Exit::Usage, Exit::Failed, Exit::Aborted] {
            assert!(help.contains(&format!("{:>4}  ", exit.number())), "{exit:?}");
        }
    }
}
