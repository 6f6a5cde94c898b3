//! iroh-gossip, measured by a program of its own: its dependencies are many, and none of them is needed here.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_kernel::Deadline;

use super::Cell;
use super::drive::Figure;
use super::systems::Measured;

/// Name of the program, which lies beside this one.
const PROGRAM: &str = "macronode-bench-iroh";
/// How it gets there.
const BUILD: &str = "cargo build --release --manifest-path crates/bench/iroh/Cargo.toml --target-dir target";
const PATIENCE: Duration = Duration::from_secs(30);

/// The program that measures iroh-gossip.
pub struct Iroh {
    program: PathBuf,
}

impl Iroh {
    /// Finds it; its name and version too.
    pub async fn find() -> anyhow::Result<(String, Iroh)> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        anyhow::ensure!(program.is_file(), "there is no {PROGRAM} beside this binary: {BUILD}");
        let iroh = Iroh { program };
        let name = iroh.run(&["--version".to_owned()], PATIENCE).await?;
        Ok((name.trim().to_owned(), iroh))
    }

    /// Runs it to its end; what it said.
    async fn run(&self, arguments: &[String], within: Duration) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = Deadline::after(within).run("iroh-gossip", command.output()).await??;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{}: {}", output.status, said.lines().last().unwrap_or_default());
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Measured for Iroh {
    fn measure(&self, cell: Cell, time: Duration) -> BoxFuture<'_, anyhow::Result<Figure>> {
        Box::pin(async move {
            let numbers = [cell.subscribers as f64, cell.payload_bytes as f64, time.as_secs_f64()];
            let said = self.run(&numbers.map(|number| number.to_string()), 4 * time + PATIENCE).await?;
            figure(&said)
        })
    }
}

/// A rate and two times, separated by spaces.
fn figure(said: &str) -> anyhow::Result<Figure> {
    let numbers: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [rate, p50_ms, p99_ms] = numbers[..] else { anyhow::bail!("{said:?} is no figure") };
    Ok(Figure { rate, p50_ms, p99_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_a_figure() {
        let read = figure("1234.5 0.25 1.5\n").expect("a figure");
        assert_eq!((read.rate, read.p50_ms, read.p99_ms), (1234.5, 0.25, 1.5));
        assert!(figure("1 2").is_err() && figure("a b c").is_err());
    }
}
