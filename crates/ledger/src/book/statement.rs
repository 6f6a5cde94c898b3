//! Pages for people: the accounts of a book, and what happened on one of them, newest first.

use super::record;
use super::state::{BatchPlace, Role, State, Trail};
use super::{Balance, Book, BookError, Inner};
use crate::limits::PAGE_LINES_MAX;
use crate::model::{Direction, LedgerError, RunKey};
use ron_log::{LogError, Position, Record};
use std::sync::Arc;

/// An account with what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountLine {
    /// Name of the account.
    pub account: String,
    /// What it has, by asset.
    pub balances: Vec<Balance>,
}

/// Some accounts, in the order in which the book first met them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPage {
    /// The accounts.
    pub accounts: Vec<AccountLine>,
    /// Account to go on after; none if these were the last.
    pub next: Option<String>,
}

/// Side of an account that a transfer is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Units left the account.
    Debit,
    /// Units came to the account.
    Credit,
}

/// One transfer, seen from one of its two accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementLine {
    /// Number of the transfer in the book, from 1.
    pub transfer: u64,
    /// Wall clock when it was booked, in milliseconds since 1970.
    pub booked_at_ms: u64,
    /// The run it belongs to.
    pub run: RunKey,
    /// Its key.
    pub key: [u8; 32],
    /// The asset.
    pub asset: String,
    /// The account on the other side.
    pub counterparty: String,
    /// Which side the account is on.
    pub side: Side,
    /// Units.
    pub amount: u128,
}

/// Some transfers of an account, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementPage {
    /// The transfers.
    pub lines: Vec<StatementLine>,
    /// Place to go on from; none if these were the oldest.
    pub next: Option<String>,
}

impl Trail {
    fn parse(text: &str) -> Option<Trail> {
        let (payee, pot) = text.split_once('.')?;
        Some(Trail { payee: payee.parse().ok()?, pot: pot.parse().ok()? })
    }

    fn print(self) -> Option<String> {
        (self != Trail::default()).then(|| format!("{}.{}", self.payee, self.pot))
    }
}

/// A transfer that a page shows, and where it is.
pub(super) struct Wanted {
    transfer: u32,
    role: Role,
    batch: BatchPlace,
}

impl Wanted {
    /// Whether it is in the batch at this position.
    pub fn is_at(&self, position: Position) -> bool {
        self.batch.position == position
    }
}

impl State {
    pub(super) fn account_page(&self, after: Option<&str>, limit: usize) -> AccountPage {
        let names = self.account_names();
        let first = match after {
            // The account to go on after is not there: nothing comes after it.
            Some(name) => names.find(name).map_or(names.len(), |number| number as usize + 1),
            None => 0,
        };
        let end = (first + limit.clamp(1, PAGE_LINES_MAX)).min(names.len());
        let line = |number: usize| {
            let number = u32::try_from(number).expect("accounts are bounded");
            let balances = self.holdings(number).into_iter().map(|(asset, sums)| Balance::new(asset, sums));
            AccountLine { account: names.get(number).to_owned(), balances: balances.collect() }
        };
        let accounts: Vec<AccountLine> = (first..end).map(line).collect();
        let next = accounts.last().filter(|_| end < names.len()).map(|last| last.account.clone());
        AccountPage { accounts, next }
    }

    /// The transfers of a page, and the place to go on from.
    pub(super) fn wanted(
        &self,
        account: &str,
        from: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Wanted>, Option<String>), BookError> {
        let Some(number) = self.account_names().find(account) else { return Ok((Vec::new(), None)) };
        let mut trail = match from {
            Some(text) => Trail::parse(text).ok_or(BookError::BadCursor)?,
            None => self.newest(number),
        };
        let mut wanted = Vec::new();
        while wanted.len() < limit.clamp(1, PAGE_LINES_MAX) && trail != Trail::default() {
            let (transfer, role, behind) = self.step(trail).ok_or(BookError::BadCursor)?;
            let batch = self.batches()[self.batch_of(transfer).ok_or(BookError::BadCursor)?];
            wanted.push(Wanted { transfer, role, batch });
            trail = behind;
        }
        Ok((wanted, trail.print()))
    }
}

/// Reads the transfers of a page, each batch once as long as neighbours are in the same one.
pub(super) fn read_lines(
    account: &str,
    wanted: &[Wanted],
    mut read: impl FnMut(Position) -> Result<Record, LogError>,
) -> Result<Vec<StatementLine>, BookError> {
    let mut lines = Vec::with_capacity(wanted.len());
    for neighbours in wanted.chunk_by(|left, right| left.batch.position == right.batch.position) {
        let stored = read(neighbours[0].batch.position)?;
        let damaged = || BookError::Damaged("the batch of this page cannot be read".to_owned());
        let record = record::Record::decode(&stored.head, &stored.body).map_err(|_| damaged())?;
        let rows: Vec<_> = record.rows().collect();
        for Wanted { transfer, role, batch } in neighbours {
            let row = rows.get((transfer - batch.first) as usize).ok_or_else(damaged)?;
            let (own, other) = match role {
                Role::Payee => (row.account, record.head.pot.as_str()),
                Role::Pot => (record.head.pot.as_str(), row.account),
            };
            if own != account {
                return Err(BookError::BadCursor);
            }
            let comes = (row.direction == Direction::Pay) == (*role == Role::Payee);
            lines.push(StatementLine {
                transfer: u64::from(*transfer) + 1,
                booked_at_ms: record.head.booked_at_ms,
                run: record.head.run,
                key: row.key,
                asset: record.head.asset.clone(),
                counterparty: other.to_owned(),
                side: if comes { Side::Credit } else { Side::Debit },
                amount: row.amount,
            });
        }
    }
    Ok(lines)
}

impl Inner {
    fn statement(&self, account: &str, from: Option<&str>, limit: usize) -> Result<StatementPage, BookError> {
        let state = self.state().map_err(|error| BookError::Unavailable(error.to_string()))?;
        let (wanted, next) = state.wanted(account, from, limit)?;
        drop(state);
        Ok(StatementPage { lines: read_lines(account, &wanted, |position| self.log.read(position))?, next })
    }
}

impl Book {
    /// Up to `limit` accounts after the one named, or from the first.
    pub async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<AccountPage, LedgerError> {
        self.inner.read(|state| state.account_page(after, limit)).await
    }

    /// Up to `limit` transfers of an account, going back from the newest or from where a page ended.
    pub async fn statement(&self, account: &str, from: Option<&str>, limit: usize) -> Result<StatementPage, BookError> {
        // What the page shows must not be undone by a power cut.
        let durable = self.inner.read(|_| ()).await;
        durable.map_err(|error| BookError::Unavailable(error.to_string()))?;
        let (inner, account, from) = (Arc::clone(&self.inner), account.to_owned(), from.map(str::to_owned));
        let read = tokio::task::spawn_blocking(move || inner.statement(&account, from.as_deref(), limit));
        read.await.map_err(|_| BookError::Unavailable("the statement was given up".to_owned()))?
    }
}
