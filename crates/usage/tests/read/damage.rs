//! Damaged Parquet files are refused or read; nothing panics, and one flipped byte changes the hash.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::rows::{Format, Row, encode, limits, read_bytes, reference};
use ron_usage::{InputError, read_totals, write_totals};

fn sample() -> Vec<Row> {
    let row = |index: u128| Row {
        actor: format!("actor-{}", index % 37),
        metric: if index.is_multiple_of(2) { "usage" } else { "calls" }.to_owned(),
        group: index.is_multiple_of(3).then(|| "eu".to_owned()),
        asset: None,
        quantity: index,
    };
    (0..150).map(row).collect()
}

fn is_soak() -> bool {
    std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1")
}

/// Every damage ends in totals or in a refusal that blames the file, the rows or a bound.
fn check(bytes: &[u8], what: &str) {
    let result = catch_unwind(AssertUnwindSafe(|| read_bytes("u", bytes, &limits(1))));
    let result = result.unwrap_or_else(|_| panic!("{what}: a panic got out"));
    if let Err(error) = result {
        let is_blamed = matches!(
            error,
            InputError::BadFile { .. }
                | InputError::BadRows { .. }
                | InputError::TooMuch(_)
                | InputError::Overflow { .. }
        );
        assert!(is_blamed, "{what}: {error}");
    }
}

#[test]
fn cut_off_and_flipped_files_do_not_panic() {
    // Panics of the library are caught; their messages and traces would only fill the output.
    std::panic::set_hook(Box::new(|_| ()));
    let step = if is_soak() { 1 } else { 61 };
    for format in [Format::ParquetText, Format::ParquetDecimal, Format::ParquetDictionary] {
        let whole = encode(&sample(), format);
        for length in (0..whole.len()).step_by(step * 3) {
            check(&whole[..length], &format!("{format:?} cut at {length}"));
        }
        for at in (0..whole.len()).step_by(step) {
            for bit in [0, 6] {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                check(&bytes, &format!("{format:?} flipped bit {bit} of {at}"));
            }
        }
    }
}

#[test]
fn a_damaged_table_of_totals_is_refused_or_read() {
    let mut whole = Vec::new();
    write_totals(&reference(&sample()), &mut whole).expect("memory");
    std::panic::set_hook(Box::new(|_| ()));
    for at in (0..whole.len()).step_by(if is_soak() { 1 } else { 5 }) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x81;
        let what = format!("flipped {at}");
        let read = catch_unwind(AssertUnwindSafe(|| read_totals(bytes.into(), 16 << 20)));
        let _ = read.unwrap_or_else(|_| panic!("{what}: a panic got out"));
        assert!(read_totals(bytes::Bytes::copy_from_slice(&whole[..at]), 16 << 20).is_err(), "cut at {at}");
    }
}

#[test]
fn one_flipped_byte_changes_the_hash_of_the_bytes() {
    let whole = encode(&sample(), Format::Csv);
    let expected = read_bytes("u", &whole, &limits(2)).expect("sound").hashes[0];
    let mut bytes = whole;
    let digit = bytes.iter().rposition(u8::is_ascii_digit).expect("a quantity");
    bytes[digit] ^= 1;
    let read = read_bytes("u", &bytes, &limits(2)).expect("another quantity");
    assert!(read.hashes[0] != expected && read.hashes[0] == blake3::hash(&bytes));
}
