//! From tables to [`Totals`]: actors are divided into ranges of their bytes, each range is sorted, and every thread
//! writes its ranges to their final place.
//!
//! A partition is a random sample of all actors, because a hash chose it: the actors of one partition tell where to cut
//! the ranges so that they are about equal. What does not fit beside the result is written to disk range by range.

mod ranges;

use std::path::Path;
use std::sync::Mutex;

use ron_calculus::totals::TotalsParts;
use ron_calculus::{Slot, Totals};

use crate::crew::{each, lock};
use crate::gather::{Gathering, full};
use crate::groups::{Entry, Overflow, Store, Table};
use crate::input::InputError;
use crate::limits::PARTITIONS;
use crate::spill::Spill;
use ranges::{Cuts, RangeOut, SortedRange};

/// Actors in a range that sorts well within a cache.
const RANGE_ACTORS: usize = 8192;
/// Most ranges in memory.
const RANGES_MAX: usize = 1024;
/// Most ranges on disk: each is written by every partition, and pieces should not get too small.
const RANGES_SPILLED_MAX: usize = 256;

/// What a range will take in the result.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    actors: usize,
    entries: usize,
    text_bytes: usize,
}

/// Entries of one range in memory: partition in the upper half, number of the entry in the lower.
#[derive(Debug, Default)]
struct InMemory {
    size: Size,
    places: Vec<u64>,
}

impl Size {
    fn of(store: &Store) -> Size {
        let actors = store.entries.iter().filter(|entry| entry.is_first()).count();
        Size { actors, entries: store.entries.len(), text_bytes: store.text.len() }
    }

    fn add(&mut self, entry: &Entry, actor: &[u8]) {
        self.entries += 1;
        if entry.is_first() {
            self.actors += 1;
            self.text_bytes += actor.len();
        }
    }

    fn plus(self, other: Size) -> Size {
        Size {
            actors: self.actors + other.actors,
            entries: self.entries + other.entries,
            text_bytes: self.text_bytes + other.text_bytes,
        }
    }

    /// Bytes of the result.
    fn bytes(self) -> u64 {
        (self.text_bytes + self.actors * 16 + self.entries * 18) as u64
    }
}

/// Makes totals of all that was gathered; also says how many bytes went to the spill folder.
pub fn finish(gathering: Gathering, folder: Option<&Path>) -> Result<(Totals, u64), InputError> {
    let (slots, slot_places) = gathering.slots.sorted();
    let size = gathering.tables.iter().map(|table| Size::of(lock(table).store())).fold(Size::default(), Size::plus);
    let stores_bytes: u64 = gathering.tables.iter().map(|table| lock(table).store().bytes()).sum();
    let needed = stores_bytes + size.entries as u64 * 16 + size.bytes();
    let fits = needed <= gathering.plan.finish_bytes && !gathering.spill.as_ref().is_some_and(Spill::is_used);
    if fits {
        let totals = in_memory(gathering, slots, &slot_places)?;
        return Ok((totals, 0));
    }
    match folder {
        Some(folder) => on_disk(gathering, folder, slots, &slot_places),
        None => Err(InputError::TooMuch(format!(
            "the totals need {needed} bytes of memory and may take {}; raise the memory cap or give a folder for what \
             does not fit",
            gathering.plan.finish_bytes
        ))),
    }
}

fn in_memory(gathering: Gathering, slots: Vec<Slot>, slot_places: &[u16]) -> Result<Totals, InputError> {
    let threads = gathering.plan.threads;
    let tables: Vec<Table> = gathering
        .tables
        .into_iter()
        .map(|table| table.into_inner().unwrap_or_else(|error| error.into_inner()))
        .collect();
    check_overflow(tables.iter().filter_map(Table::overflow), &slots, slot_places)?;
    let stores: Vec<Store> = tables.into_iter().map(Table::into_store).collect();
    let entries: usize = stores.iter().map(|store| store.entries.len()).sum();
    let sample = stores.iter().max_by_key(|store| store.entries.len());
    let cuts = sample.map_or_else(Cuts::default, |sample| Cuts::of(sample, (entries / RANGE_ACTORS).min(RANGES_MAX)));
    let ranges: Vec<Mutex<InMemory>> = (0..cuts.ranges()).map(|_| Mutex::default()).collect();
    each(threads, stores.iter().enumerate(), |(partition, store)| {
        for (range, numbers, size) in cuts.divide(store) {
            let mut range = lock(&ranges[range]);
            range.size = range.size.plus(size);
            range.places.extend(numbers.iter().map(|number| (partition as u64) << 32 | u64::from(*number)));
        }
        Ok(())
    })?;
    let sizes: Vec<Size> = ranges.iter().map(|range| lock(range).size).collect();
    let stores = stores.as_slice();
    build(slots, slot_places, threads, &sizes, |range, out| {
        let places = std::mem::take(&mut lock(&ranges[range]).places);
        let entry = |place: u64| {
            let store = &stores[(place >> 32) as usize];
            (store, &store.entries[place as u32 as usize])
        };
        SortedRange::new(places.into_iter().map(entry).collect(), slot_places).write(out);
        Ok(())
    })
}

fn on_disk(
    gathering: Gathering,
    folder: &Path,
    slots: Vec<Slot>,
    slot_places: &[u16],
) -> Result<(Totals, u64), InputError> {
    let (threads, spilled) = (gathering.plan.threads, gathering.spill.as_ref());
    let overflows: Mutex<Vec<Overflow>> = Mutex::default();
    // The whole of a partition: what was spilled of it, and what is still in memory.
    let whole = |partition: usize| -> Result<Store, InputError> {
        let mut table = std::mem::take(&mut *lock(&gathering.tables[partition]));
        if let Some(spill) = spilled {
            spill.read(partition, |record| {
                let (_, tag) = gathering.place(record.actor);
                if table.add(tag, record.actor, record.slot, record.total) { Ok(()) } else { Err(full()) }
            })?;
        }
        lock(&overflows).extend(table.overflow().cloned());
        Ok(table.into_store())
    };
    let first = whole(0)?;
    let cuts = Cuts::of(&first, (first.entries.len() * PARTITIONS / RANGE_ACTORS).min(RANGES_SPILLED_MAX));
    let by_range = Spill::new(folder, cuts.ranges())?;
    let sizes: Vec<Mutex<Size>> = (0..cuts.ranges()).map(|_| Mutex::default()).collect();
    let write = |store: Store| -> Result<(), InputError> {
        for (range, numbers, size) in cuts.divide(&store) {
            let mut total = lock(&sizes[range]);
            *total = total.plus(size);
            drop(total);
            by_range.write(range, &store, numbers.iter().map(|number| &store.entries[*number as usize]))?;
        }
        Ok(())
    };
    write(first)?;
    each(threads, 1..PARTITIONS, |partition| write(whole(partition)?))?;
    check_overflow(lock(&overflows).iter(), &slots, slot_places)?;
    let sizes: Vec<Size> = sizes.iter().map(|size| *lock(size)).collect();
    let result = sizes.iter().fold(Size::default(), |sum, size| sum.plus(*size));
    if result.bytes() > gathering.plan.finish_bytes {
        let (needed, most) = (result.bytes(), gathering.plan.finish_bytes);
        return Err(InputError::TooMuch(format!(
            "the result alone needs {needed} bytes of memory and may take {most}"
        )));
    }
    let totals = build(slots, slot_places, threads, &sizes, |range, out| {
        let mut store = Store::default();
        by_range.read(range, |record| {
            if store.push(record.actor, record.slot, record.total, record.is_first) { Ok(()) } else { Err(full()) }
        })?;
        SortedRange::new(store.entries.iter().map(|entry| (&store, entry)).collect(), slot_places).write(out);
        Ok(())
    })?;
    Ok((totals, by_range.bytes() + spilled.map_or(0, Spill::bytes)))
}

/// Reserves the result and lets threads fill it, range by range.
fn build(
    slots: Vec<Slot>,
    slot_places: &[u16],
    threads: usize,
    sizes: &[Size],
    fill: impl Fn(usize, RangeOut<'_>) -> Result<(), InputError> + Sync,
) -> Result<Totals, InputError> {
    debug_assert_eq!(slots.len(), slot_places.len());
    let all = sizes.iter().fold(Size::default(), |sum, size| sum.plus(*size));
    let mut text = vec![0_u8; all.text_bytes];
    let (mut actor_ends, mut entry_ends) = (vec![0_u64; all.actors], vec![0_u64; all.actors]);
    let (mut entry_slots, mut entry_totals) = (vec![0_u16; all.entries], vec![0_u128; all.entries]);
    let mut whole = RangeOut {
        text: &mut text,
        actor_ends: &mut actor_ends,
        entry_ends: &mut entry_ends,
        entry_slots: &mut entry_slots,
        entry_totals: &mut entry_totals,
        text_start: 0,
        entry_start: 0,
    };
    let mut outs = Vec::with_capacity(sizes.len());
    for size in sizes {
        let (out, rest) = whole.split_at(*size);
        outs.push(out);
        whole = rest;
    }
    each(threads, outs.into_iter().enumerate(), |(range, out)| fill(range, out))?;
    let text = String::from_utf8(text).map_err(|_| broken())?;
    Totals::from_parts(TotalsParts { slots, text, actor_ends, entry_ends, entry_slots, entry_totals })
        .ok_or_else(broken)
}

/// Every id was checked when it was read, and ranges are in order: only damage on disk or in memory leads here.
fn broken() -> InputError {
    InputError::Io { file: "the totals".to_owned(), source: std::io::ErrorKind::InvalidData.into() }
}

/// The first total in canonical order that left 128 bits.
fn check_overflow<'a>(
    overflows: impl Iterator<Item = &'a Overflow>,
    slots: &[Slot],
    slot_places: &[u16],
) -> Result<(), InputError> {
    let Some(least) = overflows.min_by(|a, b| a.actor.cmp(&b.actor)) else { return Ok(()) };
    let place = least.slots.iter().map(|slot| slot_places[usize::from(*slot)]).min().unwrap_or_default();
    let metric = slots.get(usize::from(place)).map_or_else(String::new, |slot| slot.metric.clone());
    Err(InputError::Overflow { actor: String::from_utf8_lossy(&least.actor).into_owned(), metric })
}
