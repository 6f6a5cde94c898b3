//! iroh-gossip, measured by a program of its own: its dependencies are many, and none of them is needed here.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_kernel::Deadline;

use super::Cell;
use super::drive::Figure;
use super::systems::Measured;

/// Name of the program, which lies beside this one.
const PROGRAM: &str = "macronode-bench-iroh";
/// How it gets there.
pub const BUILD: &str = "cargo build --release --manifest-path crates/bench/iroh/Cargo.toml --target-dir target";
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

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

    /// Runs it to its end; what it said. A line or two fit the pipes, so nobody has to read along.
    async fn run(&self, arguments: &[String], within: Duration) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut process, deadline) = (EndedOnDrop(command.spawn()?), Deadline::after(within));
        let status = loop {
            match process.0.try_wait()? {
                Some(status) => break status,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
            anyhow::ensure!(!deadline.has_passed(), "it did not end within {within:?}");
        };
        let said = read(process.0.stderr.take())?;
        anyhow::ensure!(status.success(), "{status}: {}", said.lines().last().unwrap_or_default());
        read(process.0.stdout.take())
    }
}

/// A process that does not outlive the wait for it.
struct EndedOnDrop(Child);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read(pipe: Option<impl Read>) -> anyhow::Result<String> {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_string(&mut text)?;
    }
    Ok(text)
}

impl Measured for Iroh {
    fn measure(&self, cell: Cell, time: Duration) -> BoxFuture<'_, anyhow::Result<Figure>> {
        Box::pin(async move {
            let numbers = [cell.subscribers as f64, cell.payload_bytes as f64, time.as_secs_f64()];
            let (arguments, within) = (numbers.map(|number| number.to_string()), 4 * time + PATIENCE);
            // Now and then somebody does not join, or is dropped: a second try shows whether that is the rule.
            match self.run(&arguments, within).await {
                Ok(said) => figure(&said),
                Err(_) => figure(&self.run(&arguments, within).await?),
            }
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
