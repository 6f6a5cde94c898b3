//! What everyone did, added up: the canonical form of usage, and its hash.

use rayon::prelude::*;

/// Actors in byte order, each once, in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    text: String,
    ends: Vec<u64>,
}

impl Roster {
    /// Adds an actor that comes after all others in byte order; false, and nothing changed, if it does not.
    #[must_use]
    pub fn push(&mut self, actor: &str) -> bool {
        let is_next = self.len().checked_sub(1).is_none_or(|last| self.get(last) < actor);
        if is_next {
            self.text.push_str(actor);
            self.ends.push(self.text.len() as u64);
        }
        is_next
    }

    /// Number of actors.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no actor.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All ids one behind the other, for a search that need not look at each by itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The actor at this place; panics past the end, as a slice does.
    pub fn get(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[index] as usize]
    }

    /// Place of an actor.
    pub fn find(&self, actor: &str) -> Option<usize> {
        let place = self.place_for(actor);
        (place < self.len() && self.get(place) == actor).then_some(place)
    }

    /// Place of the first actor that does not come before this one; the length if all do.
    pub fn place_for(&self, actor: &str) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle) < actor { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// All actors in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// What a quantity counts: a metric, perhaps within a group, perhaps for one asset alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Name of the metric.
    pub metric: String,
    /// Group whose pool it counts for; none stands for the whole pool.
    pub group: Option<String>,
    /// The only asset it counts for; none stands for all.
    pub asset: Option<String>,
}

/// Most slots in one epoch: the product of metrics, groups and assets that occur.
pub const SLOTS_MAX: usize = 4096;

/// Usage added up: for each actor the totals of the slots it has rows in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    roster: Roster,
    slots: Vec<Slot>,
    /// End of each actor's entries.
    ends: Vec<u64>,
    entry_slots: Vec<u16>,
    entry_totals: Vec<u128>,
}

/// What [`Totals`] are made of, for those who produce many actors at once.
#[derive(Debug, Default)]
pub struct TotalsParts {
    /// The slots, sorted.
    pub slots: Vec<Slot>,
    /// Ids of all actors in byte order, one after the other.
    pub text: String,
    /// End of each actor's id, in bytes.
    pub actor_ends: Vec<u64>,
    /// End of each actor's entries.
    pub entry_ends: Vec<u64>,
    /// Slot of each entry.
    pub entry_slots: Vec<u16>,
    /// Total of each entry.
    pub entry_totals: Vec<u128>,
}

impl Totals {
    /// Takes over what was made elsewhere, without a copy; none if it is not in the order of [`Totals::push`].
    pub fn from_parts(parts: TotalsParts) -> Option<Totals> {
        let TotalsParts { slots, text, actor_ends, entry_ends, entry_slots, entry_totals } = parts;
        let (text_bytes, entries) = (text.len() as u64, entry_slots.len() as u64);
        let mut totals = Totals::new(slots)?;
        let is_whole = actor_ends.last().copied().unwrap_or(0) == text_bytes
            && entry_ends.last().copied().unwrap_or(0) == entries
            && actor_ends.len() == entry_ends.len()
            && entry_totals.len() == entry_slots.len();
        let is_split_well = |end: &u64| text.is_char_boundary(*end as usize);
        let is_rising = |ends: &[u64]| ends.par_windows(2).all(|pair| pair[0] <= pair[1]);
        if !is_whole || !is_rising(&actor_ends) || !is_rising(&entry_ends) || !actor_ends.par_iter().all(is_split_well)
        {
            return None;
        }
        totals.roster = Roster { text, ends: actor_ends };
        (totals.ends, totals.entry_slots, totals.entry_totals) = (entry_ends, entry_slots, entry_totals);
        let is_in_order = |actor: usize| {
            let mut last = None;
            let known = totals.entries(actor).all(|(slot, _)| {
                let rises = last.is_none_or(|last| last < slot) && usize::from(slot) < totals.slots.len();
                last = Some(slot);
                rises
            });
            known && actor.checked_sub(1).is_none_or(|before| totals.roster.get(before) < totals.roster.get(actor))
        };
        let all = (0..totals.roster.len()).into_par_iter().with_min_len(4096).all(is_in_order);
        all.then_some(totals)
    }

    /// No actors yet; the slots are sorted and each occurs once, else none.
    pub fn new(slots: Vec<Slot>) -> Option<Totals> {
        let is_sorted = slots.windows(2).all(|pair| pair[0] < pair[1]) && slots.len() <= SLOTS_MAX;
        is_sorted.then(|| Totals { slots, ..Totals::default() })
    }

    /// Adds an actor that comes after all others, with its totals by slot in the order of the slots; false, and nothing
    /// changed, if the order is broken or the slot does not exist.
    #[must_use]
    pub fn push(&mut self, actor: &str, entries: &[(u16, u128)]) -> bool {
        let in_order = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let known = entries.last().is_none_or(|(slot, _)| usize::from(*slot) < self.slots.len());
        if !in_order || !known || !self.roster.push(actor) {
            return false;
        }
        self.entry_slots.extend(entries.iter().map(|entry| entry.0));
        self.entry_totals.extend(entries.iter().map(|entry| entry.1));
        self.ends.push(self.entry_slots.len() as u64);
        true
    }

    /// The actors.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// The slots, sorted.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Totals of one actor, by slot.
    pub fn entries(&self, actor: usize) -> impl ExactSizeIterator<Item = (u16, u128)> {
        let start = actor.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        let range = start..self.ends[actor] as usize;
        let totals = &self.entry_totals[range.clone()];
        self.entry_slots[range].iter().copied().zip(totals.iter().copied())
    }

    /// Hash of the content: slots and totals in order, each part with its length, so that two files with the same rows,
    /// in any order, split or repeated in any way that adds up to the same, have the same hash.
    pub fn content_hash(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::with_capacity(1 << 16);
        put(&mut buffer, b"svc-rewarder|usage|v1");
        buffer.extend_from_slice(&(self.slots.len() as u64).to_le_bytes());
        for slot in &self.slots {
            put(&mut buffer, slot.metric.as_bytes());
            for part in [&slot.group, &slot.asset] {
                buffer.push(u8::from(part.is_some()));
                put(&mut buffer, part.as_deref().unwrap_or_default().as_bytes());
            }
        }
        for index in 0..self.roster.len() {
            put(&mut buffer, self.roster.get(index).as_bytes());
            let entries = self.entries(index);
            buffer.extend_from_slice(&(entries.len() as u64).to_le_bytes());
            for (slot, total) in entries {
                buffer.extend_from_slice(&slot.to_le_bytes());
                buffer.extend_from_slice(&total.to_le_bytes());
            }
            if buffer.len() >= 1 << 16 {
                hasher.update(&buffer);
                buffer.clear();
            }
        }
        hasher.update(&buffer).finalize()
    }
}

fn put(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    buffer.extend_from_slice(bytes);
}
