//! The store with millions of records: memory, time to resolve, time to open again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ron_kernel::clock;
use ron_store::{Applied, Bounds, Change, ContentId, Key, NameRecord, ProviderRecord, PublicKey, Record, Store};

const HOUR_MS: u64 = 3_600_000;
const NOW_MS: u64 = 500_000 * HOUR_MS;
/// Records in one transaction, as when a node takes them over in bulk.
const BATCH: u64 = 20_000;
const READS: u64 = 50_000;
/// Of a file that was just opened, every hour is looked at for each key.
const READS_AT_ONCE: u64 = 5_000;
/// Records are over at some time within this many hours.
const HOURS: u64 = 47;
/// Those who signed: a thousand providers.
const SIGNERS: u64 = 1_000;
/// Free bytes of the disk for each record, and in addition, below which nothing is begun.
const DISK_BYTES_EACH: u64 = 600;
const DISK_BYTES_MIN: u64 = 1 << 30;

/// What the store came to.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub struct StoreFigures {
    /// Provider records.
    pub records: u64,
    /// Names.
    pub names: u64,
    /// Records a second that were loaded.
    pub loaded_per_second: f64,
    /// Bytes of the file for each record.
    pub file_bytes_each: f64,
    /// Bytes of memory for each record, pages of the file that are cached included.
    pub memory_bytes_each: f64,
    /// Milliseconds of a resolution by key.
    pub resolve: Quantiles,
    /// Milliseconds of a resolution by name.
    pub name: Quantiles,
    /// Seconds to open the file again.
    pub open_seconds: f64,
    /// Milliseconds of a resolution right after that.
    pub resolve_at_once: Quantiles,
    /// Seconds until all keys are in memory again, in the background.
    pub learn_seconds: f64,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub struct Quantiles {
    /// The middle.
    pub p50: f64,
    /// The slowest in a hundred.
    pub p99: f64,
}

/// The file, removed when this is dropped.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        // A disk that cannot remove it is told of by whoever needs the room.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Measures in a process of its own, so that its memory is its own; prints the figures.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// Folder of the file
    folder: PathBuf,
    /// Provider records
    records: u64,
    /// Names
    names: u64,
}

/// The process that measures.
pub fn run_child(arguments: &StoreArgs) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(&measure(&arguments.folder, arguments.records, arguments.names)?)?);
    Ok(())
}

/// Starts that process, and reads what it prints.
pub fn measure_apart(folder: &Path, records: u64, names: u64) -> anyhow::Result<StoreFigures> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("index-store").arg(folder).arg(records.to_string()).arg(names.to_string());
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the process that measures the store ended with {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Loads so many records and names into a file in this folder, and measures.
pub fn measure(folder: &Path, records: u64, names: u64) -> anyhow::Result<StoreFigures> {
    let free = rustix::fs::statvfs(folder)?;
    let free = free.f_bavail * free.f_frsize;
    let needed = DISK_BYTES_MIN + (records + names) * DISK_BYTES_EACH;
    anyhow::ensure!(free > needed, "{free} bytes are free on the disk, and {needed} may be needed");
    let file = File(folder.join("records.redb"));
    // Records of strangers do not get the whole of it.
    let bounds = Bounds { records_max: (records + names) as usize * 2, ..Bounds::default() };
    let mut figures = StoreFigures { records, names, ..StoreFigures::default() };

    let empty_bytes = resident_bytes();
    let store = Store::open(&file.0, bounds)?.store;
    let began = clock::now();
    load(&store, "records", records, |number| Record::Provider(provider(number)))?;
    figures.loaded_per_second = records as f64 / began.elapsed().as_secs_f64();
    figures.file_bytes_each = std::fs::metadata(&file.0)?.len() as f64 / records as f64;
    figures.resolve = resolve(&store, records, READS)?;
    let bytes = resident_bytes().saturating_sub(empty_bytes);
    figures.memory_bytes_each = bytes as f64 / records as f64;
    load(&store, "names", names, |number| Record::Name(name(number)))?;
    figures.name = resolve_names(&store, names, READS)?;
    drop(store);

    let began = clock::now();
    let store = Store::open(&file.0, bounds)?.store;
    figures.open_seconds = began.elapsed().as_secs_f64();
    anyhow::ensure!(store.count() as u64 == records + names, "{} records came back", store.count());
    figures.resolve_at_once = resolve(&store, records, READS_AT_ONCE)?;
    let began = clock::now();
    while store.learn_hour()? {}
    figures.learn_seconds = began.elapsed().as_secs_f64();
    Ok(figures)
}

fn load(store: &Store, what: &str, count: u64, make: impl Fn(u64) -> Record) -> anyhow::Result<()> {
    for first in (0..count).step_by(BATCH as usize) {
        if first.is_multiple_of(1_000_000) {
            eprintln!("store: {first} of {count} {what}");
        }
        let changes: Vec<Change> = (first..count.min(first + BATCH)).map(|number| Change::Put(make(number))).collect();
        let applied = store.apply(&changes, NOW_MS)?;
        anyhow::ensure!(applied.iter().all(|applied| *applied == Applied::Stored), "not everything was stored");
    }
    Ok(())
}

/// Half of the keys asked for have a record.
fn resolve(store: &Store, count: u64, reads: u64) -> anyhow::Result<Quantiles> {
    quantiles(count, reads, |number, is_there| {
        let found = store.providers(&key(number), NOW_MS, 64)?;
        anyhow::ensure!(found.len() == usize::from(is_there), "record {number} of {count}");
        Ok(())
    })
}

fn resolve_names(store: &Store, count: u64, reads: u64) -> anyhow::Result<Quantiles> {
    quantiles(count, reads, |number, is_there| {
        let found = store.name(&signer(number), &label(number), NOW_MS)?;
        anyhow::ensure!(found.is_some() == is_there, "name {number} of {count}");
        Ok(())
    })
}

fn quantiles(count: u64, reads: u64, read: impl Fn(u64, bool) -> anyhow::Result<()>) -> anyhow::Result<Quantiles> {
    let mut took: Vec<Duration> = Vec::new();
    for turn in 0..reads {
        let number = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (2 * count.max(1));
        let began = clock::now();
        read(number, number < count)?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    Ok(Quantiles { p50: at(0.5), p99: at(0.99) })
}

/// Not signed: the store does not look, and signing ten million would measure signatures.
fn provider(number: u64) -> ProviderRecord {
    let addr = |text: &str| text.parse().expect("an address");
    ProviderRecord {
        key: key(number),
        peer: signer(number).peer_id(),
        addrs: vec![addr("/ip4/192.0.2.17/tcp/4001"), addr("/ip4/192.0.2.17/udp/4001/quic-v1")],
        protocols: vec!["transport-bitswap".to_owned()],
        region: None,
        sequence: NOW_MS,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + number % HOURS * HOUR_MS + 1 + number % HOUR_MS,
        signer: signer(number),
        signature: [number as u8; 64],
    }
}

fn name(number: u64) -> NameRecord {
    NameRecord {
        owner: signer(number),
        label: label(number),
        value: ContentId::blake3(key(number).0),
        sequence: NOW_MS,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + HOUR_MS,
        signature: [number as u8; 64],
    }
}

fn label(number: u64) -> String {
    format!("site/{number}")
}

/// Spread like a hash, and much cheaper than one.
fn spread(number: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut word = number;
    for chunk in bytes.chunks_exact_mut(8) {
        // The finalizer of SplitMix64, one step for each word.
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_be_bytes());
    }
    bytes
}

fn key(number: u64) -> Key {
    Key(spread(number))
}

fn signer(number: u64) -> PublicKey {
    PublicKey(spread(u64::MAX - number % SIGNERS))
}

fn resident_bytes() -> u64 {
    testkit::rss_bytes(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_store_is_measured_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let figures = measure(folder.path(), 2_000, 500).expect("measured");
        assert!(figures.loaded_per_second > 0.0 && figures.file_bytes_each > 0.0, "{figures:?}");
        assert!(figures.resolve.p99 >= figures.resolve.p50 && figures.name.p99 > 0.0, "{figures:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
