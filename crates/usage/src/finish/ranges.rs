//! Ranges of actors by their bytes: where to cut, which entry belongs where, and one range in order.

use super::Size;
use crate::groups::{Entry, Store};

/// Where one range ends and the next begins.
#[derive(Debug, Default)]
pub struct Cuts {
    /// What all cuts begin with: ids mostly share their first bytes, which would tell nothing apart.
    prefix: Vec<u8>,
    /// The eight bytes after the prefix, of each cut.
    keys: Vec<u64>,
    /// First actor of each range but the first.
    actors: Vec<Vec<u8>>,
}

/// Entries of one range in canonical order.
#[derive(Debug)]
pub struct SortedRange<'a> {
    entries: Vec<(&'a Store, &'a Entry)>,
    slot_places: &'a [u16],
}

/// The place of one range in the result.
#[derive(Debug)]
pub struct RangeOut<'a> {
    /// Ids of the actors.
    pub text: &'a mut [u8],
    /// End of each actor's id.
    pub actor_ends: &'a mut [u64],
    /// End of each actor's entries.
    pub entry_ends: &'a mut [u64],
    /// Slot of each entry.
    pub entry_slots: &'a mut [u16],
    /// Total of each entry.
    pub entry_totals: &'a mut [u128],
    /// Bytes of text before the range.
    pub text_start: u64,
    /// Entries before the range.
    pub entry_start: u64,
}

impl<'a> RangeOut<'a> {
    /// Cuts off the place of the first range.
    pub fn split_at(self, size: Size) -> (RangeOut<'a>, RangeOut<'a>) {
        let (text, text_rest) = self.text.split_at_mut(size.text_bytes);
        let (actor_ends, actor_ends_rest) = self.actor_ends.split_at_mut(size.actors);
        let (entry_ends, entry_ends_rest) = self.entry_ends.split_at_mut(size.actors);
        let (entry_slots, entry_slots_rest) = self.entry_slots.split_at_mut(size.entries);
        let (entry_totals, entry_totals_rest) = self.entry_totals.split_at_mut(size.entries);
        let (text_start, entry_start) = (self.text_start, self.entry_start);
        let rest = RangeOut {
            text: text_rest,
            actor_ends: actor_ends_rest,
            entry_ends: entry_ends_rest,
            entry_slots: entry_slots_rest,
            entry_totals: entry_totals_rest,
            text_start: text_start + size.text_bytes as u64,
            entry_start: entry_start + size.entries as u64,
        };
        (RangeOut { text, actor_ends, entry_ends, entry_slots, entry_totals, text_start, entry_start }, rest)
    }
}

impl Cuts {
    /// Cuts that divide the actors of a sample evenly.
    pub fn of(sample: &Store, ranges: usize) -> Cuts {
        let firsts = sample.entries.iter().filter(|entry| entry.is_first());
        let mut actors: Vec<&[u8]> = firsts.map(|entry| sample.actor(entry)).collect();
        // A range needs some actors of the sample, else chance makes ranges uneven.
        let ranges = ranges.min(actors.len() / 16).max(1);
        actors.sort_unstable();
        let mut cuts: Vec<Vec<u8>> = (1..ranges).map(|range| actors[range * actors.len() / ranges].to_vec()).collect();
        cuts.dedup();
        let shared = match (cuts.first(), cuts.last()) {
            (Some(first), Some(last)) => shared_bytes(first, last),
            _ => 0,
        };
        let prefix = cuts.first().map_or_else(Vec::new, |first| first[..shared].to_vec());
        let keys = cuts.iter().map(|cut| key(cut, shared)).collect();
        Cuts { prefix, keys, actors: cuts }
    }

    /// Number of ranges.
    pub fn ranges(&self) -> usize {
        self.actors.len() + 1
    }

    /// Range of an actor: how many cuts are not above it.
    fn range(&self, actor: &[u8]) -> usize {
        if !actor.starts_with(&self.prefix) {
            return if actor < self.prefix.as_slice() { 0 } else { self.actors.len() };
        }
        let key = key(actor, self.prefix.len());
        let from = self.keys.partition_point(|cut| *cut < key);
        if self.keys.get(from) != Some(&key) {
            return from;
        }
        let to = self.keys.partition_point(|cut| *cut <= key);
        from + self.actors[from..to].partition_point(|cut| cut.as_slice() <= actor)
    }

    /// Numbers of a store's entries by range, and what each range will take.
    pub fn divide(&self, store: &Store) -> Vec<(usize, Vec<u32>, Size)> {
        let mut sizes = vec![Size::default(); self.ranges()];
        let range_of = |entry: &Entry| {
            let actor = store.actor(entry);
            let range = self.range(actor);
            sizes[range].add(entry, actor);
            range as u16
        };
        let ranges: Vec<u16> = store.entries.iter().map(range_of).collect();
        let mut parts: Vec<(usize, Vec<u32>, Size)> =
            sizes.iter().enumerate().map(|(range, size)| (range, Vec::with_capacity(size.entries), *size)).collect();
        for (number, range) in ranges.iter().enumerate() {
            parts[usize::from(*range)].1.push(number as u32);
        }
        parts.retain(|part| !part.1.is_empty());
        parts
    }
}

impl<'a> SortedRange<'a> {
    /// Sorts by actor, then by slot.
    pub fn new(entries: Vec<(&'a Store, &'a Entry)>, slot_places: &'a [u16]) -> SortedRange<'a> {
        let actor = |(store, entry): (&'a Store, &'a Entry)| store.actor(entry);
        let mut shared = usize::MAX;
        if let Some(first) = entries.first().map(|entry| actor(*entry)) {
            shared = entries.iter().fold(first.len(), |shared, entry| shared.min(shared_bytes(first, actor(*entry))));
        }
        // Comparing eight bytes as a number settles nearly all pairs without a look at the text.
        let mut keyed: Vec<(u64, (&Store, &Entry))> =
            entries.into_iter().map(|entry| (key(actor(entry), shared), entry)).collect();
        let place = |entry: &Entry| slot_places[usize::from(entry.slot)];
        keyed.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| actor(a.1).cmp(actor(b.1))).then_with(|| place(a.1.1).cmp(&place(b.1.1)))
        });
        SortedRange { entries: keyed.into_iter().map(|(_, entry)| entry).collect(), slot_places }
    }

    /// Writes the range to its place.
    pub fn write(self, out: RangeOut<'_>) {
        let (mut text_end, mut actors) = (0, 0);
        let mut last: Option<&[u8]> = None;
        for (number, (store, entry)) in self.entries.iter().enumerate() {
            let actor = store.actor(entry);
            if last != Some(actor) {
                out.text[text_end..text_end + actor.len()].copy_from_slice(actor);
                text_end += actor.len();
                out.actor_ends[actors] = out.text_start + text_end as u64;
                actors += 1;
                last = Some(actor);
            }
            out.entry_slots[number] = self.slot_places[usize::from(entry.slot)];
            out.entry_totals[number] = entry.total();
            out.entry_ends[actors - 1] = out.entry_start + number as u64 + 1;
        }
    }
}

/// Bytes that both begin with.
fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Eight bytes of an id as a number that orders as they do; zeros stand for what is past its end.
fn key(actor: &[u8], skip: usize) -> u64 {
    let rest = actor.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other_for_any_ids() {
        let ids =
            ["", "a", "a\0", "a\0\0", "ab", "b", "prefix-", "prefix-1", "prefix-12345678", "prefix-123456789", "z"];
        let mut store = Store::default();
        for index in 0..400_u32 {
            let id = format!("prefix-{}", index % 97 * 7919);
            assert!(store.push(id.as_bytes(), 0, 1, true));
        }
        for id in ids {
            assert!(store.push(id.as_bytes(), 0, 1, true));
        }
        let cuts = Cuts::of(&store, 10);
        assert!(cuts.ranges() > 5, "{cuts:?}");
        let mut actors: Vec<&[u8]> = store.entries.iter().map(|entry| store.actor(entry)).collect();
        actors.sort_unstable();
        for actor in &actors {
            let expected = cuts.actors.iter().filter(|cut| cut.as_slice() <= *actor).count();
            assert_eq!(cuts.range(actor), expected, "{actor:?}");
        }
        let parts = cuts.divide(&store);
        assert_eq!(parts.iter().map(|part| part.2.entries).sum::<usize>(), store.entries.len());
        assert_eq!(parts.iter().map(|part| part.1.len()).sum::<usize>(), store.entries.len());
    }

    #[test]
    fn keys_order_as_the_bytes_do() {
        for (a, b) in [("a", "b"), ("ab", "b"), ("", "a"), ("aaaaaaaa", "aaaaaaab"), ("\u{e9}", "\u{fc}")] {
            assert!(key(a.as_bytes(), 0) < key(b.as_bytes(), 0), "{a} {b}");
        }
        assert_eq!(key(b"xxab", 2), key(b"ab", 0));
        assert_eq!(key(b"ab", 7), 0);
    }
}
