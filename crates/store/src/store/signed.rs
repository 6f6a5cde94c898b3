//! Which records were verified since they were read from the disk: a signature costs fifty microseconds, a hash half of
//! one.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Record;

/// Digests that are remembered. A record whose place another took is verified again.
const PLACES: usize = 1 << 16;

/// Digests of records whose signatures hold, each at the place that its lowest bits say. The hash is secret: nobody can
/// make a record that is taken for another.
#[derive(Default)]
pub(super) struct Signed {
    hasher: RandomState,
    /// Made when the first record is verified.
    places: OnceLock<Box<[AtomicU64]>>,
}

impl Signed {
    /// Whether the signature of a record holds.
    pub(super) fn holds(&self, record: &Record) -> bool {
        // Zero is an empty place.
        let digest = self.hasher.hash_one(record.encode()).max(1);
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU64::new(0)).collect());
        let place = &places[digest as usize % PLACES];
        // A digest stands for itself alone, so that nothing else has to be seen together with it.
        if place.load(Ordering::Relaxed) == digest {
            return true;
        }
        let holds = record.is_signed();
        if holds {
            place.store(digest, Ordering::Relaxed);
        }
        holds
    }
}
