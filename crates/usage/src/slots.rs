//! Numbers for slots: each combination of metric, group and asset is written once and then called by its number.

use std::collections::HashMap;
use std::sync::Mutex;

use ron_calculus::Slot;
use ron_calculus::totals::SLOTS_MAX;

use crate::crew::lock;
use crate::input::InputError;

/// The slots of all files, numbered in the order in which threads met them; the order is undone at the end.
#[derive(Debug, Default)]
pub struct SlotNames {
    by_key: Mutex<HashMap<Vec<u8>, u16>>,
    slots: Mutex<Vec<Slot>>,
}

/// One thread's view of the slots, which asks the shared one only for combinations it has not seen.
#[derive(Debug, Default)]
pub struct SlotCache {
    known: HashMap<Vec<u8>, u16>,
    key: Vec<u8>,
    last_key: Vec<u8>,
    last: Option<u16>,
}

impl SlotNames {
    fn number(&self, key: &[u8], slot: impl FnOnce() -> Slot) -> Result<u16, InputError> {
        let mut by_key = lock(&self.by_key);
        if let Some(number) = by_key.get(key) {
            return Ok(*number);
        }
        if by_key.len() == SLOTS_MAX {
            let most = format!("more than {SLOTS_MAX} combinations of metric, group and asset");
            return Err(InputError::TooMuch(most));
        }
        let number = by_key.len() as u16;
        by_key.insert(key.to_vec(), number);
        lock(&self.slots).push(slot());
        Ok(number)
    }

    /// The slots in canonical order, and for each number the place of its slot there.
    pub fn sorted(&self) -> (Vec<Slot>, Vec<u16>) {
        let slots = lock(&self.slots);
        let mut order: Vec<u16> = (0..slots.len() as u16).collect();
        order.sort_unstable_by_key(|number| &slots[usize::from(*number)]);
        let mut places = vec![0; slots.len()];
        for (place, number) in order.iter().enumerate() {
            places[usize::from(*number)] = place as u16;
        }
        (order.iter().map(|number| slots[usize::from(*number)].clone()).collect(), places)
    }
}

impl SlotCache {
    /// Number of a slot; neighbouring rows mostly share theirs.
    pub fn number(
        &mut self,
        names: &SlotNames,
        metric: &str,
        group: Option<&str>,
        asset: Option<&str>,
    ) -> Result<u16, InputError> {
        self.key.clear();
        for part in [Some(metric), group, asset] {
            // Names are below 2^15 bytes, so the two bytes tell "none" from every length.
            self.key.extend_from_slice(&part.map_or(u16::MAX, |part| part.len() as u16).to_le_bytes());
            self.key.extend_from_slice(part.unwrap_or_default().as_bytes());
        }
        if let Some(last) = self.last.filter(|_| self.last_key == self.key) {
            return Ok(last);
        }
        let number = match self.known.get(&self.key) {
            Some(number) => *number,
            None => {
                let slot = || Slot {
                    metric: metric.to_owned(),
                    group: group.map(str::to_owned),
                    asset: asset.map(str::to_owned),
                };
                let number = names.number(&self.key, slot)?;
                self.known.insert(self.key.clone(), number);
                number
            }
        };
        self.last_key.clone_from(&self.key);
        self.last = Some(number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_not_empty_and_numbers_are_shared() {
        let names = SlotNames::default();
        let (mut one, mut other) = (SlotCache::default(), SlotCache::default());
        let mut ask = |group, asset| one.number(&names, "m", group, asset).expect("few");
        assert_eq!([ask(None, None), ask(Some("g"), None), ask(None, Some("g")), ask(None, None)], [0, 1, 2, 0]);
        assert_eq!(other.number(&names, "m", None, Some("g")).expect("known"), 2);
        assert_eq!(other.number(&names, "a", None, None).expect("new"), 3);
        let (slots, places) = names.sorted();
        assert!(slots.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(places, [1, 3, 2, 0]);
    }

    #[test]
    fn too_many_slots_are_refused() {
        let (names, mut cache) = (SlotNames::default(), SlotCache::default());
        for index in 0..SLOTS_MAX {
            cache.number(&names, &index.to_string(), None, None).expect("below the bound");
        }
        assert!(matches!(cache.number(&names, "x", None, None), Err(InputError::TooMuch(_))));
        assert_eq!(cache.number(&names, "7", None, None).expect("known"), 7);
    }
}
