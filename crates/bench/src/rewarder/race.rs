//! Parts of the job beside one peer each: booking payouts beside PostgreSQL, and the Merkle tree beside the one of npm.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use ron_calculus::Roster;
use ron_calculus::tree::oz::OzTree;
use ron_kernel::clock;
use ron_ledger::{Batch, Book, BookOptions, Direction, Entry, Ledger, Outcome, PostgresLedger, PostgresOptions};
use ron_log::RealDisk;
use ron_types::limits::rewarder::BATCH_ENTRIES_MAX;
use testkit::{Postgres, PostgresStart};

use super::peers::{Absent, finish};
use crate::kernel::Size;
use crate::mailbox::scratch::{Scratch, settle_disk, target_folder};
use crate::report::{Row, Target};
use crate::stats::{Spread, alternate, ratios};

const MERKLE_SCRIPT: &str = include_str!("merkle.mjs");
const MERKLE_PACKAGE: &str = "@openzeppelin/merkle-tree@1.0.8";
/// Prime, so that amounts of neighbours differ.
const STEP: u128 = 1_000_003;

/// Rates of ours and of a peer, round by round.
struct Race {
    name: String,
    unit: &'static str,
    peer: String,
    rates: (Vec<f64>, Vec<f64>),
    least: f64,
    meaning: &'static str,
}

/// Runs all of them; one whose peer is missing is left out and named.
pub fn measure(size: Size, rounds: usize, scratch: &Scratch) -> anyhow::Result<(Vec<Row>, Vec<Absent>)> {
    let (mut rows, mut absent) = (Vec::new(), Vec::new());
    for (name, race) in [("the ledger beside PostgreSQL", ledger(size, rounds, scratch)), ("npm", merkle(size, rounds))]
    {
        match race {
            Ok(race) => rows.push(race.row()),
            Err(error) => absent.push((name.to_owned(), format!("{error:#}"))),
        }
    }
    Ok((rows, absent))
}

impl Race {
    fn row(self) -> Row {
        let (ours, peer) = &self.rates;
        let median = |rates: &[f64]| Spread::of(rates).map_or(0.0, |spread| spread.median);
        let rate = |rates: &[f64]| format!("{:.0} thousand {}", median(rates) / 1e3, self.unit);
        Row {
            ours: rate(ours),
            value: None,
            peer: format!("{} ({})", rate(peer), self.peer),
            ratio: ratios(ours, peer),
            target: Target::RatioAtLeast(self.least),
            meaning: self.meaning.to_owned(),
            name: self.name,
        }
    }
}

/// Both book the same payouts, batch after batch as a run is paid, each batch durable before the next.
fn ledger(size: Size, rounds: usize, scratch: &Scratch) -> anyhow::Result<Race> {
    let batches = size.pick(4_u64, 64);
    let server = Postgres::start_in(&scratch.folder("ledger-postgres")?, &PostgresStart::default())?;
    let peer = PostgresLedger::new(&PostgresOptions::at(server.over_tcp()))?;
    let disk = Arc::new(RealDisk::open(scratch.folder("ledger-book")?)?);
    let (book, _) = Book::open(disk, BookOptions::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut runs = (0_u8, 0_u8);
    let rates = alternate(
        rounds,
        || {
            runs.0 += 1;
            runtime.block_on(book_all(&book, runs.0, batches))
        },
        || {
            runs.1 += 1;
            runtime.block_on(book_all(&peer, runs.1, batches))
        },
    )?;
    let faults = runtime.block_on(peer.verify())?;
    anyhow::ensure!(faults.is_empty(), "{faults:?}");
    let payouts = batches * BATCH_ENTRIES_MAX as u64;
    Ok(Race {
        name: format!("payouts booked, {payouts} in batches of {BATCH_ENTRIES_MAX}"),
        unit: "payouts/s",
        peer: "PostgreSQL".to_owned(),
        rates,
        least: 10.0,
        meaning: "The embedded book beside our ledger in PostgreSQL with its own settings, synced after every batch.",
    })
}

/// Payouts a second.
async fn book_all<L: Ledger>(ledger: &L, run: u8, batches: u64) -> anyhow::Result<f64> {
    let entries_each = BATCH_ENTRIES_MAX as u64;
    let batch = |number: u64| {
        let payout = |index: u64| {
            let mut key = [run; 32];
            key[..8].copy_from_slice(&index.to_be_bytes());
            let amount = u128::from(index) * STEP + 1;
            Entry { key, account: format!("0x{:040x}", u128::from(index) * STEP), amount, direction: Direction::Pay }
        };
        let entries = (number * entries_each..(number + 1) * entries_each).map(payout).collect();
        Batch { run: [run; 32], asset: "RON".to_owned(), pot: format!("epoch/{run}"), follows: None, entries }
    };
    let made: Vec<Batch> = (0..batches).map(batch).collect();
    settle_disk();
    let started = clock::now();
    for batch in &made {
        let outcomes = ledger.submit(batch).await?;
        anyhow::ensure!(outcomes.iter().all(|outcome| *outcome == Outcome::Accepted), "a payout was not accepted");
    }
    let seconds = clock::now().duration_since(started).as_secs_f64();
    let tallies = ledger.tally(&[run; 32]).await?;
    anyhow::ensure!(tallies.len() == 1 && tallies[0].count == batches * entries_each, "{tallies:?}");
    Ok((batches * entries_each) as f64 / seconds)
}

/// Both build the tree over the same leaves and must have the same root.
fn merkle(size: Size, rounds: usize) -> anyhow::Result<Race> {
    let leaves = size.pick(1_000_u64, 100_000);
    let folder = target_folder()?.join("tools").join("merkle");
    std::fs::create_dir_all(&folder)?;
    if !folder.join("node_modules").join("@openzeppelin").is_dir() {
        eprintln!("installing {MERKLE_PACKAGE}");
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", MERKLE_PACKAGE]).current_dir(&folder);
        finish(&mut install).context("npm install")?;
    }
    std::fs::write(folder.join("merkle.mjs"), MERKLE_SCRIPT)?;
    let mut roster = Roster::default();
    let amounts: Vec<u128> = (0..u128::from(leaves)).map(|leaf| leaf * STEP + 1).collect();
    for leaf in 0..u128::from(leaves) {
        anyhow::ensure!(roster.push(&format!("0x{:040x}", leaf * STEP)), "addresses are in order");
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let expected = OzTree::build(&roster, &amounts, threads)?.root().context("there are leaves")?;
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    let rates = alternate(
        rounds,
        || {
            let started = clock::now();
            let root = OzTree::build(&roster, &amounts, threads)?.root();
            let seconds = clock::now().duration_since(started).as_secs_f64();
            anyhow::ensure!(root.is_some(), "a tree has a root");
            Ok(leaves as f64 / seconds)
        },
        || Ok(leaves as f64 / npm_tree(&folder, leaves, &expected)?),
    )?;
    Ok(Race {
        name: format!("Merkle tree of {leaves} payouts"),
        unit: "leaves/s",
        peer: MERKLE_PACKAGE.to_owned(),
        rates,
        least: 50.0,
        meaning: "OpenZeppelin's standard-v1 tree, from addresses and amounts to the same root; ours on all cores.",
    })
}

/// Seconds that the tree of npm takes, in a process of its own.
fn npm_tree(folder: &Path, leaves: u64, expected_root: &str) -> anyhow::Result<f64> {
    let mut command = Command::new("node");
    command.args(["merkle.mjs", &leaves.to_string(), &STEP.to_string()]).current_dir(folder).stderr(Stdio::inherit());
    let told: serde_json::Value = serde_json::from_str(&finish(&mut command)?)?;
    let root = told["root"].as_str().unwrap_or_default();
    anyhow::ensure!(root == format!("0x{expected_root}"), "the root of npm is {root}, ours 0x{expected_root}");
    told["seconds"].as_f64().context("the script says its time")
}
