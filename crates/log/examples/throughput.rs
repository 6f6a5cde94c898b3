//! Durable records a second: the bare loop, this log on one thread, and this log with its writer thread.
//!
//! `cargo run --release -p ron-log --example throughput [directory] [rounds]`. The cases take turns, so that other work on
//! the machine hits them alike; compare the ratios, not the absolute figures.

use ron_log::{Class, Log, LogOptions, RealDisk};
use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: usize = 64;
const BODY: [u8; 256] = [7; 256];
const CASE: Duration = Duration::from_millis(700);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let rounds: usize = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let folder = tempfile::tempdir_in(parent)?;
    let mut rates: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds {
        let path = folder.path().join(format!("round-{round}"));
        std::fs::create_dir(&path)?;
        rates[0].push(raw(&path.join("raw"))?);
        rates[1].push(flushed(&path.join("flushed"))?);
        rates[2].push(threaded(&path.join("threaded"), 1)?);
        rates[3].push(threaded(&path.join("overlapped"), 2)?);
        std::fs::remove_dir_all(&path)?;
    }
    let names =
        ["bare loop", "log, flush on the caller's thread", "log, writer thread, 64 in flight", "the same, 2 x 64"];
    let ceiling = median(&mut rates[0]);
    for (name, rates) in names.iter().zip(&mut rates) {
        let rate = median(rates);
        println!("{name:36} {rate:9.0} records/s  {:.2} of the bare loop", rate / ceiling);
    }
    replay(folder.path())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a measurement wants the real clock")]
fn now() -> Instant {
    Instant::now()
}

fn rate(mut group: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    for _ in 0..20 {
        group()?;
    }
    let start = now();
    let mut groups = 0_u32;
    while start.elapsed() < CASE {
        group()?;
        groups += 1;
    }
    Ok(f64::from(groups) * GROUP as f64 / start.elapsed().as_secs_f64())
}

/// What the disk gives: records one after the other in a zero-filled file, a sync after each group.
fn raw(path: &Path) -> Outcome<f64> {
    let file_bytes = 64 << 20;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    file.write_all_at(&vec![0; file_bytes], 0)?;
    file.sync_all()?;
    let group = BODY.repeat(GROUP);
    let mut at = 0;
    rate(|| {
        file.write_all_at(&group, at)?;
        file.sync_data()?;
        at = (at + group.len() as u64) % (file_bytes as u64 - group.len() as u64);
        Ok(())
    })
}

fn open(path: &Path) -> Outcome<Log> {
    let options = LogOptions { quota_bytes: 64 << 30, ..LogOptions::default() };
    let (log, _) = Log::open(Arc::new(RealDisk::open(path)?), options, &mut |_, _| {})?;
    // The next segment is made before the clock starts, as it is in a process that has run for a while.
    log.flush()?;
    Ok(log)
}

fn append_group(log: &Log) -> Outcome<ron_log::Lsn> {
    let mut appender = log.appender();
    for number in 0..GROUP {
        appender.append(Class::Data, &(number as u64).to_le_bytes(), &BODY)?;
    }
    Ok(appender.lsn())
}

fn flushed(path: &Path) -> Outcome<f64> {
    let log = open(path)?;
    rate(|| {
        append_group(&log)?;
        log.flush()?;
        Ok(())
    })
}

/// `groups` groups of records are in flight; one is replaced when it is durable.
fn threaded(path: &Path, groups: usize) -> Outcome<f64> {
    let log = open(path)?;
    let writer = log.start_writer()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut watch = log.watch();
    let mut in_flight = std::collections::VecDeque::new();
    let measured = rate(|| {
        while in_flight.len() < groups {
            in_flight.push_back(append_group(&log)?);
        }
        let oldest = in_flight.pop_front().ok_or("nothing in flight")?;
        runtime.block_on(watch.reached(oldest))?;
        Ok(())
    });
    writer.stop()?;
    measured
}

/// How long a restart takes when sidecars tell what the segments hold.
fn replay(folder: &Path) -> Outcome<()> {
    let path = folder.join("replay");
    let log = open(&path)?;
    let records = 1_000_000_u32;
    for number in 0..records {
        let head = [number.to_le_bytes(); 8].concat();
        log.appender().append(Class::Data, &head, &[7; 64])?;
        if number % 10_000 == 0 {
            log.flush()?;
        }
    }
    log.seal()?;
    drop(log);
    let disk = Arc::new(RealDisk::open(&path)?);
    let start = now();
    let mut seen = 0_u64;
    let (_log, recovery) = Log::open(disk, LogOptions::default(), &mut |replayed, live| {
        seen += replayed.head.len() as u64;
        live.release(replayed.position);
    })?;
    let elapsed = start.elapsed();
    println!(
        "replay of {} records in {elapsed:?}; {} segments read whole",
        recovery.records, recovery.segments_read_whole
    );
    Ok(())
}
