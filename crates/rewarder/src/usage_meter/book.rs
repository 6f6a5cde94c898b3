//! What was done for whom since the last seal, in the order of the file it will be sealed as.

use std::collections::BTreeMap;
use std::ops::Bound;

use ron_kernel::meter::{OTHER, ROWS_MAX};

use super::file;

/// Maximum bytes of a usage file. One record of the log holds it, and a segment holds that record.
pub const FILE_BYTES_MAX: u64 = 11 << 20;

/// Totals by actor and metric.
///
/// A seal sets totals to zero and leaves the rows: mostly the same tenants come back, and a book that is made anew
/// with each epoch takes ten times as long to fill and to drop. A row that stays at zero from one seal to the next goes.
#[derive(Debug)]
pub struct Book {
    /// Metrics of each actor, sorted by name: there are a handful for each service.
    actors: BTreeMap<Box<str>, Vec<Entry>>,
    /// Rows with a total above zero.
    rows: usize,
    /// Rows whose total is zero.
    idle_rows: usize,
    rows_max: usize,
    /// Maximum bytes of a file with all these rows, whatever their totals grow to.
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
        let (actors, file_bytes) = (BTreeMap::new(), file::HEADER.len() as u64);
        Book { actors, rows: 0, idle_rows: 0, rows_max, file_bytes, has_changed: false }
    }

    /// Rows with a total above zero.
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
        self.change(actor, metric, |entry| {
            entry.total = entry.total.saturating_add(u128::from(amount));
            entry.has_changed = true;
        });
        self.has_changed = true;
    }

    /// Sets a row to what the log says.
    pub fn restore(&mut self, actor: &str, metric: &str, total: u128) {
        self.change(actor, metric, |entry| entry.total = total);
    }

    fn change(&mut self, actor: &str, metric: &str, change: impl FnOnce(&mut Entry)) {
        let actor = if self.has(actor, metric) || self.make(actor, metric) { actor } else { OTHER };
        if actor == OTHER && !self.has(actor, metric) {
            self.make(actor, metric);
        }
        let entries = self.actors.get_mut(actor).expect("it has the row");
        let at = place(entries, metric).expect("it has the row");
        let was_idle = entries[at].total == 0;
        change(&mut entries[at]);
        if was_idle && entries[at].total > 0 {
            self.rows += 1;
            self.idle_rows -= 1;
        }
    }

    fn has(&self, actor: &str, metric: &str) -> bool {
        self.actors.get(actor).is_some_and(|entries| place(entries, metric).is_ok())
    }

    /// Makes an idle row, if the bounds allow it; idle rows of others go first.
    fn make(&mut self, actor: &str, metric: &str) -> bool {
        let bytes = file::row_bytes_max(actor, metric);
        let is_full =
            |book: &Book| book.rows + book.idle_rows >= book.rows_max || book.file_bytes + bytes > FILE_BYTES_MAX;
        if is_full(self) && self.idle_rows > 0 {
            self.drop_idle();
        }
        if is_full(self) && actor != OTHER {
            return false;
        }
        let entries = self.actors.entry(actor.into()).or_default();
        if let Err(at) = place(entries, metric) {
            entries.insert(at, Entry { metric: metric.into(), total: 0, has_changed: false });
            self.idle_rows += 1;
            self.file_bytes += bytes;
        }
        true
    }

    fn drop_idle(&mut self) {
        let mut bytes = 0;
        self.actors.retain(|actor, entries| {
            entries.retain(|entry| {
                bytes += if entry.total == 0 { file::row_bytes_max(actor, &entry.metric) } else { 0 };
                entry.total > 0
            });
            !entries.is_empty()
        });
        self.file_bytes -= bytes;
        self.idle_rows = 0;
    }

    /// Begins at zero again: all rows are in a file.
    pub fn begin_anew(&mut self) {
        if self.idle_rows > 0 {
            self.drop_idle();
        }
        for entry in self.actors.values_mut().flatten() {
            (entry.total, entry.has_changed) = (0, false);
        }
        (self.idle_rows, self.rows) = (self.rows, 0);
        self.has_changed = false;
    }

    /// Rows with a total above zero, actor by actor, by the bytes of the actor, then of the metric.
    pub fn by_actor(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = (&str, u128)>)> {
        self.actors.iter().map(|(actor, entries)| (&**actor, totals(entries)))
    }

    /// Rows after this actor, in whole actors: a page ends where an actor ends.
    pub fn after<'a>(&'a self, actor: Option<&str>, rows: usize) -> (Vec<UsageRow<'a>>, Option<&'a str>) {
        let start = actor.map_or(Bound::Unbounded, Bound::Excluded);
        let mut page = Vec::new();
        let mut last = None;
        for (actor, entries) in self.actors.range::<str, _>((start, Bound::Unbounded)) {
            if page.len() >= rows && totals(entries).next().is_some() {
                return (page, last);
            }
            page.extend(totals(entries).map(|(metric, quantity)| UsageRow { actor, metric, quantity }));
            last = Some(&**actor);
        }
        (page, None)
    }

    /// Rows that the log does not have, or all of them.
    pub fn to_write(&self, all: bool) -> impl Iterator<Item = UsageRow<'_>> {
        let entries = self.actors.iter().flat_map(|(actor, entries)| entries.iter().map(move |entry| (actor, entry)));
        let wanted = entries.filter(move |(_, entry)| entry.has_changed || all && entry.total > 0);
        wanted.map(|(actor, entry)| UsageRow { actor, metric: &entry.metric, quantity: entry.total })
    }

    /// The log has all rows.
    pub fn written(&mut self) {
        self.actors.values_mut().flatten().for_each(|entry| entry.has_changed = false);
        self.has_changed = false;
    }
}

fn place(entries: &[Entry], metric: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (*entry.metric).cmp(metric))
}

fn totals(entries: &[Entry]) -> impl Iterator<Item = (&str, u128)> {
    entries.iter().filter(|entry| entry.total > 0).map(|entry| (&*entry.metric, entry.total))
}
