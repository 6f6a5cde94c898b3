//! Measures this node beside its peers in one run, and writes what it found into the documentation.

mod kernel;
mod load;
mod machine;
mod mailbox;
mod process;
mod report;
mod servers;
mod sqs;
mod stats;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::kernel::{Part, Size};
use crate::report::Section;

/// The picture of the mailbox section, beside the page.
const PICTURE: &str = "benchmarks-mailbox.svg";

/// Measures macronode beside its peers; ratios come from alternating rounds of one run.
#[derive(Debug, Parser)]
#[command(name = "macronode-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The kernel: queues, HTTP layers, restarts, start, memory.
    Kernel(KernelArgs),
    /// The mailbox: sending, receiving, backlog, memory and restart, beside other queues.
    Mailbox(MailboxArgs),
    /// The SQS surface: beside the native one, and beside other servers that speak SQS.
    Sqs(SqsArgs),
    /// A peer of the HTTP rows; prints its port.
    #[command(hide = true)]
    ServeBare,
    /// The same handlers behind the layers of the public plane; prints its port.
    #[command(hide = true)]
    ServeLayers,
    /// A handler that only parses a send and answers; prints its port.
    #[command(hide = true)]
    ServeSend,
}

#[derive(Args, Debug)]
struct KernelArgs {
    /// Short and noisy: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<Part>,
    /// Rewrite the section of the benchmark page
    #[arg(long)]
    write: bool,
    /// The benchmark page
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    page: PathBuf,
}

#[derive(Args, Debug)]
struct MailboxArgs {
    /// Measure other queues too; those that are missing are installed when run as root
    #[arg(long)]
    peers: bool,
    /// Short and noisy: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<mailbox::Part>,
    /// Only systems of these names: macronode, engine, ceiling, nats, redis, rabbitmq, beanstalkd, postgresql
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "write")]
    systems: Vec<String>,
    /// How often each cell is measured
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// How long a cell is measured each time
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Connections of peers whose clients carry many requests on one
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    connections: usize,
    /// The node's binary; the one beside this one if not given
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Rewrite the section of the benchmark page and its picture
    #[arg(long)]
    write: bool,
    /// The benchmark page
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    page: PathBuf,
}

#[derive(Args, Debug)]
struct SqsArgs {
    /// Measure other servers too; they are installed from PyPI beside the build
    #[arg(long)]
    peers: bool,
    /// Measure a server of SQS that is running, too; may be repeated
    #[arg(long = "peer", value_name = "NAME=ADDRESS:PORT")]
    given: Vec<sqs::Given>,
    /// Short and noisy: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<sqs::Part>,
    /// How often each cell is measured
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// How long a cell is measured each time
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// The node's binary; the one beside this one if not given
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    /// Rewrite the section of the benchmark page
    #[arg(long)]
    write: bool,
    /// The benchmark page
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks.md")]
    page: PathBuf,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Kernel(arguments) => measure_kernel(&arguments),
        Command::Mailbox(arguments) => measure_mailbox(arguments),
        Command::Sqs(arguments) => measure_sqs(arguments),
        Command::ServeBare => servers::serve_bare(),
        Command::ServeLayers => servers::serve_layers(),
        Command::ServeSend => servers::serve(mailbox::bare_router()),
    }
}

fn measure_kernel(arguments: &KernelArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.quick)?;
    let machine = machine::describe();
    let rows = kernel::measure(size, arguments.only)?;
    println!("\n{machine}\n\n{}", report::plain_table(&rows));
    if arguments.write {
        let section = Section { machine: &machine, quick: arguments.quick, rows: &rows };
        report::write_section(&arguments.page, "kernel", &section.markdown())?;
        println!("wrote {}", arguments.page.display());
    }
    Ok(())
}

fn measure_mailbox(arguments: MailboxArgs) -> anyhow::Result<()> {
    let plan = mailbox::Plan::new(
        size_of(arguments.quick)?,
        arguments.rounds,
        arguments.seconds,
        arguments.connections.max(1),
    );
    let machine = machine::describe();
    let options = mailbox::Options {
        plan,
        only: arguments.only,
        peers: arguments.peers,
        systems: arguments.systems,
        node: arguments.node.map_or_else(process::node_binary, Ok)?,
    };
    let outcome = mailbox::measure(&options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.write {
        let picture = arguments.page.with_file_name(PICTURE);
        std::fs::write(&picture, outcome.chart())?;
        report::write_section(&arguments.page, "mailbox", &outcome.markdown(&machine, PICTURE))?;
        println!("wrote {} and {}", arguments.page.display(), picture.display());
    }
    Ok(())
}

fn measure_sqs(arguments: SqsArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.quick)?;
    // Single rounds of a shared machine differ by half: only the middle of several says whether a target is met.
    let rounds = arguments.rounds.unwrap_or_else(|| size.pick(1, 7));
    let machine = machine::describe();
    let options = sqs::Options {
        plan: mailbox::Plan::new(size, Some(rounds), arguments.seconds, 64),
        only: arguments.only,
        peers: arguments.peers,
        given: arguments.given,
        node: arguments.node.map_or_else(process::node_binary, Ok)?,
    };
    let outcome = sqs::measure(&options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.write {
        report::write_section(&arguments.page, "sqs", &outcome.markdown(&machine))?;
        println!("wrote {}", arguments.page.display());
    }
    Ok(())
}

fn size_of(quick: bool) -> anyhow::Result<Size> {
    anyhow::ensure!(
        !cfg!(debug_assertions) || quick,
        "this is a debug build; use cargo build --release -p macronode -p macronode-bench, or --quick"
    );
    Ok(if quick { Size::Quick } else { Size::Full })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["macronode-bench", "kernel", "--quick", "--only", "queue"]).is_ok());
        let partial = Cli::try_parse_from(["macronode-bench", "kernel", "--write", "--only", "queue"]);
        assert!(partial.is_err(), "a part must not replace the whole section");
        let mailbox = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "mailbox"], more].concat());
        assert!(mailbox(&["--peers", "--quick", "--only", "memory", "--systems", "nats,redis"]).is_ok());
        assert!(mailbox(&["--write", "--systems", "nats"]).is_err());
        let sqs = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "sqs"], more].concat());
        assert!(sqs(&["--peers", "--quick", "--write", "--peer", "elasticmq=127.0.0.1:9324"]).is_ok());
        assert!(sqs(&["--write", "--only", "held"]).is_err());
    }
}
