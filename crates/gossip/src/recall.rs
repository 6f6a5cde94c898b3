//! Where forgotten origins had got to: two generations, bounded by count and by age.

use hashbrown::HashMap;

use crate::names::{Micros, Origin};

/// An origin in a lane, the lane by its flow.
type Place = (u64, Origin);

/// How far an origin had got when it was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) epoch: u64,
    pub(crate) next: u64,
}

/// Two generations of what was forgotten. One entry stands for all messages of an origin, so the second copy of an old
/// message is known as such without a list of ids.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    young: HashMap<Place, Reached>,
    old: HashMap<Place, Reached>,
    turned_at: Micros,
}

/// Bytes of memory of one entry: the tables are at most half empty, and grow by doubling.
pub(crate) const RECALL_ENTRY_BYTES: usize = 2 * (std::mem::size_of::<(Place, Reached)>() + 1);

impl Recall {
    /// Remembers an origin. When the younger generation is full or old enough, it becomes the older one.
    pub(crate) fn remember(&mut self, now: Micros, place: Place, reached: Reached, max: usize, age: Micros) {
        if self.young.len() >= max || now.saturating_sub(self.turned_at) >= age {
            self.old = std::mem::take(&mut self.young);
            self.turned_at = now;
        }
        self.young.insert(place, reached);
    }

    /// What is remembered of an origin.
    pub(crate) fn recall(&self, place: &Place) -> Option<Reached> {
        self.young.get(place).or_else(|| self.old.get(place)).copied()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.young.capacity() + self.old.capacity()) * RECALL_ENTRY_BYTES / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u8) -> Place {
        (1, Origin([number; 32]))
    }

    #[test]
    fn bounded_by_count() {
        let mut recall = Recall::default();
        for number in 0..100 {
            recall.remember(0, place(number), Reached { epoch: 1, next: u64::from(number) }, 10, 1000);
        }
        assert_eq!((recall.young.len(), recall.old.len()), (10, 10));
        assert_eq!(recall.recall(&place(99)), Some(Reached { epoch: 1, next: 99 }));
        assert_eq!(recall.recall(&place(80)), Some(Reached { epoch: 1, next: 80 }));
        assert_eq!(recall.recall(&place(79)), None);
    }

    #[test]
    fn bounded_by_age() {
        let mut recall = Recall::default();
        let reached = Reached { epoch: 1, next: 5 };
        recall.remember(1000, place(0), reached, 10, 1000);
        recall.remember(1999, place(1), reached, 10, 1000);
        assert!(recall.recall(&place(0)).is_some() && recall.recall(&place(1)).is_some());
        recall.remember(2000, place(2), reached, 10, 1000);
        recall.remember(3000, place(3), reached, 10, 1000);
        assert_eq!(recall.recall(&place(1)), None, "two ages later");
        assert!(recall.recall(&place(2)).is_some());
    }

    #[test]
    fn the_newest_word_counts() {
        let mut recall = Recall::default();
        recall.remember(0, place(0), Reached { epoch: 1, next: 5 }, 1, 1000);
        recall.remember(0, place(1), Reached { epoch: 1, next: 5 }, 1, 1000);
        recall.remember(0, place(0), Reached { epoch: 2, next: 3 }, 1, 1000);
        assert_eq!(recall.recall(&place(0)), Some(Reached { epoch: 2, next: 3 }));
    }
}
