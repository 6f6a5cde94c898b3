//! What was done for whom since the last seal, in the order of the file it will be sealed as.

use std::collections::BTreeMap;

use ron_kernel::meter::{OTHER, ROWS_MAX};

use super::file;

/// Maximum bytes of a usage file. One record of the log holds it, and a segment holds that record.
pub const FILE_BYTES_MAX: u64 = 11 << 20;

/// Totals by actor and metric. Adding and reading allocate nothing for rows that exist.
#[derive(Debug)]
pub struct Book {
    /// Metrics of each actor, sorted by name: there are a handful for each service.
    actors: BTreeMap<Box<str>, Vec<Entry>>,
    rows: usize,
    rows_max: usize,
    /// Maximum bytes of a file with these rows, whatever their totals grow to.
    file_bytes: u64,
    has_changed: bool,
}

#[derive(Debug)]
struct Entry {
    metric: Box<str>,
    total: u128,
    /// The total is not what the log has.
    has_changed: bool,
}

/// One row of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRow<'a> {
    /// Whom it was done for.
    pub actor: &'a str,
    /// What was counted.
    pub metric: &'a str,
    /// How much, since the last seal.
    pub quantity: u128,
}

impl Book {
    /// A book without rows.
    pub fn new() -> Book {
        Book::with_rows(ROWS_MAX)
    }

    /// A book of at most `rows_max` rows beside those of [`OTHER`].
    pub fn with_rows(rows_max: usize) -> Book {
        Book { actors: BTreeMap::new(), rows: 0, rows_max, file_bytes: file::HEADER.len() as u64, has_changed: false }
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Maximum bytes that the rows take in the log and in a file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether the log has something else than the book.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Adds to a row; one beyond the bounds is added to that of [`OTHER`].
    pub fn add(&mut self, actor: &str, metric: &str, amount: u64) {
        let entry = self.entry(actor, metric);
        entry.total = entry.total.saturating_add(u128::from(amount));
        entry.has_changed = true;
        self.has_changed = true;
    }

    /// Sets a row to what the log says.
    pub fn restore(&mut self, actor: &str, metric: &str, total: u128) {
        self.entry(actor, metric).total = total;
    }

    fn entry(&mut self, actor: &str, metric: &str) -> &mut Entry {
        let found = self.actors.get(actor).and_then(|entries| place(entries, metric).ok());
        let is_new = found.is_none();
        let bytes = file::row_bytes_max(actor, metric);
        let is_refused =
            is_new && actor != OTHER && (self.rows >= self.rows_max || self.file_bytes + bytes > FILE_BYTES_MAX);
        let actor = if is_refused { OTHER } else { actor };
        // Looked up before, so that a row that exists costs no copy of its name.
        if !self.actors.contains_key(actor) {
            self.actors.insert(actor.into(), Vec::new());
        }
        let entries = self.actors.get_mut(actor).expect("it is there, or was put there");
        let at = place(entries, metric).unwrap_or_else(|at| {
            entries.insert(at, Entry { metric: metric.into(), total: 0, has_changed: false });
            self.rows += 1;
            self.file_bytes += file::row_bytes_max(actor, metric);
            at
        });
        &mut entries[at]
    }

    /// All rows, by the bytes of the actor, then of the metric.
    pub fn iter(&self) -> impl Iterator<Item = UsageRow<'_>> {
        self.actors.iter().flat_map(|(actor, entries)| entries.iter().map(move |entry| entry.row(actor)))
    }

    /// Rows after this actor, in whole actors: a page ends where an actor ends.
    pub fn after<'a>(&'a self, actor: Option<&str>, rows: usize) -> (Vec<UsageRow<'a>>, Option<&'a str>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = actor.map_or(Unbounded, Excluded);
        let mut page = Vec::new();
        let mut last = None;
        for (actor, entries) in self.actors.range::<str, _>((start, Unbounded)) {
            if page.len() >= rows {
                return (page, last);
            }
            page.extend(entries.iter().map(|entry| entry.row(actor)));
            last = Some(&**actor);
        }
        (page, None)
    }

    /// Rows that the log does not have, or all of them.
    pub fn to_write(&self, all: bool) -> impl Iterator<Item = UsageRow<'_>> {
        let entries = self.actors.iter().flat_map(|(actor, entries)| entries.iter().map(move |entry| (actor, entry)));
        entries.filter(move |(_, entry)| all || entry.has_changed).map(|(actor, entry)| entry.row(actor))
    }

    /// The log has all rows.
    pub fn written(&mut self) {
        self.actors.values_mut().flatten().for_each(|entry| entry.has_changed = false);
        self.has_changed = false;
    }
}

impl Entry {
    fn row<'a>(&'a self, actor: &'a str) -> UsageRow<'a> {
        UsageRow { actor, metric: &self.metric, quantity: self.total }
    }
}

fn place(entries: &[Entry], metric: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (*entry.metric).cmp(metric))
}
