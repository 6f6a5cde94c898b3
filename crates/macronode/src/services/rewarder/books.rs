//! Which ledger payouts go to, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ron_ledger::{Book, BookOptions, HttpLedger, HttpOptions, Ledger, LedgerError, PostgresLedger, PostgresOptions};
use ron_log::LogOptions;
use serde::Deserialize;
use svc_rewarder::config::{LedgerKind, Options};
use svc_rewarder::service::{LedgerOpener, PayoutLedger};

use super::disk_opener;
use crate::commands::{Report, wait};
use crate::errors::{Code, Failure};

/// Name of the folder of the embedded book.
pub const BOOK_FOLDER: &str = "ledger";
/// Time that `macronode doctor` gives a ledger.
const REACH_MAX: Duration = Duration::from_secs(3);

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
            let reached = answered(async { Ledger::tally(&ledger, &[0; 32]).await })?;
            Ok(reached.map(|_| "behind HTTP, and answers".to_owned()))
        }
    }
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
