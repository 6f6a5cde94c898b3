//! Statements and lists come in pages that fit together.

use super::*;

async fn whole_statement(book: &Book, account: &str, limit: usize) -> Vec<StatementLine> {
    let (mut lines, mut from) = (Vec::new(), None);
    loop {
        let page = book.statement(account, from.as_deref(), limit).await.unwrap();
        assert!(page.lines.len() <= limit);
        lines.extend(page.lines);
        match page.next {
            Some(next) => from = Some(next),
            None => return lines,
        }
    }
}

/// `both` is a pot once and a payee at other times.
async fn filled() -> Book {
    let (book, _) = open(&SimDisk::new(1));
    for run in 1..=6_u64 {
        let mut entries = vec![pay(run * 10, "a", 10), pay(run * 10 + 1, "both", 7), pay(run * 10 + 2, "a", 1)];
        if run > 3 {
            entries.push(take_back(run * 10 + 3, "a", 2));
        }
        book.submit(&batch(run as u8, entries)).await.unwrap();
        let from_both =
            Batch { pot: "both".to_owned(), ..batch(9, vec![pay(run * 10 + 5, "b", 3), pay(run * 10 + 6, "a", 1)]) };
        book.submit(&from_both).await.unwrap();
    }
    book
}

#[tokio::test]
async fn a_statement_goes_back_page_by_page() {
    let book = filled().await;
    for account in ["a", "both", "b", "epoch/5"] {
        let whole = whole_statement(&book, account, PAGE_LINES_MAX).await;
        assert!(whole.is_sorted_by(|left, right| left.transfer > right.transfer), "newest first");
        for limit in [1, 2, 3, 7] {
            assert_eq!(whole_statement(&book, account, limit).await, whole, "{account} in pages of {limit}");
        }
        let sums = |side| whole.iter().filter(|line| line.side == side).map(|line| line.amount).sum::<u128>();
        let balance = &book.balances(account).await.unwrap()[0];
        assert_eq!((sums(Side::Debit), sums(Side::Credit)), (balance.debits, balance.credits), "{account}");
    }
    let lines = whole_statement(&book, "both", 100).await;
    assert_eq!(lines.len(), 6 + 12, "as payee and as pot");
    let StatementLine { transfer, run, key: booked, counterparty, side, amount, .. } = lines[1].clone();
    assert_eq!((run, booked, counterparty.as_str(), side, amount), ([9; 32], key(65), "b", Side::Debit, 3));
    assert_eq!(transfer, book.transfers() - 1);
    assert_eq!(book.statement("nobody", None, 10).await.unwrap(), StatementPage::default());
}

#[tokio::test]
async fn a_false_place_to_go_on_from_is_refused() {
    let book = filled().await;
    let all = book.transfers();
    for from in ["", "x", "1", "1.2.3", "-1.0", "4294967296.0", "4294967295.0", "0.4294967295", "2.0", "0.1"] {
        let page = book.statement("a", Some(from), 5).await;
        assert_eq!(page, Err(BookError::BadCursor), "{from}");
    }
    // Whatever is asked for, the answer speaks of nobody else's transfers.
    for payee in 0..=all {
        for pot in [0, payee / 2, all] {
            if let Ok(page) = book.statement("b", Some(&format!("{payee}.{pot}")), 3).await {
                let is_of_b = |line: &StatementLine| line.counterparty == "both" && line.side == Side::Credit;
                assert!(page.lines.iter().all(is_of_b), "{payee}.{pot}");
            }
        }
    }
}

#[tokio::test]
async fn accounts_come_in_the_order_of_their_first_transfer() {
    let book = filled().await;
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = book.accounts(after.as_deref(), 2).await.unwrap();
        for line in &page.accounts {
            assert_eq!(line.balances, book.balances(&line.account).await.unwrap());
        }
        names.extend(page.accounts.into_iter().map(|line| line.account));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(names, ["epoch/1", "a", "both", "b", "epoch/2", "epoch/3", "epoch/4", "epoch/5", "epoch/6"]);
    assert_eq!(book.accounts(Some("nobody"), 5).await.unwrap(), AccountPage::default());
}
