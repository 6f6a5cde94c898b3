//! Sealing what a node did for its tenants as the usage of an epoch: in memory, and until it is durable on a disk.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ron_kernel::{Deadline, Meter, Metrics, clock};
use ron_log::{Disk, RamDisk, RealDisk};
use svc_rewarder::usage_meter::{FILES_KEPT, OpenDisk, UsageMeter};
use tokio::runtime::Runtime;

use crate::mailbox::scratch::{Scratch, settle_disk};
use crate::report::{Row, Target};
use crate::stats::{Spread, ratios};

const ROWS: usize = 10_000;
/// Seals of each kind. Half a megabyte is written in a moment, so there is time for many.
const SEALS: usize = 51;
/// Metrics of each tenant.
const METRICS: [&str; 5] = ["sent", "bytes_sent", "received", "bytes_received", "acknowledged"];

/// Both rows.
pub fn measure(scratch: &Scratch) -> anyhow::Result<[Row; 2]> {
    let (memory, folder) = (Arc::new(RamDisk::new()), scratch.folder("usage")?);
    let in_memory: Box<OpenDisk> = Box::new(move || Ok(Arc::clone(&memory) as Arc<dyn Disk>));
    let on_disk: Box<OpenDisk> = Box::new(move || Ok(Arc::new(RealDisk::open(&folder)?)));
    let (in_memory, bytes) = seals(in_memory)?;
    settle_disk();
    let (on_disk, _) = seals(on_disk)?;
    let bare = bare(scratch.folder("bare")?, bytes)?;
    let told = |millis: &[f64]| {
        let spread = Spread::of(millis).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
        (spread.median, format!("{:.2} ms ({:.2} to {:.2})", spread.median, spread.min, spread.max))
    };
    let (median, ours) = told(&in_memory);
    Ok([
        Row {
            name: format!("sealing usage, {ROWS} rows"),
            ours,
            value: Some(median),
            peer: String::new(),
            ratio: None,
            target: Target::Below(1.0, "ms"),
            meaning: "From the totals in memory to the sealed and hashed file in its log; the log is in memory."
                .to_owned(),
        },
        Row {
            name: format!("sealing usage, {ROWS} rows, until durable on the disk"),
            ours: told(&on_disk).1,
            value: None,
            peer: format!("{} (a bare write and sync of its bytes)", told(&bare).1),
            // Shares of the time, so that above one is quicker here too.
            ratio: ratios(&bare, &on_disk),
            target: Target::None,
            meaning: "The same until the caller is told that it will survive a power cut.".to_owned(),
        },
    ])
}

/// Milliseconds of each seal, and the bytes of a file.
fn seals(open_disk: Box<OpenDisk>) -> anyhow::Result<(Vec<f64>, usize)> {
    let meter = Meter::with_rows(ROWS, &Metrics::new());
    let usage = UsageMeter::new(meter.clone(), open_disk, FILES_KEPT);
    usage.open().map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut millis, mut bytes) = (Vec::with_capacity(SEALS), 0);
    // The first fills an empty book, and is not counted: a node fills its own over an epoch.
    for round in 0..=SEALS {
        count(&meter, &usage, &runtime)?;
        let deadline = Deadline::after(Duration::from_secs(60));
        let started = clock::now();
        let sealed = runtime.block_on(usage.seal(format!("e{round}").parse()?, None, deadline))?;
        let taken = clock::now().duration_since(started).as_secs_f64() * 1e3;
        anyhow::ensure!(sealed.rows == ROWS as u64, "{} rows were sealed", sealed.rows);
        bytes = usize::try_from(sealed.bytes)?;
        millis.extend((round > 0).then_some(taken));
    }
    Ok((millis, bytes))
}

/// Counts all rows and has them taken up, as a node does each second.
fn count(meter: &Meter, usage: &UsageMeter, runtime: &Runtime) -> anyhow::Result<()> {
    for row in 0..ROWS {
        meter.count(&format!("tenant-{:07}", row / METRICS.len()), METRICS[row % METRICS.len()], 17);
    }
    runtime.block_on(usage.page(None, 1, Deadline::after(Duration::from_secs(60))))?;
    Ok(())
}

/// Milliseconds of bare writes and syncs.
fn bare(folder: PathBuf, bytes: usize) -> anyhow::Result<Vec<f64>> {
    let mut file = std::fs::File::create(folder.join("bare"))?;
    let content = vec![b'x'; bytes];
    let mut write = || {
        let started = clock::now();
        file.write_all(&content)?;
        file.sync_data()?;
        Ok(clock::now().duration_since(started).as_secs_f64() * 1e3)
    };
    (0..SEALS).map(|_| write()).collect()
}
