//! Time to seal what a node did as the usage of an epoch, until it is durable on a real disk.
//!
//! `cargo run --release -p svc-rewarder --example seal_usage [ROWS]`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ron_kernel::{Deadline, Meter, Metrics};
use ron_log::RealDisk;
use svc_rewarder::usage_meter::{FILES_KEPT, UsageMeter};

const ROWS: usize = 100_000;
const ROUNDS: usize = 21;
/// Metrics of each tenant.
const METRICS: [&str; 5] = [
    "mailbox.messages_sent",
    "mailbox.bytes_sent",
    "mailbox.messages_received",
    "mailbox.bytes_received",
    "mailbox.acks",
];

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(ROWS), |text| text.parse())?;
    let scratch =
        tempfile::Builder::new().prefix("seal-").tempdir_in(std::env::current_exe()?.parent().ok_or("a folder")?)?;
    let path = scratch.path().to_owned();
    let meter = Meter::with_rows(rows, &Metrics::new());
    let usage = UsageMeter::new(meter.clone(), Box::new(move || Ok(Arc::new(RealDisk::open(&path)?))), FILES_KEPT);
    usage.open().map_err(|error| format!("{error:?}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut millis: Vec<f64> = Vec::new();
    for round in 0..ROUNDS {
        for row in 0..rows {
            meter.count(&format!("tenant-{:07}", row / METRICS.len()), METRICS[row % METRICS.len()], 17);
        }
        // What was counted is taken each second; a seal finds at most a second of it.
        let deadline = Deadline::after(Duration::from_secs(60));
        runtime.block_on(usage.page(None, 1, deadline))?;
        let began = Instant::now();
        let sealed = runtime.block_on(usage.seal(format!("e{round}").parse()?, None, deadline))?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!(sealed.rows, rows as u64);
    }
    millis.sort_by(f64::total_cmp);
    let (median, worst) = (millis[ROUNDS / 2], millis[ROUNDS - 1]);
    let per_10_000 = median * 1e4 / rows as f64;
    println!(
        "{rows} rows sealed and durable: median {median:.2} ms, worst {worst:.2} ms; {per_10_000:.3} ms for 10,000 rows"
    );
    Ok(())
}
