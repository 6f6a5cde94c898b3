//! Time to seal what a node did as the usage of an epoch: in memory, and until it is durable on a real disk, beside a
//! bare write and sync of as many bytes.
//!
//! `cargo run --release -p svc-rewarder --example seal_usage [ROWS]`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ron_kernel::{Deadline, Meter, Metrics};
use ron_log::{Disk, RamDisk, RealDisk};
use svc_rewarder::usage_meter::{FILES_KEPT, OpenDisk, UsageMeter};

const ROWS: usize = 100_000;
const ROUNDS: usize = 21;
/// Metrics of each tenant.
const METRICS: [&str; 5] = ["sent", "bytes_sent", "received", "bytes_received", "acknowledged"];

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(ROWS), |text| text.parse())?;
    let folder = std::env::current_exe()?.parent().ok_or("a folder")?.to_owned();
    let scratch = tempfile::Builder::new().prefix("seal-").tempdir_in(folder)?;
    let (memory, path) = (Arc::new(RamDisk::new()), scratch.path().join("usage"));
    let in_memory: Box<OpenDisk> = Box::new(move || Ok(Arc::clone(&memory) as Arc<dyn Disk>));
    let on_disk: Box<OpenDisk> = Box::new(move || Ok(Arc::new(RealDisk::open(&path)?)));
    let (millis, bytes) = seals(in_memory, rows)?;
    tell("in memory", rows, millis);
    let (millis, _) = seals(on_disk, rows)?;
    tell("durable on the disk", rows, millis);
    let mut file = std::fs::File::create(scratch.path().join("bare"))?;
    let bare = (0..ROUNDS).map(|_| -> std::io::Result<f64> {
        let began = Instant::now();
        file.write_all(&vec![b'x'; bytes])?;
        file.sync_data()?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    });
    tell("a bare write and sync of its bytes", rows, bare.collect::<Result<_, _>>()?);
    Ok(())
}

fn tell(what: &str, rows: usize, mut millis: Vec<f64>) {
    millis.sort_by(f64::total_cmp);
    let (median, worst) = (millis[millis.len() / 2], millis[millis.len() - 1]);
    let per_10_000 = median * 1e4 / rows as f64;
    println!("{rows} rows, {what}: median {median:.2} ms, worst {worst:.2} ms; {per_10_000:.3} ms for 10,000 rows");
}

/// Milliseconds of each seal, and the bytes of the last file.
fn seals(open_disk: Box<OpenDisk>, rows: usize) -> Result<(Vec<f64>, usize), Box<dyn Error>> {
    let meter = Meter::with_rows(rows, &Metrics::new());
    let usage = UsageMeter::new(meter.clone(), open_disk, FILES_KEPT);
    usage.open().map_err(|error| format!("{error:?}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut millis, mut bytes) = (Vec::new(), 0);
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
        bytes = usize::try_from(sealed.bytes)?;
    }
    Ok((millis, bytes))
}
