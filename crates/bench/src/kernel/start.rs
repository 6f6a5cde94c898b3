//! How long the node takes from being spawned to being ready.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use ron_kernel::{Deadline, clock};

use super::Size;
use crate::process::{free_address, is_ready, node_binary};
use crate::report::{Row, Target};
use crate::stats::Spread;

const LOOK_EVERY: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts the node again and again, each time in a new data directory.
pub fn measure(size: Size) -> anyhow::Result<Vec<Row>> {
    let binary = node_binary()?;
    let runs = size.pick(3, 20);
    let millis: Vec<f64> = (0..runs).map(|_| start_once(&binary)).collect::<anyhow::Result<_>>()?;
    let spread = Spread::of(&millis).context("the node was started")?;
    Ok(vec![Row {
        name: "cold start to ready".to_owned(),
        ours: format!("p50 {:.0} ms, max {:.0} ms", spread.median, spread.max),
        value: Some(spread.median),
        peer: String::new(),
        ratio: None,
        target: Target::Below(300.0, "ms"),
        meaning: format!(
            "From spawning the process, with an empty data directory, until /readyz answers 200, {runs} times; the \
             token and the addresses are on disk by then."
        ),
    }])
}

/// A node's process; killed when dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_once(binary: &Path) -> anyhow::Result<f64> {
    let folder = tempfile::Builder::new().prefix("macronode-bench").tempdir()?;
    let admin = free_address()?;
    let mut command = Command::new(binary);
    command.args(["run", "--api", "127.0.0.1:0", "--oap", "127.0.0.1:0", "--admin", &admin.to_string(), "--data-dir"]);
    command.arg(folder.path().join("data")).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"MACRO_")) {
        command.env_remove(name);
    }
    let deadline = Deadline::after(PATIENCE);
    let began = clock::now();
    let mut node = Started(command.spawn()?);
    while !is_ready(admin) {
        if let Some(status) = node.0.try_wait()? {
            anyhow::bail!("the node ended with {status}");
        }
        anyhow::ensure!(!deadline.has_passed(), "the node was not ready within {PATIENCE:?}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
