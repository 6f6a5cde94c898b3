//! A ledger in PostgreSQL: the schema is ours, a batch is one transaction, a key is a primary key.
//!
//! The connection may end at any moment, also while a commit is under way. Nothing depends on knowing what became of
//! it: the same batch is sent again, and what was booked is a duplicate then.

mod connect;
mod schema;
mod submit;

pub use connect::PostgresOptions;

use crate::model::{Batch, Ledger, LedgerError, Outcome, RunKey, Tally};
use crate::words::check_words;
use connect::{Link, Target};
use ron_kernel::Deadline;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Error};

/// What a caller waits for beyond the time a statement may take: the way there and back.
const MARGIN: Duration = Duration::from_secs(5);

/// A ledger in PostgreSQL, over one connection that is made anew when it is lost.
pub struct PostgresLedger {
    target: Target,
    /// One caller at a time has the connection.
    turn: Semaphore,
    /// The connection while nobody uses it. Who gives up waiting drops it, and with it the transaction.
    idle: Mutex<Option<Link>>,
    /// A count for observers; nothing is decided by it.
    connections: AtomicU64,
}

impl PostgresLedger {
    /// Reads the options; the first use connects and makes the schema if it is not there.
    pub fn new(options: &PostgresOptions) -> Result<PostgresLedger, LedgerError> {
        let target = Target::new(options).map_err(LedgerError::Refused)?;
        let (turn, idle) = (Semaphore::new(1), Mutex::new(None));
        Ok(PostgresLedger { target, turn, idle, connections: AtomicU64::new(0) })
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` on the connection. If a kept connection turns out to be lost, once more on a new one: every work
    /// here may be done twice, because a key is booked once.
    async fn with_link<W: Work>(&self, work: W) -> Result<W::Answer, LedgerError> {
        let deadline = Deadline::after(self.target.statement_timeout + self.target.connect_timeout + MARGIN);
        // Boxed: what connecting takes would otherwise lie in every caller's own future, used or not.
        let working = Box::pin(async {
            let _turn = self.turn.acquire().await.map_err(|_| Trouble::Ours("the ledger was closed".into()))?;
            let kept = self.idle().take().filter(|link| !link.is_closed());
            if let Some(mut link) = kept {
                match link.run(&work).await {
                    Err(Trouble::Postgres(error)) if is_lost(&error) => {}
                    done => return self.keep(link, done),
                }
            }
            let mut link = self.target.connect().await?;
            self.connections.fetch_add(1, Ordering::Relaxed);
            let done = link.run(&work).await;
            self.keep(link, done)
        });
        let answered = deadline.run("ledger_postgres", working).await;
        let answered = answered.unwrap_or_else(|_| Err(Trouble::Ours("PostgreSQL does not answer".into())));
        answered.map_err(|trouble| self.told_on(trouble))
    }

    /// What went wrong, without the password: a server may send back whatever it was sent.
    fn told_on(&self, trouble: Trouble) -> LedgerError {
        trouble.into_ledger_error().redacted(self.target.password())
    }

    /// A connection on which something went wrong may be in the middle of a transaction: only a good one is kept.
    fn keep<T>(&self, link: Link, done: Result<T, Trouble>) -> Result<T, Trouble> {
        if done.is_ok() && !link.is_closed() {
            *self.idle() = Some(link);
        }
        done
    }

    /// Whether PostgreSQL answers and lets us in, and has our tables; makes none.
    pub async fn reach(&self) -> Result<bool, LedgerError> {
        let reached = self.target.connect_for(&Look).await;
        reached.map(|(_, is_there)| is_there).map_err(|trouble| self.told_on(trouble))
    }

    /// Counts the whole ledger again inside PostgreSQL: everything that is wrong, in words.
    pub async fn verify(&self) -> Result<Vec<String>, LedgerError> {
        self.with_link(Recount).await
    }
}

/// Something to do on a connection, which may be done twice.
trait Work: Sync {
    type Answer: Send;

    fn perform(&self, client: &mut Client) -> impl Future<Output = Result<Self::Answer, Trouble>> + Send;
}

struct Submission<'a>(&'a Batch);

impl Work for Submission<'_> {
    type Answer = Vec<Outcome>;

    async fn perform(&self, client: &mut Client) -> Result<Vec<Outcome>, Trouble> {
        submit::submit(client, self.0).await
    }
}

struct TallyOf<'a>(&'a RunKey);

impl Work for TallyOf<'_> {
    type Answer = Vec<Tally>;

    async fn perform(&self, client: &mut Client) -> Result<Vec<Tally>, Trouble> {
        submit::tally(client, self.0).await
    }
}

struct Look;

impl Work for Look {
    type Answer = bool;

    async fn perform(&self, client: &mut Client) -> Result<bool, Trouble> {
        schema::is_there(client).await
    }
}

struct Recount;

impl Work for Recount {
    type Answer = Vec<String>;

    async fn perform(&self, client: &mut Client) -> Result<Vec<String>, Trouble> {
        Ok(schema::faults(client).await?)
    }
}

/// What went wrong with a request.
enum Trouble {
    Postgres(Error),
    /// Something that may pass, found by us.
    Ours(String),
    /// Something that will not pass.
    Refused(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Postgres(error)
    }
}

impl Trouble {
    fn into_ledger_error(self) -> LedgerError {
        match self {
            Trouble::Ours(why) => LedgerError::Unavailable(why),
            Trouble::Refused(why) => LedgerError::Refused(why),
            Trouble::Postgres(error) => {
                let class = error.code().map(|code| code.code().get(..2).unwrap_or_default().to_owned());
                let words = error.as_db_error().map_or_else(|| told(&error), |said| said.message().to_owned());
                // A value out of its range, a constraint: the same batch will meet them again. All else may pass, if
                // only because an operator mends it: rights, a full disk, a server that is read-only or away.
                match class.as_deref() {
                    Some("22" | "23") => LedgerError::Refused(words),
                    _ => LedgerError::Unavailable(words),
                }
            }
        }
    }
}

/// An error with its causes: the outermost alone says only that there was one.
fn told(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

/// The connection is gone, or the server is about to end it.
fn is_lost(error: &Error) -> bool {
    error.is_closed() || error.code().is_none_or(|code| matches!(code.code().get(..2), Some("08" | "57")))
}

impl Ledger for PostgresLedger {
    async fn submit(&self, batch: &Batch) -> Result<Vec<Outcome>, LedgerError> {
        check_words(batch)?;
        if batch.entries.is_empty() {
            return Ok(Vec::new());
        }
        self.with_link(Submission(batch)).await
    }

    async fn tally(&self, run: &RunKey) -> Result<Vec<Tally>, LedgerError> {
        self.with_link(TallyOf(run)).await
    }

    async fn one_run_per_pot(&self) -> Result<bool, LedgerError> {
        Ok(true)
    }

    fn kind(&self) -> &'static str {
        "PostgreSQL"
    }
}
