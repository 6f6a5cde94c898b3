//! Payouts a second into the embedded book and into PostgreSQL, on the same disk, in one run.
//!
//! `cargo run --release -p ron-ledger --example intents [PAYOUTS] [BATCH]`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use anyhow::Context as _;
use ron_ledger::{Batch, Book, BookOptions, Direction, Entry, Ledger, Outcome, PostgresLedger, PostgresOptions};
use ron_log::RealDisk;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use testkit::{Postgres, PostgresStart};

const PAYOUTS: usize = 1_000_000;
const BATCH: usize = 4096;
/// PostgreSQL gets a tenth of the payouts: its rate does not rise with more of them.
const SHARE: usize = 10;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let payouts = arguments.next().transpose()?.unwrap_or(PAYOUTS);
    let batch = arguments.next().transpose()?.unwrap_or(BATCH);
    let base = std::env::current_exe()?.parent().context("a folder")?.to_owned();
    let scratch = tempfile::Builder::new().prefix("intents-").tempdir_in(base)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = scratch.path().join("book");
    let embedded = runtime.block_on(embedded(folder.clone(), &batches(payouts, batch)))?;
    let reopened = Instant::now();
    let (book, opened) = Book::open(Arc::new(RealDisk::open(&folder)?), BookOptions::default())?;
    let (reopened, bytes) = (reopened.elapsed(), book.usage().bytes_total);
    anyhow::ensure!(opened.transfers == payouts as u64 && opened.damage.is_none(), "{opened:?}");
    drop(book);
    let server = Postgres::start(&PostgresStart::default())?;
    let few = (payouts / SHARE).max(batch);
    let ledger = PostgresLedger::new(&PostgresOptions::at(server.over_socket()))?;
    let postgres = runtime.block_on(rate(&ledger, &batches(few, batch)))?;
    println!(
        "embedded    {embedded:>12.0} payouts/s   {payouts} in batches of {batch}, {} bytes each",
        bytes / payouts as u64
    );
    println!("PostgreSQL  {postgres:>12.0} payouts/s   {few} in batches of {batch}, over its socket");
    println!("ratio       {:>12.1}", embedded / postgres);
    println!("reopened in {reopened:.2?}");
    Ok(())
}

fn batches(payouts: usize, batch: usize) -> Vec<Batch> {
    let entry = |number: usize| Entry {
        key: *blake3::hash(&number.to_le_bytes()).as_bytes(),
        account: format!("0x{:040x}", number as u128 * 0x9E37_79B9_7F4A_7C15),
        amount: 1_000_000_000_000_000_000 + number as u128,
        direction: Direction::Pay,
    };
    let chunk = |first: usize| Batch {
        run: [7; 32],
        asset: "RON".to_owned(),
        pot: "epoch/2026-11".to_owned(),
        follows: None,
        entries: (first..(first + batch).min(payouts)).map(entry).collect(),
    };
    (0..payouts).step_by(batch).map(chunk).collect()
}

async fn embedded(folder: PathBuf, batches: &[Batch]) -> anyhow::Result<f64> {
    let (book, _) = Book::open(Arc::new(RealDisk::open(folder)?), BookOptions::default())?;
    let rate = rate(&book, batches).await?;
    anyhow::ensure!(book.verify().await?.is_clean(), "the book does not verify");
    tokio::task::spawn_blocking(move || book.close()).await??;
    Ok(rate)
}

/// Batch after batch, each acknowledged as durable before the next is sent, as the rewarder does it.
async fn rate(ledger: &impl Ledger, batches: &[Batch]) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut count = 0;
    for batch in batches {
        let outcomes = ledger.submit(batch).await?;
        anyhow::ensure!(outcomes.iter().all(|outcome| *outcome == Outcome::Accepted), "not all are new");
        count += outcomes.len();
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}
