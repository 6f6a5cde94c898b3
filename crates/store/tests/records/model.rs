//! The store against a naive model of it: the same answers after any changes, expiries and restarts.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use ron_store::{
    Applied, Bounds, CLOCK_SKEW_MS, Change, ContentId, Key, Multiaddr, NameRecord, PeerRecord, ProviderRecord,
    PublicKey, Record, Store, TTL_MAX_MS,
};

use crate::samples::{NOW_MS, row_and_value_bytes};

const HOUR_MS: u64 = 3_600_000;
const RECORDS_MAX: usize = 24;
/// Reached before their number is where records have many addresses.
const RECORDS_BYTES_MAX: usize = 4_000;

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(Record, bool)>),
    Wait { ms: u64 },
    Expire,
    Restart,
    Learn,
    Clear,
}

/// All records by what they are about, and until when they are kept.
#[derive(Default)]
struct Model {
    records: BTreeMap<Vec<u8>, Record>,
}

impl Model {
    fn bytes(&self) -> usize {
        self.records.values().map(row_and_value_bytes).sum()
    }

    /// Strangers leave a sixteenth of the records and of the bytes to the node itself.
    fn has_room(&self, record: &Record, is_own: bool) -> bool {
        let share = |all: usize| if is_own { all } else { all - all / 16 };
        let (old, bytes) = (self.records.get(&about(record)), row_and_value_bytes(record));
        let old_bytes = old.map_or(0, row_and_value_bytes);
        let is_within_bytes = self.bytes() - old_bytes + bytes <= share(RECORDS_BYTES_MAX);
        (old.is_some() || self.records.len() < share(RECORDS_MAX)) && (bytes <= old_bytes || is_within_bytes)
    }

    fn put(&mut self, record: &Record, is_own: bool, now_ms: u64) -> Applied {
        let until_ms = record.kept_until_ms();
        let is_provider = matches!(record, Record::Provider(_));
        if until_ms <= now_ms || (is_provider && until_ms > now_ms + TTL_MAX_MS + CLOCK_SKEW_MS) {
            return Applied::Refused;
        }
        match self.records.get(&about(record)) {
            Some(old) if old.kept_until_ms() > now_ms && old == record => return Applied::Same,
            Some(old) if old.kept_until_ms() > now_ms && !record.supersedes(old) => return Applied::Older,
            _ if !self.has_room(record, is_own) => return Applied::Full,
            _ => {}
        }
        self.records.insert(about(record), record.clone());
        Applied::Stored
    }

    fn expire(&mut self, now_ms: u64) -> usize {
        let before = self.records.len();
        self.records.retain(|_, record| record.kept_until_ms() / HOUR_MS >= now_ms / HOUR_MS);
        before - self.records.len()
    }

    fn providers(&self, key: &Key, now_ms: u64) -> Vec<ProviderRecord> {
        let live = |record: &Record| match record {
            Record::Provider(record) if record.key == *key && record.expires_ms > now_ms => Some(record.clone()),
            _ => None,
        };
        sorted(self.records.values().filter_map(live).filter(|record| !record.withdraws()).collect())
    }

    fn names(&self, owner: &PublicKey, now_ms: u64) -> Vec<NameRecord> {
        let live = |record: &Record| match record {
            Record::Name(record) if record.owner == *owner && record.expires_ms > now_ms => Some(record.clone()),
            _ => None,
        };
        let mut names: Vec<NameRecord> = self.records.values().filter_map(live).collect();
        names.sort_by_key(|record| record.label.clone());
        names
    }
}

fn about(record: &Record) -> Vec<u8> {
    match record {
        Record::Provider(record) => [&record.key.0, &record.signer.0, record.peer.as_bytes()].concat(),
        other => other.key().0.to_vec(),
    }
}

fn sorted(mut records: Vec<ProviderRecord>) -> Vec<ProviderRecord> {
    records.sort_by_key(ProviderRecord::encode);
    records
}

fn key(number: u8) -> Key {
    Key([number; 32])
}

fn public_key(number: u8) -> PublicKey {
    PublicKey([number; 32])
}

/// Records about few things, so that they meet. Times are relative to the start; steps of waiting come between.
fn record() -> impl Strategy<Value = Record> {
    let provider = (0_u8..3, 0_u8..4, 0_u8..3, 0_u64..4, 0_u64..60, 0_u64..=49, 0_usize..=8).prop_map(
        |(at, peer, signer, sequence, issued_h, ttl_h, addrs)| {
            let issued_ms = NOW_MS + issued_h * HOUR_MS;
            let (is_withdrawal, addrs) = (addrs == 0, addresses(addrs));
            Record::Provider(ProviderRecord {
                key: key(at),
                peer: public_key(peer).peer_id(),
                addrs,
                protocols: vec![],
                region: None,
                sequence,
                issued_ms,
                expires_ms: if is_withdrawal { issued_ms } else { issued_ms + (ttl_h * HOUR_MS / 2).min(TTL_MAX_MS) },
                signer: public_key(signer),
                signature: [0; 64],
            })
        },
    );
    let name = (0_u8..2, "[ab]", 0_u64..4, 0_u64..60, 0_u8..3).prop_map(|(owner, label, sequence, hours, value)| {
        Record::Name(NameRecord {
            label,
            owner: public_key(owner),
            value: ContentId::of_bytes(&[value]),
            sequence,
            issued_ms: NOW_MS + hours * HOUR_MS,
            expires_ms: NOW_MS + (hours + 1) * HOUR_MS,
            signature: [0; 64],
        })
    });
    let peer = (0_u8..3, 0_u64..4, 1_u64..60, 0_usize..=8).prop_map(|(peer, sequence, hours, addrs)| {
        Record::Peer(PeerRecord {
            peer: public_key(peer).peer_id(),
            addrs: addresses(addrs),
            sequence,
            expires_ms: NOW_MS + hours * HOUR_MS,
            signature: [0; 64],
        })
    });
    prop_oneof![3 => provider, 1 => name, 1 => peer]
}

fn addresses(count: usize) -> Vec<Multiaddr> {
    vec!["/ip6/2001:db8::7/udp/4001/quic-v1".parse().expect("an address"); count]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => vec((record(), any::<bool>()), 1..6).prop_map(Step::Batch),
        3 => (1..6 * HOUR_MS).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Expire),
        1 => Just(Step::Restart),
        2 => Just(Step::Learn),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_store_answers_as_the_model(steps in vec(step(), 1..40)) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index.redb");
        let bounds =
            Bounds { records_max: RECORDS_MAX, records_bytes_max: RECORDS_BYTES_MAX, ..Bounds::default() };
        let open = || Store::open(&path, bounds).expect("a store").store;
        let (mut store, mut model, mut now_ms) = (open(), Model::default(), NOW_MS);
        for step in steps {
            match step {
                Step::Batch(records) => {
                    // A name is kept for 48 hours at most, which the model does without.
                    let is_near = |record: &Record| record.expires_ms() <= now_ms + TTL_MAX_MS;
                    let (mut changes, mut expected) = (Vec::new(), Vec::new());
                    for (record, is_own) in records.into_iter().filter(|(record, _)| is_near(record)) {
                        expected.push(model.put(&record, is_own, now_ms));
                        changes.push(if is_own { Change::PutOwn(record) } else { Change::Put(record) });
                    }
                    prop_assert_eq!(store.apply(&changes, now_ms).expect("a batch"), expected);
                }
                Step::Wait { ms } => now_ms += ms,
                Step::Expire => {
                    prop_assert_eq!(store.expire(now_ms).expect("expired"), model.expire(now_ms));
                }
                Step::Restart => {
                    drop(store);
                    store = open();
                }
                Step::Learn => {
                    store.learn_hour().expect("learned");
                }
                Step::Clear => {
                    store.clear().expect("cleared");
                    model = Model::default();
                }
            }
            prop_assert_eq!(store.count(), model.records.len());
            prop_assert_eq!(store.counts().records_bytes, model.bytes());
            for number in 0..3 {
                let found = store.providers(&key(number), now_ms, 100).expect("providers");
                prop_assert_eq!(sorted(found), model.providers(&key(number), now_ms));
            }
            for number in 0..2 {
                let found = store.names(&public_key(number), None, 100, now_ms).expect("names");
                prop_assert_eq!(found, model.names(&public_key(number), now_ms));
            }
            let live = model.records.values().filter(|record| record.kept_until_ms() > now_ms).count();
            let found = store.records_in(key(0), key(0xff), 100, now_ms).expect("records");
            prop_assert_eq!(found.len(), live);
        }
    }
}
