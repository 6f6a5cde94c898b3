//! Ids of the content that was asked for lately: routers of other networks want the id, which a key does not tell.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ron_store::{ContentId, Key};

/// Ids of one generation; the older of two is forgotten when the younger is full.
const GENERATION_MAX: usize = 4096;

/// Ids by their keys, the last few thousand.
#[derive(Default)]
pub(crate) struct Contents(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<Key, ContentId>,
    old: HashMap<Key, ContentId>,
}

impl Contents {
    /// Remembers that this content was asked for.
    pub fn note(&self, content: ContentId) {
        let mut known = self.lock();
        if known.young.len() >= GENERATION_MAX {
            known.old = std::mem::take(&mut known.young);
        }
        known.young.insert(content.key(), content);
    }

    /// Content at a key that was asked for lately. Ids that differ in their codec alone are the same to a router.
    pub fn at(&self, key: &Key) -> Option<ContentId> {
        let known = self.lock();
        known.young.get(key).or_else(|| known.old.get(key)).copied()
    }

    /// Forgets them all.
    pub fn clear(&self) {
        *self.lock() = Generations::default();
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_are_known_and_the_first_forgotten() {
        let (contents, id) = (Contents::default(), |number: usize| ContentId::of_bytes(&number.to_be_bytes()));
        for number in 0..=2 * GENERATION_MAX {
            contents.note(id(number));
        }
        assert_eq!(contents.at(&id(2 * GENERATION_MAX).key()), Some(id(2 * GENERATION_MAX)));
        assert_eq!(contents.at(&id(GENERATION_MAX).key()), Some(id(GENERATION_MAX)));
        assert_eq!(contents.at(&id(0).key()), None);
        contents.clear();
        assert_eq!(contents.at(&id(2 * GENERATION_MAX).key()), None);
    }
}
