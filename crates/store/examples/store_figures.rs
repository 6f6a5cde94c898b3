//! Figures of the store: `cargo run --release -p ron-store --example store_figures -- 10000000 [FILE]`.
//!
//! Loads so many provider records that are over at some time in the next 48 hours, resolves keys before and after the
//! file is opened again, and drops an hour. The records are not signed: the store does not look.

use std::time::{Duration, Instant};

use ron_store::{Bounds, Change, Key, ProviderRecord, PublicKey, Record, Store};

const HOUR_MS: u64 = 3_600_000;
const NOW_MS: u64 = 500_000 * HOUR_MS;
const BATCH: u64 = 20_000;
const READS: u64 = 50_000;
/// Of a file that was just opened, every hour is looked at for each key.
const READS_AT_ONCE: u64 = 5_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let path = arguments.next().map_or_else(|| std::env::temp_dir().join("store_figures.redb"), Into::into);
    let _ = std::fs::remove_file(&path);
    let bounds = Bounds { records_max: count as usize + 1, ..Bounds::default() };

    let empty_bytes = resident_bytes();
    let store = Store::open(&path, bounds)?.store;
    let (result, took) = timed(|| load(&store, count));
    result?;
    println!("load            {count} records in {took:.1?}: {:.0} a second", count as f64 / took.as_secs_f64());
    println!("file            {:.0} bytes a record", std::fs::metadata(&path)?.len() as f64 / count as f64);
    resolve("resolve", &store, count, READS)?;
    let bytes = resident_bytes().saturating_sub(empty_bytes);
    println!("memory          {:.1} bytes a record ({} MiB)", bytes as f64 / count as f64, bytes >> 20);
    drop(store);

    let (opened, took) = timed(|| Store::open(&path, bounds));
    let store = opened?.store;
    println!("open again      {took:.3?}, {} records", store.count());
    resolve("resolve at once", &store, count, READS_AT_ONCE)?;
    let (result, took) = timed(|| -> Result<(), ron_store::StoreError> {
        while store.learn_hour()? {}
        Ok(())
    });
    result?;
    println!("learn           {took:.2?}");
    resolve("resolve learned", &store, count, READS)?;
    let (result, took) = timed(|| store.apply(&[Change::Put(record(count, 47))], NOW_MS));
    result?;
    println!("one record      {took:.2?}");
    let (dropped, took) = timed(|| store.expire(NOW_MS + 3 * HOUR_MS));
    println!("expire          {} records in {took:.2?}", dropped?);
    drop(store);
    std::fs::remove_file(&path)?;
    Ok(())
}

fn load(store: &Store, count: u64) -> Result<(), Box<dyn std::error::Error>> {
    for first in (0..count).step_by(BATCH as usize) {
        let records = (first..count.min(first + BATCH)).map(|number| Change::Put(record(number, number % 47)));
        store.apply(&records.collect::<Vec<_>>(), NOW_MS)?;
    }
    Ok(())
}

/// Half of the keys asked for have a record.
fn resolve(what: &str, store: &Store, count: u64, reads: u64) -> Result<(), ron_store::StoreError> {
    let mut took = Vec::new();
    for read in 0..reads {
        let number = read.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (2 * count);
        let (found, time) = timed(|| store.providers(&key(number), NOW_MS, 64));
        assert_eq!(found?.len(), usize::from(number < count), "record {number} of {count}");
        took.push(time);
    }
    took.sort_unstable();
    let at = |share: f64| took[(took.len() as f64 * share) as usize];
    println!("{what:15} p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}", at(0.5), at(0.99), at(0.999));
    Ok(())
}

fn record(number: u64, hour: u64) -> Record {
    let signer = PublicKey(*blake3::hash(&(number % 1_000).to_le_bytes()).as_bytes());
    let addr = |text: &str| text.parse().expect("an address");
    Record::Provider(ProviderRecord {
        key: key(number),
        peer: signer.peer_id(),
        addrs: vec![addr("/ip4/192.0.2.17/tcp/4001"), addr("/ip4/192.0.2.17/udp/4001/quic-v1")],
        protocols: vec!["transport-bitswap".to_owned()],
        region: None,
        sequence: NOW_MS,
        issued_ms: NOW_MS,
        expires_ms: NOW_MS + hour * HOUR_MS + 1 + number % HOUR_MS,
        signer,
        signature: [number as u8; 64],
    })
}

fn key(number: u64) -> Key {
    Key(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

#[expect(clippy::disallowed_methods, reason = "a measure of the real clock")]
fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = action();
    (result, start.elapsed())
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
