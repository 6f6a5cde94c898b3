//! What is shown of a book, in the words of the node's HTTP surface.

use ron_ledger::{Balance, BookReport, Side};
use serde::{Deserialize, Serialize};
use svc_rewarder::hashing::b3;

/// What an account has of one asset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holding {
    pub asset: String,
    pub debits: String,
    pub credits: String,
    pub balance: String,
}

/// An account and what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    pub account: String,
    pub balances: Vec<Holding>,
}

impl Account {
    pub fn of(account: String, balances: Vec<Balance>) -> Account {
        let holding = |balance: Balance| Holding {
            balance: balance.net(),
            asset: balance.asset,
            debits: balance.debits.to_string(),
            credits: balance.credits.to_string(),
        };
        Account { account, balances: balances.into_iter().map(holding).collect() }
    }
}

/// Some accounts, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountPage {
    pub accounts: Vec<Account>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl AccountPage {
    pub fn of(page: ron_ledger::AccountPage) -> AccountPage {
        let accounts = page.accounts.into_iter().map(|line| Account::of(line.account, line.balances));
        AccountPage { accounts: accounts.collect(), next: page.next }
    }
}

/// One transfer, seen from the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transfer {
    pub transfer: u64,
    pub booked_at_ms: u64,
    pub run: String,
    pub key: String,
    pub asset: String,
    pub counterparty: String,
    pub side: String,
    pub amount: String,
}

/// Some transfers of an account, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementPage {
    pub account: String,
    pub lines: Vec<Transfer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl StatementPage {
    pub fn of(account: String, page: ron_ledger::StatementPage) -> StatementPage {
        let line = |line: ron_ledger::StatementLine| Transfer {
            transfer: line.transfer,
            booked_at_ms: line.booked_at_ms,
            run: b3(&line.run),
            key: b3(&line.key),
            asset: line.asset,
            counterparty: line.counterparty,
            side: if line.side == Side::Debit { "debit" } else { "credit" }.to_owned(),
            amount: line.amount.to_string(),
        };
        StatementPage { account, lines: page.lines.into_iter().map(line).collect(), next: page.next }
    }
}

/// Sums of one asset over all accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssetTotal {
    pub asset: String,
    pub debits: String,
    pub credits: String,
}

/// Findings of a recount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recount {
    pub is_clean: bool,
    pub batches: u64,
    pub transfers: u64,
    pub accounts: u64,
    pub assets: Vec<AssetTotal>,
    pub hash: String,
    pub faults: Vec<String>,
}

impl Recount {
    pub fn of(report: &BookReport) -> Recount {
        let total = |sums: &ron_ledger::AssetSums| AssetTotal {
            asset: sums.asset.clone(),
            debits: sums.debits.to_string(),
            credits: sums.credits.to_string(),
        };
        Recount {
            is_clean: report.is_clean(),
            batches: report.batches,
            transfers: report.transfers,
            accounts: report.accounts,
            assets: report.assets.iter().map(total).collect(),
            hash: b3(&report.hash),
            faults: report.faults.clone(),
        }
    }
}

/// Settled epochs that the ledger lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resent {
    pub epochs: Vec<String>,
    pub removed: Vec<String>,
}
