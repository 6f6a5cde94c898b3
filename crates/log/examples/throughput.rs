//! Durable records a second: the bare loop, this log on one thread, and this log with its writer thread.
//!
//! `cargo run --release -p ron-log --example throughput [directory] [rounds]`. The cases take turns, so that other
//! work on the machine hits them alike; compare the ratios, not the absolute figures.

use ron_log::{Class, Log, LogOptions, Lsn, RealDisk, Watch};
use std::collections::VecDeque;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: usize = 64;
const BODY: [u8; 256] = [7; 256];
const SLICE: Duration = Duration::from_millis(60);
const RAW_FILE_BYTES: u64 = 64 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;
/// Makes one group durable, or several on average.
type Case<'a> = &'a mut dyn FnMut() -> Outcome<()>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let rounds: usize = arguments.next().map_or(Ok(40), |text| text.parse())?;
    let folder = tempfile::tempdir_in(parent)?;
    commits(folder.path(), rounds)?;
    replay(folder.path())
}

fn commits(folder: &Path, rounds: usize) -> Outcome<()> {
    let file = raw_file(&folder.join("raw"))?;
    let group = BODY.repeat(GROUP);
    let mut at = 0;
    let mut raw = || {
        file.write_all_at(&group, at)?;
        file.sync_data()?;
        at = (at + group.len() as u64) % (RAW_FILE_BYTES - group.len() as u64);
        Ok(())
    };
    let flushed_log = open(&folder.join("flushed"))?;
    let mut flushed = || {
        append_group(&flushed_log)?;
        flushed_log.flush()?;
        Ok(())
    };
    let threaded_log = open(&folder.join("threaded"))?;
    let writer = threaded_log.start_writer()?;
    let (mut one, mut two) = (InFlight::new(&threaded_log, 1)?, InFlight::new(&threaded_log, 2)?);
    let (mut threaded, mut overlapped) = (|| one.replace(), || two.replace());
    let mut cases: [(&str, Case); 4] = [
        ("bare loop", &mut raw),
        ("log, flush on the caller's thread", &mut flushed),
        ("log, writer thread, 64 in flight", &mut threaded),
        ("log, writer thread, 2 x 64 in flight", &mut overlapped),
    ];
    let mut rates: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        for ((_, case), rates) in cases.iter_mut().zip(&mut rates) {
            rates.push(rate(case)?);
        }
    }
    let ceiling = median(&mut rates[0]);
    for ((name, _), rates) in cases.iter().zip(&mut rates) {
        let rate = median(rates);
        println!("{name:38} {rate:9.0} records/s  {:.2} of the bare loop", rate / ceiling);
    }
    writer.stop()?;
    Ok(())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a measurement wants the real clock")]
fn now() -> Instant {
    Instant::now()
}

fn rate(case: &mut Case) -> Outcome<f64> {
    let start = now();
    let mut groups = 0_u32;
    while start.elapsed() < SLICE {
        case()?;
        groups += 1;
    }
    Ok(f64::from(groups) * GROUP as f64 / start.elapsed().as_secs_f64())
}

/// What the disk gives: records one after the other in a zero-filled file, a sync after each group.
fn raw_file(path: &Path) -> Outcome<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    file.write_all_at(&vec![0; usize::try_from(RAW_FILE_BYTES)?], 0)?;
    file.sync_all()?;
    Ok(file)
}

fn open(path: &Path) -> Outcome<Log> {
    let options = LogOptions { quota_bytes: 64 << 30, ..LogOptions::default() };
    let (log, _) = Log::open(Arc::new(RealDisk::open(path)?), options, &mut |_, _| {})?;
    // The next segment is made before the clock starts, as it is in a process that has run for a while.
    log.flush()?;
    Ok(log)
}

fn append_group(log: &Log) -> Outcome<Lsn> {
    let mut appender = log.appender();
    for number in 0..GROUP {
        appender.append(Class::Data, &(number as u64).to_le_bytes(), &BODY)?;
    }
    Ok(appender.lsn())
}

/// Groups on their way to the disk; one is replaced when it is durable.
struct InFlight {
    log: Log,
    watch: Watch,
    runtime: tokio::runtime::Runtime,
    groups: VecDeque<Lsn>,
    groups_max: usize,
}

impl InFlight {
    fn new(log: &Log, groups_max: usize) -> Outcome<InFlight> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(InFlight { log: log.clone(), watch: log.watch(), runtime, groups: VecDeque::new(), groups_max })
    }

    fn replace(&mut self) -> Outcome<()> {
        while self.groups.len() < self.groups_max {
            self.groups.push_back(append_group(&self.log)?);
        }
        let oldest = self.groups.pop_front().ok_or("nothing in flight")?;
        self.runtime.block_on(self.watch.reached(oldest))?;
        Ok(())
    }
}

/// How long a restart takes when sidecars tell what the segments hold.
fn replay(folder: &Path) -> Outcome<()> {
    let path = folder.join("replay");
    let log = open(&path)?;
    let records = 2_000_000_u32;
    for number in 0..records {
        log.appender().append(Class::Data, &[number.to_le_bytes(); 8].concat(), &[7; 64])?;
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
