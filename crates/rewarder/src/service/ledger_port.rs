//! The ledger as the service uses it: any of them, or one that a test makes fail.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_ledger::{Batch, Book, Ledger, LedgerError, Outcome, RunKey, Tally};

/// A place that payouts go to, behind a pointer.
pub trait PayoutLedger: Send + Sync {
    /// See [`Ledger::submit`].
    fn submit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Vec<Outcome>, LedgerError>>;

    /// See [`Ledger::tally`].
    fn tally<'a>(&'a self, run: &'a RunKey) -> BoxFuture<'a, Result<Vec<Tally>, LedgerError>>;

    /// See [`Ledger::one_run_per_pot`].
    fn one_run_per_pot(&self) -> BoxFuture<'_, Result<bool, LedgerError>>;

    /// See [`Ledger::kind`].
    fn kind(&self) -> &'static str {
        "a ledger that is elsewhere"
    }

    /// See [`Ledger::book`].
    fn book(&self) -> Option<&Book> {
        None
    }
}

impl<L: Ledger> PayoutLedger for L {
    fn submit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Vec<Outcome>, LedgerError>> {
        Ledger::submit(self, batch).boxed()
    }

    fn tally<'a>(&'a self, run: &'a RunKey) -> BoxFuture<'a, Result<Vec<Tally>, LedgerError>> {
        Ledger::tally(self, run).boxed()
    }

    fn one_run_per_pot(&self) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Ledger::one_run_per_pot(self).boxed()
    }

    fn kind(&self) -> &'static str {
        Ledger::kind(self)
    }

    fn book(&self) -> Option<&Book> {
        Ledger::book(self)
    }
}
