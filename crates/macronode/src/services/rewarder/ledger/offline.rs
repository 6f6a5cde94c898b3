//! The book read from its files, which only goes while no node has them open.

use ron_ledger::{BookError, Inspection};
use ron_log::LogError;

use super::super::FOLDER;
use super::super::books::BOOK_FOLDER;
use super::words::{Account, AccountPage, Recount, StatementPage};
use crate::cli::ApiArgs;
use crate::client::configured;
use crate::errors::{Code, Failure};

/// The book in the data directory; `None` if a node must be asked instead: one was named, or it has the book open.
pub fn read(node: &ApiArgs) -> Result<Option<Inspection>, Failure> {
    if node.api.is_some() {
        return Ok(None);
    }
    let data_dir = node.data_dir.clone().unwrap_or_else(|| configured().data_dir);
    let folder = data_dir.join(FOLDER).join(BOOK_FOLDER);
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

pub fn recount(book: &Inspection) -> Recount {
    Recount::of(&book.report)
}
