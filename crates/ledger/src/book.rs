//! The embedded book: double entry on the durable log of the node.
//!
//! Memory may be ahead of the disk, answers never are: whatever a caller is told, a power cut no longer undoes it. A
//! book that has lost records still tells what it knows and books nothing: a lost key could be paid a second time.

mod index;
mod open;
mod record;
mod state;
mod statement;
mod verify;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod tests;

pub use open::{BookOptions, Opened, marked_damage};
pub use statement::{AccountLine, AccountPage, Side, StatementLine, StatementPage};
pub use verify::{AssetSums, BookReport, Inspection, inspect};

use crate::model::{Batch, Ledger, LedgerError, Outcome, RunKey, Tally};
use ron_kernel::{clock, deadline};
use ron_log::{Class, Durability, Log, LogError, Lsn, WriterThread};
use state::{State, Sums};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a caller waits for the disk before it is told to come again.
const DISK_WAIT: Duration = Duration::from_secs(30);

/// What a book cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// The log of the book failed or is locked.
    #[error("the log of the book: {0}")]
    Log(#[from] LogError),
    /// A newer version of this program wrote into the book. Nothing was changed.
    #[error("the book has records of version {0}, which this version does not know; start the version that wrote it")]
    UnknownVersion(u8),
    /// What was asked for lies in a damaged part of the book.
    #[error("the book is damaged: {0}")]
    Damaged(String),
    /// The place to go on from is not one that this book gave out.
    #[error("the page to go on from is not of this account")]
    BadCursor,
    /// The disk does not answer.
    #[error("{0}")]
    Unavailable(String),
}

/// What an account has of one asset. Pots may owe: what they gave is what was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The asset.
    pub asset: String,
    /// Units that left the account.
    pub debits: u128,
    /// Units that came to the account.
    pub credits: u128,
}

impl Balance {
    fn new(asset: &str, sums: Sums) -> Balance {
        Balance { asset: asset.to_owned(), debits: sums.debits, credits: sums.credits }
    }

    /// Credits less debits, in decimal digits.
    pub fn net(&self) -> String {
        let sign = if self.debits > self.credits { "-" } else { "" };
        format!("{sign}{}", self.debits.abs_diff(self.credits))
    }
}

/// A double-entry book. Clones are the same book.
#[derive(Clone)]
pub struct Book {
    inner: Arc<Inner>,
}

/// Who makes what is appended durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commits {
    /// The writer thread of the log; callers wait for it.
    Thread,
    /// The caller: in memory there is nothing to wait for, and a simulation has no threads.
    Caller,
}

struct Inner {
    log: Log,
    state: Mutex<State>,
    transfers_max: u32,
    commits: Commits,
    /// What is lost, if anything is; then nothing is booked any more.
    damage: Mutex<Option<String>>,
    disk: Arc<dyn ron_log::Disk>,
    recounts: verify::Recounts,
    /// Taken when the book is closed.
    writer: Mutex<Option<WriterThread>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Everything in memory, with the number of the last record it rests on. A panic in mid-change leaves a state that
    /// nobody may trust, and a book without state answers nobody.
    fn state(&self) -> Result<MutexGuard<'_, State>, LedgerError> {
        self.state.lock().map_err(|_| LedgerError::Unavailable("the book broke in mid-change; restart the node".into()))
    }

    /// A book that has lost records cannot answer for payouts now. It is not a refusal: none of them is at fault, and
    /// the restored book takes them.
    fn is_whole(&self) -> Result<(), LedgerError> {
        let unavailable = |damage: &String| {
            LedgerError::Unavailable(format!("the book is damaged and books nothing until it is restored: {damage}"))
        };
        lock(&self.damage).as_ref().map_or(Ok(()), |damage| Err(unavailable(damage)))
    }

    /// Appends what is new of a batch, and says from which record on the outcomes are true.
    fn append(&self, batch: &Batch) -> Result<Appended, LedgerError> {
        self.is_whole()?;
        let mut state = self.state()?;
        let plan = state.plan(batch, self.transfers_max)?;
        if plan.accepted == 0 {
            // A duplicate may be of a record that is not durable yet, so that its answer waits as well.
            return Ok(Appended::Rests { on: self.log.appender().lsn(), outcomes: plan.outcomes });
        }
        let head = state::head_of(batch, &plan, clock::unix_millis());
        let encoded = record::encode(&head, &state.chain, state::rows_of(batch, &plan));
        let mut appender = self.log.appender();
        let appended = appender.append(Class::Data, &encoded.head, &encoded.body);
        let on = appender.lsn();
        drop(appender);
        match appended {
            Ok(position) => state.apply(position, &head, encoded.chain, state::rows_of(batch, &plan)),
            Err(LogError::Busy) => return Ok(Appended::Busy),
            Err(error @ LogError::TooLarge { .. }) => return Err(LedgerError::Refused(error.to_string())),
            Err(error) => return Err(LedgerError::Unavailable(error.to_string())),
        }
        Ok(Appended::Rests { on, outcomes: plan.outcomes })
    }

    /// Waits until everything up to this record is durable.
    async fn durable(&self, lsn: Lsn) -> Result<(), LedgerError> {
        let unavailable = |error: LogError| LedgerError::Unavailable(error.to_string());
        if self.commits == Commits::Caller {
            let is_ram = self.log.durability() == Durability::Ram;
            let committed = if is_ram { self.log.settle_in_memory() } else { self.log.flush() };
            return committed.map(drop).map_err(unavailable);
        }
        let mut watch = self.log.watch();
        let reached = deadline::within(DISK_WAIT, "ledger_commit", watch.reached(lsn)).await;
        let reached = reached.map_err(|_| LedgerError::Unavailable("the disk of the book is slow".into()))?;
        reached.map(drop).map_err(unavailable)
    }

    /// What `read` says of the state, once all of it is durable.
    async fn read<T>(&self, read: impl FnOnce(&State) -> T) -> Result<T, LedgerError> {
        let (found, lsn) = {
            let state = self.state()?;
            // The log is asked while the state is held: every record of the state is before this number.
            let lsn = self.log.appender().lsn();
            (read(&state), lsn)
        };
        self.durable(lsn).await?;
        Ok(found)
    }
}

/// What appending a batch came to.
enum Appended {
    /// Outcomes, and the record that must be durable before they are told.
    Rests { on: Lsn, outcomes: Vec<Outcome> },
    /// Too much waits for the disk.
    Busy,
}

impl Book {
    /// What an account has, by asset; nothing if the book does not know it.
    pub async fn balances(&self, account: &str) -> Result<Vec<Balance>, LedgerError> {
        let of_account = |state: &State| match state.account_names().find(account) {
            Some(number) => state.holdings(number).into_iter().map(|(asset, sums)| Balance::new(asset, sums)).collect(),
            None => Vec::new(),
        };
        self.inner.read(of_account).await
    }

    /// Whether there is room for those of these assets that the book does not know, or why not.
    pub fn takes_assets(&self, assets: &[&str]) -> Result<(), LedgerError> {
        self.inner.state()?.check_assets(assets)
    }

    /// What is lost of the book, if anything is; it books nothing then.
    pub fn damage(&self) -> Option<String> {
        lock(&self.inner.damage).clone()
    }

    /// Resolves when the disk of the book has failed, with the reason; from then on only a restart helps.
    pub async fn failure(&self) -> LogError {
        self.inner.log.failure().await
    }

    /// Sizes of the log of the book.
    pub fn usage(&self) -> ron_log::Usage {
        self.inner.log.usage()
    }

    /// Transfers booked since the book was begun.
    pub fn transfers(&self) -> u64 {
        lock(&self.inner.state).transfers() as u64
    }

    /// Makes everything durable, marks the clean stop and ends the threads. Waits for the disk: not for a runtime.
    pub fn close(&self) -> Result<(), BookError> {
        let writer = lock(&self.inner.writer).take();
        match writer {
            Some(writer) => writer.stop()?,
            None => self.inner.log.seal()?,
        };
        Ok(())
    }
}

impl Ledger for Book {
    async fn submit(&self, batch: &Batch) -> Result<Vec<Outcome>, LedgerError> {
        loop {
            let mut watch = self.inner.log.watch();
            match self.inner.append(batch)? {
                Appended::Rests { on, outcomes } => {
                    self.inner.durable(on).await?;
                    return Ok(outcomes);
                }
                Appended::Busy if self.inner.commits == Commits::Caller => self.inner.durable(Lsn(u64::MAX)).await?,
                Appended::Busy => {
                    let freed = deadline::within(DISK_WAIT, "ledger_room", watch.changed()).await;
                    let freed = freed.map_err(|_| LedgerError::Unavailable("the disk of the book is behind".into()))?;
                    freed.map_err(|error| LedgerError::Unavailable(error.to_string()))?;
                }
            }
        }
    }

    async fn tally(&self, run: &RunKey) -> Result<Vec<Tally>, LedgerError> {
        // Sums without the lost records would accuse an epoch that was paid.
        self.inner.is_whole()?;
        self.inner.read(|state| state.tally(run)).await
    }

    async fn one_run_per_pot(&self) -> Result<bool, LedgerError> {
        Ok(true)
    }

    fn kind(&self) -> &'static str {
        "the embedded book"
    }

    fn book(&self) -> Option<&Book> {
        Some(self)
    }
}
