//! What went wrong, in an order that does not depend on threads: rows by file and place, failures by file and piece.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::crew::lock;
use crate::field::{Column, Reason};
use crate::input::{BadRow, InputError};
use crate::limits::BAD_ROWS_LISTED;

/// A piece of a file: the place of the file in the list, and of the piece in the file.
pub type PieceAt = (usize, u64);

/// Findings of all threads.
#[derive(Debug, Default)]
pub struct Report {
    failure: Mutex<Option<(PieceAt, InputError)>>,
    bad: Mutex<BadList>,
}

#[derive(Debug, Default)]
struct BadList {
    count: u64,
    first: BTreeMap<(PieceAt, u64), Bad>,
}

type Bad = (Option<Column>, String);

/// Bad rows of one piece; rows are counted from zero within it.
#[derive(Debug, Default)]
pub struct PieceReport {
    count: u64,
    first: Vec<(u64, Bad)>,
}

impl PieceReport {
    /// Takes note of a bad row; rows come in order.
    pub fn bad(&mut self, row: u64, column: Option<Column>, reason: Reason) {
        self.count += 1;
        if self.first.len() < BAD_ROWS_LISTED {
            self.first.push((row, (column, reason.into_owned())));
        }
    }
}

impl Report {
    /// Takes over what was found in a piece.
    pub fn add(&self, at: PieceAt, piece: PieceReport) {
        if piece.count == 0 {
            return;
        }
        let mut bad = lock(&self.bad);
        bad.count += piece.count;
        bad.first.extend(piece.first.into_iter().map(|(row, found)| ((at, row), found)));
        while bad.first.len() > BAD_ROWS_LISTED {
            bad.first.pop_last();
        }
    }

    /// Takes note of a failure; the first piece's counts.
    pub fn fail(&self, at: PieceAt, error: InputError) {
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(first, _)| at < *first) {
            *failure = Some((at, error));
        }
    }

    /// Whether a file before this one, or this one, failed, so that its pieces need no more work.
    pub fn has_failed(&self, file: usize) -> bool {
        lock(&self.failure).as_ref().is_some_and(|(at, _)| at.0 <= file)
    }

    /// Nothing, if nothing went wrong; `rows` are the rows of each piece of each file.
    pub fn end(self, files: &[&str], rows: &[Vec<u64>]) -> Result<(), InputError> {
        if let Some((_, error)) = lock(&self.failure).take() {
            return Err(error);
        }
        let bad = std::mem::take(&mut *lock(&self.bad));
        if bad.count == 0 {
            return Ok(());
        }
        let first = bad.first.into_iter().map(|(((file, piece), row), (column, reason))| BadRow {
            file: files[file].to_owned(),
            row: rows[file][..piece as usize].iter().sum::<u64>() + row + 1,
            column: column.map(|column| column.name().to_owned()),
            reason,
        });
        Err(InputError::BadRows { count: bad.count, first: first.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_are_those_of_the_first_pieces() {
        let report = Report::default();
        for piece in [2, 0, 1] {
            let mut found = PieceReport::default();
            for row in 0..300 {
                found.bad(row, Some(Column::Actor), "empty".into());
            }
            report.add((1, piece), found);
        }
        let mut found = PieceReport::default();
        found.bad(4, None, "short".into());
        report.add((0, 0), found);
        let Err(InputError::BadRows { count, first }) = report.end(&["a", "b"], &[vec![5], vec![300, 400, 500]]) else {
            panic!("bad rows")
        };
        assert_eq!((count, first.len()), (901, 100));
        assert_eq!((first[0].file.as_str(), first[0].row, &first[0].column), ("a", 5, &None));
        assert_eq!((first[1].file.as_str(), first[1].row, first[99].row), ("b", 1, 99));
    }

    #[test]
    fn the_first_piece_that_failed_counts() {
        let report = Report::default();
        for at in [(1, 3), (1, 2), (2, 0)] {
            report.fail(at, InputError::TooMuch(format!("{at:?}")));
        }
        assert!(!report.has_failed(0) && report.has_failed(1) && report.has_failed(2));
        assert_eq!(report.end(&[], &[]).expect_err("failed").to_string(), "(1, 2)");
    }
}
