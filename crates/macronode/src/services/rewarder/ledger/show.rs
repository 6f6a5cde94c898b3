//! A book in columns, for people.

use super::words::{Account, AccountPage, Recount, Resent, StatementPage};
use crate::commands::table::{row, table};

/// What an account has.
pub fn account(account: &Account) -> String {
    if account.balances.is_empty() {
        return format!("{} has nothing of this asset\n", account.account);
    }
    let mut rows = vec![row(["asset", "balance", "credits", "debits"])];
    rows.extend(account.balances.iter().map(|one| row([&one.asset, &one.balance, &one.credits, &one.debits])));
    table(0, &rows)
}

/// Accounts, one line for each asset they have.
pub fn accounts(page: &AccountPage) -> String {
    if page.accounts.is_empty() {
        return "no accounts\n".to_owned();
    }
    let mut rows = vec![row(["account", "asset", "balance"])];
    for account in &page.accounts {
        rows.extend(account.balances.iter().map(|one| row([&account.account, &one.asset, &one.balance])));
    }
    let more = page.next.as_ref().map_or_else(String::new, |next| format!("more: --after {}\n", quoted(next)));
    table(0, &rows) + &more
}

/// Transfers of an account.
pub fn statement(page: &StatementPage) -> String {
    if page.lines.is_empty() {
        return format!("no transfers of {}\n", page.account);
    }
    let mut rows = vec![row(["transfer", "amount", "asset", "counterparty", "run"])];
    for line in &page.lines {
        let signed = if line.side == "debit" { format!("-{}", line.amount) } else { line.amount.clone() };
        rows.push(row([&line.transfer.to_string(), &signed, &line.asset, &line.counterparty, &line.run]));
    }
    let more = page.next.as_ref().map_or_else(String::new, |next| format!("older: --from {next}\n"));
    table(0, &rows) + &more
}

/// Findings of a recount.
pub fn recount(recount: &Recount) -> String {
    let Recount { batches, transfers, accounts, hash, .. } = recount;
    let mut text = format!("{transfers} transfers in {batches} batches, {accounts} accounts\n{hash}\n");
    if !recount.assets.is_empty() {
        let mut rows = vec![row(["asset", "debits", "credits"])];
        rows.extend(recount.assets.iter().map(|one| row([&one.asset, &one.debits, &one.credits])));
        text += &table(0, &rows);
    }
    for fault in &recount.faults {
        text += &format!("wrong: {fault}\n");
    }
    text + if recount.is_clean { "the book is good\n" } else { "the book is NOT good: a node books nothing into it\n" }
}

/// Epochs that are sent again.
pub fn resent(resent: &Resent) -> String {
    let mut text = match resent.epochs.is_empty() {
        true if resent.removed.is_empty() => "the ledger has everything that is settled\n".to_owned(),
        true => String::new(),
        false => format!("sent again: {}; `macronode ledger verify` says how it stands\n", resent.epochs.join(", ")),
    };
    if !resent.removed.is_empty() {
        let names = resent.removed.join(", ");
        text += &format!("cannot be sent again, because the artifacts are removed: {names} (--give-up-removed)\n");
    }
    text
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::words::{AssetTotal, Holding, Transfer};
    use super::*;

    #[test]
    fn a_book_is_shown_in_columns() {
        let holding = Holding { asset: "RON".into(), debits: "0".into(), credits: "12".into(), balance: "12".into() };
        let one = Account { account: "alice".into(), balances: vec![holding] };
        assert_eq!(account(&one), "asset  balance  credits  debits\nRON    12       12       0\n");
        let page = AccountPage { accounts: vec![one], next: Some("it's".into()) };
        assert_eq!(accounts(&page), "account  asset  balance\nalice    RON    12\nmore: --after 'it'\\''s'\n");
        let line = Transfer {
            transfer: 7,
            asset: "RON".into(),
            counterparty: "epoch/1".into(),
            run: "b3:ab".into(),
            side: "debit".into(),
            amount: "5".into(),
            ..Transfer::default()
        };
        let page = StatementPage { account: "alice".into(), lines: vec![line], next: Some("3.0".into()) };
        let expected = "transfer  amount  asset  counterparty  run\n7         -5      RON    epoch/1       b3:ab\nolder: --from 3.0\n";
        assert_eq!(statement(&page), expected);
        assert_eq!(
            statement(&StatementPage { account: "bob".into(), ..StatementPage::default() }),
            "no transfers of bob\n"
        );
    }

    #[test]
    fn a_recount_says_what_is_wrong() {
        let total = AssetTotal { asset: "RON".into(), debits: "5".into(), credits: "5".into() };
        let good = Recount {
            is_clean: true,
            transfers: 2,
            batches: 1,
            accounts: 3,
            assets: vec![total],
            hash: "b3:0".into(),
            ..Recount::default()
        };
        let text = recount(&good);
        assert!(
            text.starts_with("2 transfers in 1 batches, 3 accounts\nb3:0\n") && text.ends_with("the book is good\n")
        );
        let bad = Recount { is_clean: false, faults: vec!["1 unreadable batches".into()], ..good };
        assert!(recount(&bad).contains("wrong: 1 unreadable batches\nthe book is NOT good"));
    }
}
