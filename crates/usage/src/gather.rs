//! Rows added up: each thread sorts its rows into partitions by a hash of the actor, and full partitions go into shared
//! tables.
//!
//! A row is copied once, in order, into its partition's buffer; the random access into a table happens for thousands of
//! rows of one small table at a time, which then is in the cache. Tables are shared, not one for each thread, so that
//! an actor is in memory once.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;

use crate::crew::lock;
use crate::groups::{Table, WARM_ROWS};
use crate::input::InputError;
use crate::limits::{ACTOR_BYTES_MAX, PARTITIONS, Plan};
use crate::slots::{SlotCache, SlotNames};
use crate::spill::Spill;

/// The totals of all rows so far.
#[derive(Debug)]
pub struct Gathering {
    /// How memory is divided.
    pub plan: Plan,
    /// The slots that occur.
    pub slots: SlotNames,
    /// Seeded anew for every reading, so that nobody can prepare ids that meet in one place.
    hasher: RandomState,
    /// One table for each partition.
    pub tables: Vec<Mutex<Table>>,
    /// Bytes of all tables.
    used_bytes: AtomicU64,
    /// Where tables go that do not fit.
    pub spill: Option<Spill>,
}

/// One thread's way of adding rows; what it holds back is added with [`RowSink::finish`].
#[derive(Debug)]
pub struct RowSink<'a> {
    gathering: &'a Gathering,
    buffers: Vec<RowBuffer>,
    slots: SlotCache,
}

/// Whoever takes rows that were checked.
pub trait Rows {
    /// Number of a slot.
    fn slot(&mut self, metric: &str, group: Option<&str>, asset: Option<&str>) -> Result<u16, InputError>;

    /// Takes a row.
    fn add(&mut self, actor: &[u8], slot: u16, quantity: u128) -> Result<(), InputError>;
}

/// Rows of one partition that were not added yet.
#[derive(Debug, Default)]
struct RowBuffer {
    rows: Vec<Row>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    low: u64,
    high: u64,
    tag: u32,
    length: u16,
    slot: u16,
}

impl Gathering {
    /// Nothing added yet.
    pub fn new(plan: Plan, spill: Option<&Path>) -> Result<Gathering, InputError> {
        let spill = spill.map(|folder| Spill::new(folder, PARTITIONS)).transpose()?;
        Ok(Gathering {
            plan,
            slots: SlotNames::default(),
            hasher: RandomState::default(),
            tables: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            used_bytes: AtomicU64::new(0),
            spill,
        })
    }

    /// Bytes of all tables.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Partition of an actor, and the part of its hash that the partition's table uses.
    pub fn place(&self, actor: &[u8]) -> (usize, u32) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(actor);
        let hash = hasher.finish();
        ((hash >> 56) as usize % PARTITIONS, (hash >> 16) as u32)
    }

    /// Adds what a thread held back for one partition.
    fn add(&self, partition: usize, buffer: &mut RowBuffer) -> Result<(), InputError> {
        let mut table = lock(&self.tables[partition]);
        let before = table.bytes();
        let mut text = buffer.text.as_slice();
        for rows in buffer.rows.chunks(WARM_ROWS) {
            table.warm(rows.iter().map(|row| row.tag));
            for row in rows {
                let (actor, rest) = text.split_at(usize::from(row.length));
                text = rest;
                let quantity = u128::from(row.high) << 64 | u128::from(row.low);
                if !table.add(row.tag, actor, row.slot, quantity) {
                    return Err(full());
                }
            }
        }
        buffer.rows.clear();
        buffer.text.clear();
        self.account(before, table.bytes());
        if self.used_bytes() <= self.plan.table_bytes {
            return Ok(());
        }
        let Some(spill) = &self.spill else {
            let needed = self.used_bytes();
            return Err(InputError::TooMuch(format!(
                "the totals need more than {needed} bytes of memory beside the buffers; raise the memory cap or give a \
                 folder for what does not fit"
            )));
        };
        // The table at hand, not the largest: it is locked already, and all grow alike because the hash spreads actors.
        spill.write(partition, table.store(), table.store().entries.iter())?;
        let held = table.bytes();
        table.clear();
        self.account(held, table.bytes());
        Ok(())
    }

    /// Takes note of a table that changed its size.
    pub fn account(&self, before: u64, after: u64) {
        // Two steps of one thread; wrapping makes a smaller table a subtraction.
        self.used_bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// A partition with more than four billion entries or bytes of text.
pub fn full() -> InputError {
    InputError::TooMuch("more actors than one reading can hold".to_owned())
}

impl<'a> RowSink<'a> {
    /// Nothing held back yet.
    pub fn new(gathering: &'a Gathering) -> RowSink<'a> {
        let buffers = (0..PARTITIONS).map(|_| RowBuffer::default()).collect();
        RowSink { gathering, buffers, slots: SlotCache::default() }
    }

    /// Adds what was held back.
    pub fn finish(mut self) -> Result<(), InputError> {
        // Threads end at the same time; starting at different partitions they do not queue for the same lock.
        let start = self.gathering.place(format!("{:?}", std::thread::current().id()).as_bytes()).0;
        for offset in 0..PARTITIONS {
            let partition = (start + offset) % PARTITIONS;
            let mut buffer = std::mem::take(&mut self.buffers[partition]);
            self.gathering.add(partition, &mut buffer)?;
        }
        Ok(())
    }
}

impl Rows for RowSink<'_> {
    fn slot(&mut self, metric: &str, group: Option<&str>, asset: Option<&str>) -> Result<u16, InputError> {
        self.slots.number(&self.gathering.slots, metric, group, asset)
    }

    #[inline]
    fn add(&mut self, actor: &[u8], slot: u16, quantity: u128) -> Result<(), InputError> {
        let (partition, tag) = self.gathering.place(actor);
        let buffer = &mut self.buffers[partition];
        if buffer.rows.len() == buffer.rows.capacity() || buffer.text.capacity() - buffer.text.len() < actor.len() {
            buffer.make_room(self.gathering, partition)?;
        }
        let (low, high) = (quantity as u64, (quantity >> 64) as u64);
        buffer.rows.push(Row { low, high, tag, length: actor.len() as u16, slot });
        buffer.text.extend_from_slice(actor);
        Ok(())
    }
}

impl RowBuffer {
    /// Grows a small buffer, hands on a large one.
    fn make_room(&mut self, gathering: &Gathering, partition: usize) -> Result<(), InputError> {
        let half = gathering.plan.row_bytes / 2;
        let (rows, text) = (half / size_of::<Row>(), half);
        if self.rows.capacity() >= rows || self.text.capacity() >= text {
            gathering.add(partition, self)?;
        }
        // Few rows need few bytes: buffers start small and reach their size in a few steps.
        if self.rows.len() == self.rows.capacity() {
            self.rows.reserve_exact((self.rows.len() * 3).clamp(32, rows.max(32)));
        }
        if self.text.capacity() - self.text.len() < ACTOR_BYTES_MAX {
            self.text.reserve_exact((self.text.len() * 3).clamp(ACTOR_BYTES_MAX, text.max(ACTOR_BYTES_MAX)));
        }
        Ok(())
    }
}
