//! Laws of the mailbox's core, over random steps with restarts, against a reference queue that is obviously right.

use std::collections::BTreeSet;

use proptest::prelude::*;
use svc_mailbox::record::Record;
use svc_mailbox::types::Seq;

#[path = "model/comparison.rs"]
mod comparison;
#[path = "model/journal.rs"]
mod journal;
#[path = "model/reference.rs"]
mod reference;
#[path = "model/steps.rs"]
mod steps;

use comparison::{Comparison, browse, replayed};
use journal::Written;
use steps::step;

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
        let mut comparison = Comparison::new();
        steps.iter().for_each(|step| comparison.step(step));
    }
}

proptest! {
    #![proptest_config(cases(60, 2000))]

    #[test]
    fn every_record_of_a_cut_journal_has_its_effect(steps in prop::collection::vec(step(false), 1..80)) {
        let mut comparison = Comparison::new();
        let mut marks = Vec::new();
        for step in &steps {
            comparison.step(step);
            marks.push((comparison.tape.records.len(), comparison.now, comparison.reference.clone()));
        }
        for (len, now, mut reference) in marks {
            reference.restart(now);
            let shards = replayed(&comparison.tape.records[..len], now);
            comparison.check_held(&shards, &reference);
        }
        for len in 0..=comparison.tape.records.len() {
            let records = &comparison.tape.records[..len];
            let shards = replayed(records, comparison.now);
            let held: BTreeSet<Seq> = browse(&shards).iter().map(|summary| summary.seq).collect();
            prop_assert_eq!(held, told(records));
        }
    }
}

fn cases(cases: u32, max_shrink_iters: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters, failure_persistence: None, ..ProptestConfig::default() }
}
