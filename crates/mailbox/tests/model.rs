//! Laws of the mailbox's core, over random steps with restarts, against a reference queue that is obviously right.

use std::collections::BTreeSet;

use proptest::prelude::*;
use svc_mailbox::record::Record;
use svc_mailbox::types::Seq;

#[path = "model/journal.rs"]
mod journal;
#[path = "model/reference.rs"]
mod reference;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/world.rs"]
mod world;

use journal::Written;
use steps::step;
use world::{World, browse, replayed};

/// Messages that the records say are there.
fn told(records: &[Written]) -> BTreeSet<Seq> {
    let mut seqs = BTreeSet::new();
    let mut homes = std::collections::BTreeMap::new();
    for written in records {
        match Record::decode(&written.head).expect("the journal holds only records") {
            Record::Send(taken) => {
                seqs.insert(taken.seq);
                homes.insert(taken.seq, taken.part);
            }
            Record::Move { seq, to, .. } => {
                homes.insert(seq, to);
            }
            Record::Ack { seqs: gone, .. } | Record::Expired { seqs: gone, .. } => {
                gone.iter().for_each(|seq| assert!(seqs.remove(seq)));
            }
            Record::Cancel { seq, .. } => assert!(seqs.remove(&seq)),
            Record::Purge { part, .. } => seqs.retain(|seq| homes[seq] != part),
            _ => {}
        }
    }
    seqs
}

proptest! {
    #![proptest_config(cases(300, 4000))]

    #[test]
    fn it_does_what_the_reference_does(steps in prop::collection::vec(step(true), 1..160)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
    }
}

proptest! {
    #![proptest_config(cases(60, 2000))]

    #[test]
    fn every_record_of_a_cut_journal_has_its_effect(steps in prop::collection::vec(step(false), 1..80)) {
        let mut world = World::new();
        let mut marks = Vec::new();
        for step in &steps {
            world.step(step);
            marks.push((world.tape.records.len(), world.now, world.reference.clone()));
        }
        for (len, now, mut reference) in marks {
            reference.restart(now);
            let shards = replayed(&world.tape.records[..len], now);
            world.check_held(&shards, &reference);
        }
        for len in 0..=world.tape.records.len() {
            let records = &world.tape.records[..len];
            let held: BTreeSet<Seq> = browse(&replayed(records, world.now)).iter().map(|summary| summary.seq).collect();
            prop_assert_eq!(held, told(records));
        }
    }
}

fn cases(cases: u32, max_shrink_iters: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters, failure_persistence: None, ..ProptestConfig::default() }
}
