//! The book read from its files, which only goes while no node has them open.

use std::path::PathBuf;

use ron_ledger::{BookError, Inspection};
use ron_log::LogError;
use svc_rewarder::config::{LedgerKind, Options};
use svc_rewarder::store::{self, StoreError};

use super::super::books::{self, BOOK_FOLDER};
use super::super::{FOLDER, LOG_FOLDER};
use super::words::{Account, AccountPage, Recount, StatementPage};
use crate::cli::ApiArgs;
use crate::client::configured;
use crate::errors::{Code, Failure};

/// The book in the data directory; `None` if a node must be asked instead: one was named, or it has the book open.
pub fn read(node: &ApiArgs) -> Result<Option<Inspection>, Failure> {
    if node.api.is_some() {
        return Ok(None);
    }
    in_force(node)?;
    let folder = data_dir(node).join(FOLDER).join(BOOK_FOLDER);
    let place = folder.display();
    match ron_ledger::inspect(&folder) {
        Ok(book) => Ok(Some(book)),
        Err(BookError::Log(LogError::InUse)) => Ok(None),
        Err(BookError::Log(LogError::Io { kind: std::io::ErrorKind::NotFound, .. })) => {
            let message = format!(
                "there is no book in {place}: name the node's data directory with --data-dir, or the node with --api"
            );
            Err(Failure::new(Code::DataDirUnusable, message))
        }
        Err(error) => Err(Failure::new(Code::DataDirUnusable, format!("cannot read the book in {place}: {error}"))),
    }
}

/// Refuses to read a book that is left from before where payouts go elsewhere by the configuration.
fn in_force(node: &ApiArgs) -> Result<(), Failure> {
    let config = configured();
    let is_configured = node.data_dir.as_ref().is_none_or(|folder| *folder == config.data_dir);
    let place = match config.section::<Options>().ledger {
        LedgerKind::Embedded => return Ok(()),
        LedgerKind::Postgres => "PostgreSQL (rewarder.ledger = \"postgres\")",
        LedgerKind::Http => "a ledger behind HTTP (rewarder.ledger = \"http\")",
    };
    let message = format!("payouts of this node go to {place}, and not to an embedded book");
    if is_configured { Err(Failure::new(Code::PayoutsRefused, message)) } else { Ok(()) }
}

fn data_dir(node: &ApiArgs) -> PathBuf {
    node.data_dir.clone().unwrap_or_else(|| configured().data_dir)
}

pub fn account(book: &Inspection, account: &str) -> Result<Account, Failure> {
    let balances = book.balances(account);
    if balances.is_empty() {
        return Err(Failure::new(Code::PayoutsRefused, format!("the ledger does not know the account {account}")));
    }
    Ok(Account::of(account.to_owned(), balances))
}

pub fn statement(book: &Inspection, account: &str, from: Option<&str>, limit: usize) -> Result<StatementPage, Failure> {
    let page = book.statement(account, from, limit);
    let page = page.map_err(|error| Failure::new(Code::PayoutsRefused, error.to_string()))?;
    Ok(StatementPage::of(account.to_owned(), page))
}

pub fn accounts(book: &Inspection, after: Option<&str>, limit: usize) -> AccountPage {
    AccountPage::of(book.accounts(after, limit))
}

/// The recount, with the epochs that the seal log beside the book calls settled and that the book lacks.
pub fn recount(node: &ApiArgs, book: &Inspection) -> Recount {
    let mut report = book.report.clone();
    let log = data_dir(node).join(FOLDER).join(LOG_FOLDER);
    match store::inspect(&log) {
        Ok((rows, _)) => report.faults.extend(books::lacks(&rows, |run| book.tally(run))),
        Err(StoreError::Log(LogError::Io { kind: std::io::ErrorKind::NotFound, .. })) => {}
        Err(error) => report.faults.push(format!("the seal log {} cannot be compared: {error}", log.display())),
    }
    Recount::of(&report)
}
