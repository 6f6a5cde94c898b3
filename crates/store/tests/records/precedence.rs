//! Which of two records wins: all nodes come to the same, in whatever order they hear of them.

use proptest::prelude::*;
use ron_store::{ContentId, NameRecord, Record};

use crate::samples::{NOW_MS, signer};

fn name(value: u8, sequence: u64, ttl_ms: u64) -> Record {
    let value = ContentId::of_bytes(&[value]);
    Record::Name(NameRecord::sign("a", value, sequence, NOW_MS, NOW_MS + ttl_ms, &signer(1)).expect("a record"))
}

#[test]
fn sequence_then_end_then_bytes() {
    assert!(name(1, 2, 1).supersedes(&name(1, 1, 9)));
    assert!(!name(1, 1, 9).supersedes(&name(1, 2, 1)));
    assert!(name(1, 1, 9).supersedes(&name(2, 1, 8)));
    assert!(!name(1, 1, 1).supersedes(&name(1, 1, 1)));
    assert_ne!(name(1, 1, 1).supersedes(&name(2, 1, 1)), name(2, 1, 1).supersedes(&name(1, 1, 1)));
}

proptest! {
    #[test]
    fn the_winner_does_not_depend_on_the_order(
        records in prop::collection::vec((0_u8..3, 0_u64..3, 1_u64..3), 1..8),
        rotation in any::<prop::sample::Index>(),
    ) {
        let named = records.into_iter().map(|(value, sequence, ttl)| name(value, sequence, ttl));
        let records: Vec<Record> = named.collect();
        let winner = |records: &[Record]| {
            let mut best = records[0].clone();
            for record in records {
                if record.supersedes(&best) {
                    best = record.clone();
                }
            }
            best
        };
        let mut rotated = records.clone();
        rotated.rotate_left(rotation.index(records.len()));
        prop_assert_eq!(winner(&records), winner(&rotated));
        rotated.reverse();
        prop_assert_eq!(winner(&records), winner(&rotated));
        for record in &records {
            prop_assert!(!record.supersedes(&winner(&records)));
        }
    }
}
