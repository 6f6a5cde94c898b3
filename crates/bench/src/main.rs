//! Measures this node beside its peers in one run, and writes what it found into the documentation.

mod kernel;
mod load;
mod machine;
mod process;
mod report;
mod servers;
mod stats;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::kernel::{Part, Size};
use crate::report::Section;

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
    /// A peer of the HTTP rows; prints its port.
    #[command(hide = true)]
    ServeBare,
    /// The same handlers behind the layers of the public plane; prints its port.
    #[command(hide = true)]
    ServeLayers,
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

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Kernel(arguments) => measure_kernel(&arguments),
        Command::ServeBare => servers::serve_bare(),
        Command::ServeLayers => servers::serve_layers(),
    }
}

fn measure_kernel(arguments: &KernelArgs) -> anyhow::Result<()> {
    let size = if arguments.quick { Size::Quick } else { Size::Full };
    anyhow::ensure!(
        !cfg!(debug_assertions) || arguments.quick,
        "this is a debug build; use cargo build --release -p macronode -p macronode-bench, or --quick"
    );
    let machine = machine::describe();
    let rows = kernel::measure(size, arguments.only)?;
    println!("\n{machine}\n\n{}", report::plain_table(&rows));
    if arguments.write {
        let section = Section { machine: &machine, quick: arguments.quick, rows: &rows };
        report::write_section(&arguments.page, &section.markdown())?;
        println!("wrote {}", arguments.page.display());
    }
    Ok(())
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
    }
}
