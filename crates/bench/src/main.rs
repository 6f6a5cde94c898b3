//! Measures this node beside its peers in one run, and writes what it found into the documentation.

mod growth;
mod head;
mod index;
mod kernel;
mod load;
mod machine;
mod mailbox;
mod overlay;
mod process;
mod report;
mod rewarder;
mod servers;
mod sqs;
mod stats;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::kernel::{KernelPart, Size};
use crate::report::KernelPage;

/// The same as the node's, so that its engine in this process is the node's engine.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The picture of the page about the mailbox, beside it.
const PICTURE: &str = "mailbox.svg";

/// Measures macronode beside its peers; ratios come from alternating rounds of one run.
#[derive(Debug, Parser)]
#[command(name = "macronode-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The kernel: queues, HTTP layers, runtimes, restarts, start, memory.
    Kernel(KernelArgs),
    /// The mailbox: sending, receiving, backlog, memory and restart, beside other queues.
    Mailbox(MailboxArgs),
    /// The SQS surface: beside the native one, and beside other servers that speak SQS.
    Sqs(SqsArgs),
    /// Reward runs: adding usage up, dividing a pool, the whole job, beside DuckDB, Polars and pandas.
    Rewarder(RewarderArgs),
    /// The overlay: lanes, sessions, the mailbox over OAP/1, a stopped peer, beside its peers and bare loopback.
    Overlay(OverlayArgs),
    /// What grows with time and size: minutes of load with a small log, over queues of several lengths.
    Growth(GrowthArgs),
    /// The index: answers from memory, lookups among nodes that do not answer, millions of records.
    Index(IndexArgs),
    /// The store with so many records; prints what it came to.
    #[command(hide = true)]
    IndexStore(index::StoreArgs),
    /// A copy of an answer of the index on bare axum; prints its port.
    #[command(hide = true)]
    ServeCopy(index::CopyArgs),
    /// One job of the page about reward runs; prints what it did.
    #[command(hide = true)]
    RewarderChild(rewarder::ChildArgs),
    /// Holds sessions with a node until stdin closes; prints how many.
    #[command(hide = true)]
    HoldSessions(overlay::HoldArgs),
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

/// What every page takes.
#[derive(Args, Debug)]
struct PageArgs {
    /// Short and noisy: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Rewrite the page, with its picture if it has one, and the rows that the first page takes from it
    #[arg(long)]
    write: bool,
    /// The folder of the pages; the first page lies beside it under the same name
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    folder: PathBuf,
}

/// What the pages take that measure cells of a node.
#[derive(Args, Debug)]
struct CellArgs {
    /// How often each cell is measured
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// How long a cell is measured each time
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// The node's binary; the one beside this one if not given
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct KernelArgs {
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<KernelPart>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args, Debug)]
struct MailboxArgs {
    /// Measure other queues too; those that are missing are installed when run as root
    #[arg(long)]
    peers: bool,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<mailbox::MailboxPart>,
    /// Only systems of these names: macronode, engine, ceiling, nats, redis, rabbitmq, beanstalkd, postgresql
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "write")]
    systems: Vec<String>,
    /// Connections of peers whose clients carry many requests on one
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    connections: usize,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args, Debug)]
struct SqsArgs {
    /// Measure other servers too; they are installed from PyPI beside the build
    #[arg(long)]
    peers: bool,
    /// Measure a server of SQS that is running, too; may be repeated
    #[arg(long = "peer", value_name = "NAME=ADDRESS:PORT")]
    given: Vec<sqs::Given>,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<sqs::SqsPart>,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args, Debug)]
struct OverlayArgs {
    /// Measure NATS, gossipsub and iroh-gossip too; NATS is installed from PyPI beside the build
    #[arg(long)]
    peers: bool,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<overlay::OverlayPart>,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args, Debug)]
struct GrowthArgs {
    /// How long each load lasts [default: 600, or 10 with --quick]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// The node's binary; the one beside this one if not given
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args, Debug)]
struct RewarderArgs {
    /// Measure DuckDB, Polars, pandas, PostgreSQL and the tree of npm too; packages are installed beside the build
    #[arg(long)]
    peers: bool,
    /// How often each thing is measured
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Leave out epochs of more rows
    #[arg(long, value_name = "ROWS", conflicts_with = "write", default_value_t = u64::MAX)]
    rows_max: u64,
    /// The node's binary; the one beside this one if not given
    #[arg(long, value_name = "FILE")]
    node: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args, Debug)]
struct IndexArgs {
    /// Measure Redis, Helia's routing server and libp2p's Kademlia too; those that are missing are installed
    #[arg(long)]
    peers: bool,
    /// Measure one part only
    #[arg(long, value_name = "NAME", conflicts_with = "write")]
    only: Option<index::IndexPart>,
    /// Provider records of the store; names are a tenth
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    records: Option<u64>,
    /// Leave out networks of fewer nodes
    #[arg(long, value_name = "COUNT", conflicts_with = "write", default_value_t = 0)]
    nodes_min: usize,
    /// Leave out networks of more nodes
    #[arg(long, value_name = "COUNT", conflicts_with = "write", default_value_t = usize::MAX)]
    nodes_max: usize,
    #[command(flatten)]
    cells: CellArgs,
    #[command(flatten)]
    page: PageArgs,
}

fn main() -> anyhow::Result<()> {
    // The peers' clients take the provider of the process; ours name theirs.
    #[cfg(feature = "peers")]
    let _one_already = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Cli::parse().command {
        Command::Kernel(arguments) => measure_kernel(&arguments),
        Command::Mailbox(arguments) => measure_mailbox(arguments),
        Command::Sqs(arguments) => measure_sqs(arguments),
        Command::Rewarder(arguments) => measure_rewarder(arguments),
        Command::Overlay(arguments) => measure_overlay(arguments),
        Command::Growth(arguments) => measure_growth(arguments),
        Command::Index(arguments) => measure_index(arguments),
        Command::IndexStore(arguments) => index::run_store(&arguments),
        Command::ServeCopy(arguments) => index::serve_copy(&arguments),
        Command::RewarderChild(arguments) => rewarder::run_child(&arguments),
        Command::HoldSessions(arguments) => overlay::hold(&arguments),
        Command::ServeBare => servers::serve_bare(),
        Command::ServeLayers => servers::serve_layers(),
        Command::ServeSend => servers::serve(mailbox::bare_router()),
    }
}

fn measure_kernel(arguments: &KernelArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.page.quick)?;
    let machine = machine::describe();
    let rows = kernel::measure(size, arguments.only)?;
    println!("\n{machine}\n\n{}", report::plain_table(&rows));
    if arguments.page.write {
        let page = KernelPage { machine: &machine, quick: arguments.page.quick, rows: &rows };
        head::write_page(&arguments.page.folder, "kernel", &page.markdown())?;
    }
    Ok(())
}

fn measure_mailbox(arguments: MailboxArgs) -> anyhow::Result<()> {
    let plan = mailbox::Plan::new(
        size_of(arguments.page.quick)?,
        arguments.cells.rounds,
        arguments.cells.seconds,
        arguments.connections.max(1),
    );
    let machine = machine::describe();
    let options = mailbox::Options {
        plan,
        only: arguments.only,
        peers: arguments.peers,
        systems: arguments.systems,
        node: arguments.cells.node.map_or_else(process::node_binary, Ok)?,
    };
    let outcome = mailbox::measure(&options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.page.write {
        std::fs::write(arguments.page.folder.join(PICTURE), outcome.chart())?;
        head::write_page(&arguments.page.folder, "mailbox", &outcome.markdown(&machine, PICTURE))?;
    }
    Ok(())
}

fn measure_sqs(arguments: SqsArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.page.quick)?;
    // Single rounds of a shared machine differ by half: only the middle of several says whether a target is met.
    let rounds = arguments.cells.rounds.unwrap_or_else(|| size.pick(1, 7));
    let machine = machine::describe();
    let options = sqs::Options {
        plan: mailbox::Plan::new(size, Some(rounds), arguments.cells.seconds, 64),
        only: arguments.only,
        peers: arguments.peers,
        given: arguments.given,
        node: arguments.cells.node.map_or_else(process::node_binary, Ok)?,
    };
    let outcome = sqs::measure(&options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.page.write {
        head::write_page(&arguments.page.folder, "sqs", &outcome.markdown(&machine))?;
    }
    Ok(())
}

fn measure_overlay(arguments: OverlayArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.page.quick)?;
    let machine = machine::describe();
    let seconds = arguments.cells.seconds.unwrap_or_else(|| size.pick(0.2, 1.0));
    let options = overlay::Options {
        size,
        rounds: arguments.cells.rounds.unwrap_or_else(|| size.pick(1, 5)).max(1),
        time: std::time::Duration::try_from_secs_f64(seconds)?,
        only: arguments.only,
        peers: arguments.peers,
        node: arguments.cells.node.map_or_else(process::node_binary, Ok)?,
    };
    let outcome = overlay::measure(&options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.page.write {
        head::write_page(&arguments.page.folder, "overlay", &outcome.markdown(&machine))?;
    }
    Ok(())
}

fn measure_index(arguments: IndexArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.page.quick)?;
    let machine = machine::describe();
    let seconds = arguments.cells.seconds.unwrap_or_else(|| size.pick(0.2, 1.5));
    let options = index::Options {
        size,
        rounds: arguments.cells.rounds.unwrap_or_else(|| size.pick(1, 3)).max(1),
        time: std::time::Duration::try_from_secs_f64(seconds)?,
        only: arguments.only,
        peers: arguments.peers,
        records: arguments.records.unwrap_or_else(|| size.pick(100_000, 10_000_000)),
        nodes: arguments.nodes_min..=arguments.nodes_max,
        node: arguments.cells.node.map_or_else(|| process::node_binary().map_err(|error| error.to_string()), Ok),
        scratch: PathBuf::new(),
    };
    let outcome = index::measure(options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.page.write {
        head::write_page(&arguments.page.folder, "index", &outcome.markdown(&machine))?;
    }
    Ok(())
}

fn measure_growth(arguments: GrowthArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.page.quick)?;
    let machine = machine::describe();
    let seconds = arguments.seconds.unwrap_or_else(|| size.pick(10.0, 600.0));
    let options = growth::Options { size, seconds, node: arguments.node.map_or_else(process::node_binary, Ok)? };
    let outcome = process::run_until_interrupted(growth::measure(&options))?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.page.write {
        let page = growth::GrowthPage { machine: &machine, quick: arguments.page.quick, seconds, outcome: &outcome };
        head::write_page(&arguments.page.folder, "growth", &page.markdown())?;
    }
    Ok(())
}

fn measure_rewarder(arguments: RewarderArgs) -> anyhow::Result<()> {
    let size = size_of(arguments.page.quick)?;
    let machine = machine::describe();
    let options = rewarder::Options {
        size,
        rounds: arguments.rounds.unwrap_or_else(|| size.pick(1, 5)),
        rows_max: arguments.rows_max,
        peers: arguments.peers,
        node: arguments.node.or_else(|| process::node_binary().ok()),
    };
    let outcome = rewarder::measure(&options)?;
    println!("\n{machine}\n\n{}", outcome.plain());
    if arguments.page.write {
        head::write_page(&arguments.page.folder, "rewarder", &outcome.markdown(&machine))?;
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
        assert!(partial.is_err(), "a part must not replace the whole page");
        let mailbox = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "mailbox"], more].concat());
        assert!(mailbox(&["--peers", "--quick", "--only", "memory", "--systems", "nats,redis"]).is_ok());
        assert!(mailbox(&["--write", "--systems", "nats"]).is_err());
        let sqs = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "sqs"], more].concat());
        assert!(sqs(&["--peers", "--quick", "--write", "--peer", "elasticmq=127.0.0.1:9324"]).is_ok());
        assert!(sqs(&["--write", "--only", "held"]).is_err());
        let overlay = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "overlay"], more].concat());
        assert!(overlay(&["--peers", "--quick", "--only", "handshakes"]).is_ok());
        assert!(overlay(&["--write", "--only", "stopped"]).is_err(), "a part must not replace the whole page");
        let index = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "index"], more].concat());
        assert!(index(&["--peers", "--quick", "--only", "lookups", "--records", "1000000"]).is_ok());
        assert!(index(&["--write", "--only", "store"]).is_err(), "a part must not replace the whole page");
        let rewarder = |more: &[&str]| Cli::try_parse_from([&["macronode-bench", "rewarder"], more].concat());
        assert!(rewarder(&["--peers", "--quick", "--write"]).is_ok());
        assert!(rewarder(&["--write", "--rows-max", "1000000"]).is_err(), "a part must not replace the whole page");
    }
}
