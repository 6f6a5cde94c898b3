//! Which ledger payouts go to, and how it is opened.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ron_ledger::{
    Book, BookOptions, HttpLedger, HttpOptions, Ledger, LedgerError, PostgresLedger, PostgresOptions, RunKey, Tally,
};
use ron_log::LogOptions;
use serde::Deserialize;
use svc_rewarder::config::{LedgerKind, Options};
use svc_rewarder::hashing::parse_b3;
use svc_rewarder::service::{LedgerOpener, PayoutLedger};
use svc_rewarder::store::{EpochRow, EpochStatus};

use super::disk_opener;
use crate::commands::{Report, wait};
use crate::errors::{Code, Failure};

/// Name of the folder of the embedded book.
pub const BOOK_FOLDER: &str = "ledger";
/// Time that `macronode doctor` gives a ledger.
const REACH_MAX: Duration = Duration::from_secs(3);
/// Bits of a file's mode with which users outside its group can read it.
const READ_BY_OTHERS: u32 = 0o004;
/// Settled epochs that `macronode doctor` asks a ledger elsewhere about.
const COMPARED_MAX: usize = 16;

/// Opens the ledger that the configuration names; opened when payouts first need it, because it may wait.
pub fn opener(options: &Options, folder: Option<&Path>) -> Result<LedgerOpener, Failure> {
    match options.ledger {
        LedgerKind::Embedded => Ok(embedded(folder)),
        LedgerKind::Postgres => Ok(elsewhere(usable(PostgresLedger::new(&postgres_options(options)?))?)),
        LedgerKind::Http => Ok(elsewhere(usable(HttpLedger::new(&http_options(options)?))?)),
    }
}

/// What is found where the ledger should be, without changing it: an error inside if it does not answer now, one
/// outside if a node would not start with these settings.
pub fn reach(options: &Options) -> Result<Result<String, LedgerError>, Failure> {
    match options.ledger {
        LedgerKind::Embedded => Ok(Ok("embedded, in the data directory".to_owned())),
        LedgerKind::Postgres => {
            let (connect_timeout, statement_timeout) = (REACH_MAX, REACH_MAX);
            let options = PostgresOptions { connect_timeout, statement_timeout, ..postgres_options(options)? };
            let ledger = usable(PostgresLedger::new(&options))?;
            let found = |is_there| if is_there { "with our tables" } else { "without our tables, which we make" };
            let reached = answered(async { ledger.reach().await })?;
            Ok(reached.map(|is_there| format!("PostgreSQL answers, {}", found(is_there))))
        }
        LedgerKind::Http => {
            let ledger = usable(HttpLedger::new(&HttpOptions { timeout: REACH_MAX, ..http_options(options)? }))?;
            // Of a run that nobody made; a ledger that follows the rules has an empty list for it.
            let reached = answered(async {
                Ledger::tally(&ledger, &[0; 32]).await?;
                Ledger::one_run_per_pot(&ledger).await
            })?;
            Ok(reached.map(|keeps_pots| match keeps_pots {
                true => "behind HTTP, answers, and keeps one run for each pot".to_owned(),
                false => "behind HTTP, and answers; only this node keeps one run for each pot".to_owned(),
            }))
        }
    }
}

/// What a ledger that holds these sums lacks of settled epochs, in words.
pub fn lacks(rows: &[Arc<EpochRow>], tally: impl Fn(&RunKey) -> Vec<Tally>) -> Vec<String> {
    let is_compared = |row: &&Arc<EpochRow>| row.status == EpochStatus::Settled && row.given_up_by.is_none();
    let is_missing = |row: &&Arc<EpochRow>| parse_b3(&row.run_key).is_some_and(|run| row.is_missing_in(&tally(&run)));
    let missing = rows.iter().filter(is_compared).filter(is_missing);
    missing.map(|row| format!("epoch {} is settled, and payouts of it are missing", row.epoch)).collect()
}

/// What a ledger elsewhere lacks of the epochs that were settled last; an error inside if it does not answer now.
pub fn lacks_elsewhere(options: &Options, rows: &[Arc<EpochRow>]) -> Result<Result<Vec<String>, LedgerError>, Failure> {
    let mut newest: Vec<Arc<EpochRow>> = rows.iter().filter(|row| row.settled_as.is_some()).cloned().collect();
    newest.sort_unstable_by_key(|row| std::cmp::Reverse(row.settled_as));
    newest.truncate(COMPARED_MAX);
    let runs: Vec<RunKey> = newest.iter().filter_map(|row| parse_b3(&row.run_key)).collect();
    let found = match options.ledger {
        LedgerKind::Embedded => return Ok(Ok(Vec::new())),
        LedgerKind::Postgres => {
            let (connect_timeout, statement_timeout) = (REACH_MAX, REACH_MAX);
            let options = PostgresOptions { connect_timeout, statement_timeout, ..postgres_options(options)? };
            let ledger = usable(PostgresLedger::new(&options))?;
            answered(async {
                // A tally would make the tables.
                if ledger.reach().await? { tallies(&ledger, &runs).await } else { Ok(HashMap::new()) }
            })?
        }
        LedgerKind::Http => {
            let ledger = usable(HttpLedger::new(&HttpOptions { timeout: REACH_MAX, ..http_options(options)? }))?;
            answered(tallies(&ledger, &runs))?
        }
    };
    Ok(found.map(|found| lacks(&newest, |run| found.get(run).cloned().unwrap_or_default())))
}

async fn tallies(ledger: &impl Ledger, runs: &[RunKey]) -> Result<HashMap<RunKey, Vec<Tally>>, LedgerError> {
    let mut found = HashMap::new();
    for run in runs {
        found.insert(*run, ledger.tally(run).await?);
    }
    Ok(found)
}

/// Waits for a ledger's answer of any kind.
fn answered<T>(asked: impl Future<Output = T>) -> Result<T, Failure> {
    let mut answer = None;
    wait(async {
        answer = Some(asked.await);
        Ok(Report::clean(""))
    })?;
    answer.ok_or_else(|| Failure::new(Code::CannotStart, "the ledger was not asked"))
}

fn postgres_options(options: &Options) -> Result<PostgresOptions, Failure> {
    let PostgresSettings { address, password_file, ca_file } = settings(options)?;
    Ok(PostgresOptions { password_file, ca_file, ..PostgresOptions::at(address) })
}

fn http_options(options: &Options) -> Result<HttpOptions, Failure> {
    let HttpSettings { base, token_file, ca_file } = settings(options)?;
    Ok(HttpOptions { token_file, ca_file, ..HttpOptions::at(base) })
}

fn usable<L>(ledger: Result<L, LedgerError>) -> Result<L, Failure> {
    ledger.map_err(|error| Failure::new(Code::CannotStart, format!("rewarder.ledger: {error}")))
}

/// The file that says how to reach PostgreSQL.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostgresSettings {
    /// `host=… user=… dbname=…` or `postgresql://…`.
    address: String,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// The file that says how to reach a ledger behind HTTP.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpSettings {
    /// Address that the paths of docs/ledger-http.md follow.
    base: String,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

fn settings<T: for<'de> Deserialize<'de>>(options: &Options) -> Result<T, Failure> {
    let needed = "rewarder.ledger_settings: a file that says how to reach the ledger is needed";
    let path = options.ledger_settings.as_ref().ok_or_else(|| Failure::new(Code::CannotStart, needed))?;
    let unusable =
        |cause: String| Failure::new(Code::CannotStart, format!("rewarder.ledger_settings = {path:?}: {cause}"));
    let mode = std::fs::metadata(path).map_err(|error| unusable(error.to_string()))?.permissions().mode();
    if mode & READ_BY_OTHERS != 0 {
        return Err(unusable("others can read it, and it may hold a password: chmod o-rwx".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    // What is wrong is told without the line it is in: that may hold a password.
    toml::from_str(&text).map_err(|error| unusable(error.message().to_owned()))
}

/// A ledger that connects when it is first used, so that it is open at once.
fn elsewhere<L: Ledger + 'static>(ledger: L) -> LedgerOpener {
    let ledger: Arc<dyn PayoutLedger> = Arc::new(ledger);
    Arc::new(move || Box::pin(std::future::ready(Ok(Arc::clone(&ledger)))))
}

fn embedded(folder: Option<&Path>) -> LedgerOpener {
    let open_disk = Arc::new(disk_opener(folder, BOOK_FOLDER));
    let is_memory = folder.is_none();
    Arc::new(move || {
        let open_disk = Arc::clone(&open_disk);
        let opening = tokio::task::spawn_blocking(move || {
            let disk = open_disk().map_err(|error| LedgerError::Unavailable(error.to_string()))?;
            let mut options = BookOptions::default();
            if is_memory {
                // A segment in memory is taken whole, so it is small.
                options.log = LogOptions { segment_bytes: 4 << 20, quota_bytes: 1 << 30, ..options.log };
            }
            let (book, opened) =
                Book::open(disk, options).map_err(|error| LedgerError::Unavailable(error.to_string()))?;
            tracing::info!(transfers = opened.transfers, accounts = opened.accounts, "the book is read");
            if let Some(damage) = &opened.damage {
                tracing::error!(damage, "the book has lost something: it only tells, and books nothing");
            }
            Ok(Arc::new(book) as Arc<dyn PayoutLedger>)
        });
        Box::pin(async move {
            opening.await.map_err(|_| LedgerError::Unavailable("opening the book broke off".to_owned()))?
        })
    })
}
