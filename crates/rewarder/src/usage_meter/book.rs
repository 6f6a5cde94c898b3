//! What was done for whom since the last seal, in the order of the file it will be sealed as.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use ron_kernel::meter::{OTHER, ROWS_MAX};

use super::file;

/// Maximum bytes of a usage file. One record of the log holds it, and a segment holds that record.
pub const FILE_BYTES_MAX: u64 = 11 << 20;

/// Totals by actor and metric.
///
/// A seal sets totals to zero and leaves the rows: mostly the same tenants come back, and a book that is made anew
/// with each epoch takes ten times as long to fill and to drop. A row that stays at zero from one seal to the next
/// goes.
#[derive(Debug)]
pub struct Book {
    /// Actors by the bytes of their names, but for those that came since the order was last needed: they are at the
    /// end.
    actors: Vec<Actor>,
    /// Actors at the beginning that are in order.
    sorted: usize,
    /// Places of actors by their names. A tree would be in order by itself, and take ten times as long to look up a
    /// name in: each comparison on the way reads another piece of memory.
    places: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Names of metrics, each once: rows of all actors share them.
    metrics: Vec<Arc<str>>,
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
struct Actor {
    name: Box<str>,
    /// Sorted by metric: there are a handful for each service.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    metric: Arc<str>,
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
        Book {
            actors: Vec::new(),
            sorted: 0,
            places: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            metrics: Vec::new(),
            rows: 0,
            idle_rows: 0,
            rows_max,
            file_bytes: file::HEADER.len() as u64,
            has_changed: false,
        }
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
        let found = self.find(actor, metric).or_else(|| self.make(actor, metric));
        let found = found.or_else(|| self.find(OTHER, metric)).or_else(|| self.make(OTHER, metric));
        let (place, at) = found.expect("others always have room");
        let entry = &mut self.actors[place].entries[at];
        let was_idle = entry.total == 0;
        change(entry);
        if was_idle && entry.total > 0 {
            self.rows += 1;
            self.idle_rows -= 1;
        }
    }

    fn place_of(&self, actor: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(actor);
        self.places.find(hash, |place| *self.actors[*place as usize].name == *actor).map(|place| *place as usize)
    }

    fn find(&self, actor: &str, metric: &str) -> Option<(usize, usize)> {
        let place = self.place_of(actor)?;
        Some((place, at(&self.actors[place].entries, metric).ok()?))
    }

    /// Makes an idle row, if the bounds allow it; idle rows of others go first.
    fn make(&mut self, actor: &str, metric: &str) -> Option<(usize, usize)> {
        let bytes = file::row_bytes_max(actor, metric);
        let is_full =
            |book: &Book| book.rows + book.idle_rows >= book.rows_max || book.file_bytes + bytes > FILE_BYTES_MAX;
        if is_full(self) && self.idle_rows > 0 {
            self.drop_idle();
        }
        if is_full(self) && actor != OTHER {
            return None;
        }
        let place = self.place_of(actor).unwrap_or_else(|| self.enter(actor));
        let metric = self.shared(metric);
        let entries = &mut self.actors[place].entries;
        let at = at(entries, &metric).unwrap_or_else(|at| at);
        entries.insert(at, Entry { metric, total: 0, has_changed: false });
        self.idle_rows += 1;
        self.file_bytes += bytes;
        Some((place, at))
    }

    /// Adds an actor without rows.
    fn enter(&mut self, actor: &str) -> usize {
        let place = self.actors.len();
        // Who comes last in order, as when a log in order is read, leaves the order as it is.
        let is_next = self.sorted == place && self.actors.last().is_none_or(|last| *last.name < *actor);
        self.sorted += usize::from(is_next);
        self.actors.push(Actor { name: actor.into(), entries: Vec::new() });
        let place_of = u32::try_from(place).expect("rows are bounded far below");
        let Book { actors, hasher, places, .. } = self;
        let name_hash = |place: &u32| hasher.hash_one(&*actors[*place as usize].name);
        places.insert_unique(hasher.hash_one(actor), place_of, name_hash);
        place
    }

    fn shared(&mut self, metric: &str) -> Arc<str> {
        let known = self.metrics.iter().find(|known| ***known == *metric).cloned();
        known.unwrap_or_else(|| {
            let shared: Arc<str> = metric.into();
            self.metrics.push(Arc::clone(&shared));
            shared
        })
    }

    fn drop_idle(&mut self) {
        let mut bytes = 0;
        self.actors.retain_mut(|actor| {
            actor.entries.retain(|entry| {
                bytes += if entry.total == 0 { file::row_bytes_max(&actor.name, &entry.metric) } else { 0 };
                entry.total > 0
            });
            !actor.entries.is_empty()
        });
        self.file_bytes -= bytes;
        self.idle_rows = 0;
        self.sorted = 0;
        self.put_in_order();
        self.metrics.retain(|metric| Arc::strong_count(metric) > 1);
    }

    /// Puts the actors in order, if some are not.
    pub fn put_in_order(&mut self) {
        if self.sorted < self.actors.len() || self.places.len() != self.actors.len() {
            self.actors.sort_by(|one, other| one.name.cmp(&other.name));
            self.sorted = self.actors.len();
            self.places.clear();
            let Book { actors, hasher, places, .. } = self;
            for (place, actor) in actors.iter().enumerate() {
                let place = u32::try_from(place).expect("rows are bounded far below");
                let name_hash = |place: &u32| hasher.hash_one(&*actors[*place as usize].name);
                places.insert_unique(hasher.hash_one(&*actor.name), place, name_hash);
            }
        }
    }

    /// Begins at zero again: all rows are in a file.
    pub fn begin_anew(&mut self) {
        if self.idle_rows > 0 {
            self.drop_idle();
        }
        for entry in self.actors.iter_mut().flat_map(|actor| &mut actor.entries) {
            (entry.total, entry.has_changed) = (0, false);
        }
        (self.idle_rows, self.rows) = (self.rows, 0);
        self.has_changed = false;
    }

    /// Begins the rows of one actor, or of all, at zero again.
    pub fn begin_anew_for(&mut self, actor: Option<&str>) {
        match actor {
            Some(actor) => self.begin_anew_of(actor),
            None => self.begin_anew(),
        }
    }

    fn begin_anew_of(&mut self, actor: &str) {
        let Some(place) = self.place_of(actor) else { return };
        for entry in &mut self.actors[place].entries {
            if entry.total > 0 {
                self.rows -= 1;
                self.idle_rows += 1;
            }
            (entry.total, entry.has_changed) = (0, false);
        }
    }

    /// Totals of one actor above zero, by metric.
    pub fn totals_of(&self, actor: &str) -> Vec<(&str, u128)> {
        self.place_of(actor).map_or_else(Vec::new, |place| totals(&self.actors[place].entries).collect())
    }

    /// Rows with a total above zero, actor by actor, by the bytes of the actor, then of the metric.
    pub fn by_actor(&mut self) -> impl Iterator<Item = (&str, impl Iterator<Item = (&str, u128)>)> {
        self.put_in_order();
        self.actors.iter().map(|actor| (&*actor.name, totals(&actor.entries)))
    }

    /// Rows after this actor, in whole actors: a page ends where an actor ends.
    pub fn after<'a>(&'a mut self, actor: Option<&str>, rows: usize) -> (Vec<UsageRow<'a>>, Option<&'a str>) {
        self.put_in_order();
        let start = actor.map_or(0, |actor| self.actors.partition_point(|one| *one.name <= *actor));
        let mut page = Vec::new();
        let mut last = None;
        for Actor { name, entries } in &self.actors[start..] {
            if page.len() >= rows && totals(entries).next().is_some() {
                return (page, last);
            }
            page.extend(totals(entries).map(|(metric, quantity)| UsageRow { actor: name, metric, quantity }));
            last = Some(&**name);
        }
        (page, None)
    }

    /// Rows that the log does not have, or all of them.
    pub fn to_write(&self, all: bool) -> impl Iterator<Item = UsageRow<'_>> {
        let entries = self.actors.iter().flat_map(|actor| actor.entries.iter().map(move |entry| (actor, entry)));
        let wanted = entries.filter(move |(_, entry)| entry.has_changed || all && entry.total > 0);
        wanted.map(|(actor, entry)| UsageRow { actor: &actor.name, metric: &entry.metric, quantity: entry.total })
    }

    /// The log has all rows.
    pub fn written(&mut self) {
        self.actors.iter_mut().flat_map(|actor| &mut actor.entries).for_each(|entry| entry.has_changed = false);
        self.has_changed = false;
    }
}

fn at(entries: &[Entry], metric: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (*entry.metric).cmp(metric))
}

fn totals(entries: &[Entry]) -> impl Iterator<Item = (&str, u128)> {
    entries.iter().filter(|entry| entry.total > 0).map(|entry| (&*entry.metric, entry.total))
}
