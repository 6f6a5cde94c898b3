//! Double-entry books that payouts go to: one embedded in the node, PostgreSQL, or anybody's behind HTTP.
//!
//! A payout has a key that does not depend on its amount. The same key with the same content is a duplicate, and that
//! is success; the same key with other content is a conflict, and nothing is booked.

#![forbid(unsafe_code)]

mod book;
mod http;
pub mod limits;
mod model;
mod postgres;
mod pot;
mod reconcile;
mod redact;
mod tls;
mod words;

pub use self::http::{HttpLedger, HttpOptions};
pub use book::{
    AccountLine, AccountPage, AssetSums, Balance, Book, BookError, BookOptions, BookReport, Inspection, Opened, Side,
    StatementLine, StatementPage, inspect, marked_damage,
};
pub use model::{Batch, Direction, Entry, Ledger, LedgerError, Outcome, RunKey, Tally};
pub use postgres::{PostgresLedger, PostgresOptions};
pub use reconcile::{AssetReconciliation, Reconciliation, Verdict, reconcile};
pub use words::{check_account, check_asset};
