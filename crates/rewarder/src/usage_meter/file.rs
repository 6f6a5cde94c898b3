//! The usage file: CSV with the columns `actor,metric,quantity`, the same bytes for the same rows.

use std::collections::BTreeMap;

use ron_kernel::meter::OTHER;

use super::book::Book;
use crate::epoch::is_payable;

/// First line of every file.
pub const HEADER: &[u8] = b"actor,metric,quantity\n";
/// Most digits of a quantity.
const DIGITS_MAX: usize = 39;

/// Bytes that are hashed at once: enough for all lanes of the processor, few enough to be in its cache still.
const HASHED_BYTES: usize = 64 << 10;

/// A usage file.
#[derive(Debug)]
pub struct UsageFile {
    /// Its bytes.
    pub text: Vec<u8>,
    /// Rows in it.
    pub rows: u64,
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
}

/// The rows of a book as a file, or those of one tenant; all given to one actor if it is named.
pub fn write(book: &mut Book, tenant: Option<&str>, as_actor: Option<&str>) -> UsageFile {
    if let Some(tenant) = tenant {
        let totals = book.totals_of(tenant);
        let mut file = FileWriter::new(totals.len());
        file.put(as_actor.unwrap_or(tenant), totals.into_iter());
        return file.finish();
    }
    let mut file = FileWriter::new(book.rows());
    match as_actor {
        None if book.by_actor().all(|(actor, _)| is_payable(actor)) => {
            book.by_actor().for_each(|(actor, totals)| file.put(actor, totals));
        }
        None => merged(book, |actor| if is_payable(actor) { actor } else { OTHER })
            .into_iter()
            .for_each(|(actor, metrics)| file.put(actor, metrics.into_iter())),
        Some(name) => merged(book, |_| name).into_iter().for_each(|(_, metrics)| file.put(name, metrics.into_iter())),
    }
    file.finish()
}

/// Totals by the names that the actors are given, and by metric. Names that no ledger pays are given another: a run
/// refuses a file that holds one, so that a single tenant would keep all others from being paid.
fn merged<'a>(book: &'a mut Book, name_of: impl Fn(&'a str) -> &'a str) -> BTreeMap<&'a str, BTreeMap<&'a str, u128>> {
    let mut actors: BTreeMap<&str, BTreeMap<&str, u128>> = BTreeMap::new();
    for (actor, totals) in book.by_actor() {
        for (metric, quantity) in totals {
            let total = actors.entry(name_of(actor)).or_default().entry(metric).or_default();
            *total = total.saturating_add(quantity);
        }
    }
    actors
}

struct FileWriter {
    text: Vec<u8>,
    rows: u64,
    hasher: blake3::Hasher,
    /// Bytes that the hasher has seen.
    hashed: usize,
    /// The actor with its comma, as it stands before each of its metrics: looked at for quotes once.
    start: Vec<u8>,
}

impl FileWriter {
    fn new(rows: usize) -> FileWriter {
        let mut text = Vec::with_capacity(HEADER.len() + rows * 64);
        text.extend_from_slice(HEADER);
        FileWriter { text, rows: 0, hasher: blake3::Hasher::new(), hashed: 0, start: Vec::new() }
    }

    fn put<'a>(&mut self, actor: &str, totals: impl Iterator<Item = (&'a str, u128)>) {
        self.start.clear();
        put_field(&mut self.start, actor);
        self.start.push(b',');
        for (metric, quantity) in totals {
            self.text.extend_from_slice(&self.start);
            put_field(&mut self.text, metric);
            self.text.push(b',');
            put_number(&mut self.text, quantity);
            self.text.push(b'\n');
            self.rows += 1;
        }
        if self.text.len() - self.hashed >= HASHED_BYTES {
            self.hash();
        }
    }

    fn hash(&mut self) {
        self.hasher.update(&self.text[self.hashed..]);
        self.hashed = self.text.len();
    }

    fn finish(mut self) -> UsageFile {
        self.hash();
        UsageFile { hash: *self.hasher.finalize().as_bytes(), text: self.text, rows: self.rows }
    }
}

/// Most bytes that a row takes in a file.
pub fn row_bytes_max(actor: &str, metric: &str) -> u64 {
    (field_bytes(actor) + field_bytes(metric) + DIGITS_MAX + 3) as u64
}

fn needs_quotes(field: &str) -> bool {
    let is_odd = |byte: u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    // Without a way out in the middle, many bytes are looked at at once.
    field.is_empty() || field.bytes().fold(false, |found, byte| found | is_odd(byte))
}

fn field_bytes(field: &str) -> usize {
    if needs_quotes(field) { field.len() + 2 + field.bytes().filter(|byte| *byte == b'"').count() } else { field.len() }
}

fn put_field(text: &mut Vec<u8>, field: &str) {
    if !needs_quotes(field) {
        text.extend_from_slice(field.as_bytes());
        return;
    }
    text.push(b'"');
    for byte in field.bytes() {
        if byte == b'"' {
            text.push(b'"');
        }
        text.push(byte);
    }
    text.push(b'"');
}

/// The digits of all numbers of two digits.
const PAIRS: [[u8; 2]; 100] = pairs();

const fn pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
}

/// Digits by hand: half of the time of a seal went into formatting, and nearly all quantities fit into 64 bits, whose
/// division is many times quicker.
fn put_number(text: &mut Vec<u8>, number: u128) {
    let mut digits = [0; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    let mut high = number;
    while u64::try_from(high).is_err() {
        at -= 1;
        digits[at] = b'0' + (high % 10) as u8;
        high /= 10;
    }
    let mut low = high as u64;
    while low >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(low % 100) as usize]);
        low /= 100;
    }
    let last = &PAIRS[low as usize][usize::from(low < 10)..];
    at -= last.len();
    digits[at..at + last.len()].copy_from_slice(last);
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        let edges = [0, 1, 9, 10, 99, 100, u128::from(u64::MAX), u128::from(u64::MAX) + 1, u128::MAX - 1, u128::MAX];
        for number in edges.into_iter().chain((0..128).map(|bit| (1_u128 << bit) + 7)) {
            let mut text = Vec::new();
            put_number(&mut text, number);
            assert_eq!(text, number.to_string().into_bytes());
        }
    }

    #[test]
    fn odd_names_are_quoted_and_never_longer_than_said() {
        let mut book = Book::new();
        for actor in ["plain", "a,b", "say \"hi\"", "two\nlines", "", "ä@x"] {
            book.add(actor, "m.n", u64::MAX);
        }
        let UsageFile { text, rows, .. } = write(&mut book, None, None);
        let max = u64::MAX;
        let expected = format!(
            "actor,metric,quantity\n(other),m.n,{max}\n\"a,b\",m.n,{max}\nplain,m.n,{max}\n\"say \"\"hi\"\"\",m.n,{max}\n\
             \"two\nlines\",m.n,{max}\nä@x,m.n,{max}\n"
        );
        assert_eq!((String::from_utf8(text.clone()), rows), (Ok(expected), 6));
        assert!(text.len() as u64 <= book.file_bytes());
    }

    #[test]
    fn a_tenant_whom_no_ledger_pays_is_one_of_the_others() {
        let mut book = Book::new();
        for (actor, amount) in [("ann", 1), ("epoch/2026-11", 2), ("", 4), ("nul\0", 8), (OTHER, 16)] {
            book.add(actor, "x", amount);
        }
        let UsageFile { text, rows, .. } = write(&mut book, None, None);
        assert_eq!(String::from_utf8(text).expect("text"), "actor,metric,quantity\n(other),x,30\nann,x,1\n");
        assert_eq!(rows, 2);
    }

    #[test]
    fn all_rows_may_be_given_to_one_actor() {
        let mut book = Book::new();
        for (actor, metric, amount) in [("a", "x", 1), ("b", "x", 2), ("b", "a", 4)] {
            book.add(actor, metric, amount);
        }
        let UsageFile { text, rows, .. } = write(&mut book, None, Some("node-7"));
        assert_eq!(String::from_utf8(text).expect("text"), "actor,metric,quantity\nnode-7,a,4\nnode-7,x,3\n");
        assert_eq!(rows, 2);
    }

    #[test]
    fn what_is_hashed_on_the_way_is_the_whole_file() {
        for actors in [0, 1, 20_000] {
            let mut book = Book::new();
            (0..actors).for_each(|actor| book.add(&format!("tenant-{actor}"), "m.n", 17));
            let file = write(&mut book, None, None);
            assert_eq!(file.hash, *blake3::hash(&file.text).as_bytes(), "{} bytes", file.text.len());
        }
    }
}
