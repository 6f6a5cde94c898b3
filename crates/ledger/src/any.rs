//! One of the ledgers, chosen by configuration.

use crate::book::Book;
use crate::http::HttpLedger;
use crate::model::{Batch, Ledger, LedgerError, Outcome, RunKey, Tally};
use crate::postgres::PostgresLedger;
use std::sync::Arc;

/// A ledger of any kind. Clones are the same ledger.
#[derive(Clone)]
pub enum AnyLedger {
    /// The book inside the node.
    Embedded(Book),
    /// Tables in PostgreSQL.
    Postgres(Arc<PostgresLedger>),
    /// Somebody's service behind HTTP.
    Http(Arc<HttpLedger>),
}

impl AnyLedger {
    /// The word for it in configuration, logs and labels.
    pub const fn kind(&self) -> &'static str {
        match self {
            AnyLedger::Embedded(_) => "embedded",
            AnyLedger::Postgres(_) => "postgres",
            AnyLedger::Http(_) => "http",
        }
    }
}

impl Ledger for AnyLedger {
    async fn submit(&self, batch: &Batch) -> Result<Vec<Outcome>, LedgerError> {
        match self {
            AnyLedger::Embedded(book) => book.submit(batch).await,
            AnyLedger::Postgres(ledger) => ledger.submit(batch).await,
            AnyLedger::Http(ledger) => ledger.submit(batch).await,
        }
    }

    async fn tally(&self, run: &RunKey) -> Result<Vec<Tally>, LedgerError> {
        match self {
            AnyLedger::Embedded(book) => book.tally(run).await,
            AnyLedger::Postgres(ledger) => ledger.tally(run).await,
            AnyLedger::Http(ledger) => ledger.tally(run).await,
        }
    }

    fn book(&self) -> Option<&Book> {
        match self {
            AnyLedger::Embedded(book) => Some(book),
            AnyLedger::Postgres(_) | AnyLedger::Http(_) => None,
        }
    }
}
