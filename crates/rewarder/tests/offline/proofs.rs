//! Every payout can be proved, every absence too, and intents are the payouts.

use std::collections::BTreeSet;

use ron_calculus::tree::{oz, sum};
use ron_ledger::Direction;
use serde_json::Value;
use svc_rewarder::hashing::parse_b3;
use svc_rewarder::intents::{Intents, intent_key};
use svc_rewarder::proofs::Proof;
use svc_rewarder::{ProofFormat, SealedError};

use crate::{RICH, SMALLEST, Scratch, computed, opened, usage, written};

fn bytes_of(text: &str) -> [u8; 32] {
    parse_b3(&text.replacen("0x", "b3:", 1)).expect("a hash")
}

#[test]
fn every_actor_has_proofs_that_lead_to_the_published_roots() {
    let scratch = Scratch::new();
    let (disk, seal) = written(&scratch.job(&[("u.csv", &usage(200))], RICH));
    let loaded = opened(&disk).load().expect("whole");
    let (roster, paying) = loaded.computed.paying();
    let (mut paid, mut unpaid) = (0, 0);
    for (place, actor) in roster.iter().enumerate() {
        for format in [ProofFormat::Oz, ProofFormat::Sum] {
            let proofs = loaded.prove(actor, format, None).expect("proofs").proofs;
            for (index, found) in proofs.iter().enumerate() {
                let facts = &seal.manifest.assets[index];
                let amount = paying[index].amounts[place];
                assert_eq!((found.asset.as_str(), found.amount.0), (facts.asset.as_str(), amount));
                match &found.proof {
                    Proof::Oz { root, proof, .. } => {
                        assert_eq!(*root, facts.roots.oz);
                        let root = bytes_of(root.as_deref().expect("somebody is paid"));
                        let siblings = proof.iter().flatten().map(|hash| bytes_of(hash)).collect::<Vec<_>>();
                        assert_eq!(proof.is_some(), amount > 0);
                        assert_eq!(oz::verify(&root, actor, amount, &siblings), amount > 0);
                        assert!(!oz::verify(&root, actor, amount + 1, &siblings), "another amount");
                    }
                    Proof::Sum { root, root_sum, proof } => {
                        assert_eq!((root, *root_sum), (&facts.roots.sum, facts.paid));
                        let root = sum::SumNode { hash: bytes_of(root), sum: root_sum.0 };
                        assert_eq!(sum::verify(&root, &facts.asset, actor, proof), Some(amount));
                    }
                }
                *(if amount > 0 { &mut paid } else { &mut unpaid }) += 1;
            }
        }
    }
    assert!(paid > 100 && unpaid > 10, "{paid} paid, {unpaid} not");
    let stranger = loaded.prove("nobody", ProofFormat::Sum, Some("RON")).expect("a proof of absence");
    let Proof::Sum { root, root_sum, proof } = &stranger.proofs[0].proof else { panic!("a sum proof") };
    let root = sum::SumNode { hash: bytes_of(root), sum: root_sum.0 };
    assert_eq!(sum::verify(&root, "RON", "nobody", proof), Some(0));
    let unknown = loaded.prove("nobody", ProofFormat::Oz, Some("XYZ"));
    assert!(matches!(unknown, Err(SealedError::UnknownAsset(_))));
}

#[test]
fn proofs_of_all_are_lines_in_order_on_any_number_of_threads() {
    let scratch = Scratch::new();
    let (disk, seal) = written(&scratch.job(&[("u.csv", &usage(1200))], RICH));
    let loaded = opened(&disk).load().expect("whole");
    let lines = |format, threads| {
        let mut text = Vec::new();
        let count = loaded.write_proofs(format, None, threads, &mut text).expect("written");
        (count, text)
    };
    for format in [ProofFormat::Oz, ProofFormat::Sum] {
        let (count, text) = lines(format, 1);
        assert_eq!(count, seal.manifest.assets.iter().map(|facts| facts.payees).sum::<u64>());
        assert!(text == lines(format, 8).1, "{format:?}");
        let text = String::from_utf8(text).expect("text");
        let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert!(first["account"].is_string() && first["amount"].is_string(), "{first}");
        assert_eq!(text.lines().count() as u64, count);
    }
}

#[test]
fn intents_are_the_payouts_in_batches_of_any_size() {
    let scratch = Scratch::new();
    let run = computed(&scratch.job(&[("u.csv", &usage(150))], RICH));
    let intents = Intents::of(&run);
    let walk = |size: usize, mut place: u64| {
        let mut entries = Vec::new();
        let mut places = vec![place];
        while let Some((batch, next)) = intents.batch(place, size) {
            assert!(!batch.entries.is_empty() && batch.entries.len() <= size);
            assert_eq!((batch.pot.as_str(), batch.run), ("epoch/2026-11", run.run_key));
            entries.extend(batch.entries.into_iter().map(|entry| (batch.asset.clone(), entry)));
            places.push(next);
            place = next;
        }
        (entries, places)
    };
    let (all, _) = walk(1_000_000, 0);
    for size in [1, 7, 64] {
        let (entries, places) = walk(size, 0);
        assert!(entries == all, "batches of {size}");
        // Beginning again at any remembered place gives exactly the rest.
        let (middle, taken) = (places[places.len() / 2], (places.len() / 2) * size);
        let rest = walk(size, middle).0;
        assert!(all.ends_with(&rest) && rest.len() >= all.len() - taken, "from {middle}");
    }
    let keys: BTreeSet<[u8; 32]> = all.iter().map(|(_, entry)| entry.key).collect();
    assert_eq!(keys.len(), all.len());
    for (asset, entry) in &all {
        assert_eq!(entry.key, intent_key(&run.run_key, asset, &entry.account));
        assert_eq!(entry.direction, Direction::Pay);
    }
    for tally in intents.tallies() {
        let of_asset = all.iter().filter(|(asset, _)| *asset == tally.asset);
        let sum: u128 = of_asset.clone().map(|(_, entry)| entry.amount).sum();
        assert_eq!((of_asset.count() as u64, sum, 0), (tally.count, tally.paid, tally.taken_back));
    }
}

#[test]
fn the_amount_is_not_part_of_a_key() {
    let scratch = Scratch::new();
    let first = computed(&scratch.job(&[("u.csv", "actor,quantity\nann,1\n")], SMALLEST));
    let (batch, _) = Intents::of(&first).batch(0, 10).expect("a payout");
    assert_eq!(batch.entries[0].amount, 1_000_000);
    assert_eq!(batch.entries[0].key, intent_key(&first.run_key, "RON", "ann"));
}
