//! Names with their owners and signed records, and what a liar makes of them.

use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use ron_lookup::{Millis, Position};
use ron_store::{ContentId, NameRecord, PublicKey, Record, Signer, TTL_MAX_MS};

use crate::rng::Rng;

/// A key made from a seed, so that a run can be repeated.
struct Owner(Ed25519KeyPair);

impl Owner {
    fn new(rng: &mut Rng) -> Self {
        let mut seed = [0; 32];
        seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.draw().to_be_bytes()));
        Owner(Ed25519KeyPair::from_seed_unchecked(&seed).unwrap_or_else(|_| unreachable!("32 bytes are a seed")))
    }

    fn record(&self, label: &str, value: &str, sequence: u64, issued_ms: Millis, ttl_ms: Millis) -> NameRecord {
        let value = ContentId::of_bytes(value.as_bytes());
        let record = NameRecord::sign(label, value, sequence, issued_ms, issued_ms + ttl_ms, self);
        record.unwrap_or_else(|error| unreachable!("within all bounds: {error}"))
    }
}

impl Signer for Owner {
    fn public_key(&self) -> PublicKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(key)
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.0.sign(bytes).as_ref());
        signature
    }
}

/// A name in the network.
#[derive(Clone, Debug)]
pub struct Title {
    /// Position in the key space.
    pub key: Position,
    /// The record that should be found.
    pub newest: Arc<Record>,
    /// A record with a lower sequence that is still valid: all that a liar who forges nothing can show.
    pub older: Arc<Record>,
    /// Records that must never be believed.
    pub forged: Vec<Arc<Record>>,
}

impl Title {
    pub(super) fn new(number: usize, now_ms: Millis, rng: &mut Rng) -> Self {
        let (owner, liar) = (Owner::new(rng), Owner::new(rng));
        let label = format!("title-{number}");
        let newest = owner.record(&label, "newest", 7, now_ms, TTL_MAX_MS);
        let tampered = NameRecord { value: ContentId::of_bytes(b"lie"), sequence: 8, ..newest.clone() };
        let longer = NameRecord { expires_ms: newest.expires_ms - 1, sequence: u64::MAX, ..newest.clone() };
        let signed_by_another =
            NameRecord { owner: owner.public_key(), ..liar.record(&label, "lie", 9, now_ms, TTL_MAX_MS) };
        let of_another_name = liar.record(&label, "lie", 10, now_ms, TTL_MAX_MS);
        let expired = owner.record(&label, "expired", 11, now_ms - 10_000, 5_000);
        let from_the_future = owner.record(&label, "future", 12, now_ms + 48 * 3_600_000, 60_000);
        let forged = [tampered, longer, signed_by_another, of_another_name, expired, from_the_future];
        let older = owner.record(&label, "older", 6, now_ms - 1_000, TTL_MAX_MS);
        let shared = |record| Arc::new(Record::Name(record));
        Title { key: newest.key().0, newest: shared(newest), older: shared(older), forged: forged.map(shared).to_vec() }
    }
}
