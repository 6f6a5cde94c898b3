//! Proofs: those of a tree hold, and no other does.

use proptest::prelude::*;
use ron_calculus::tree::{oz, sum};
use ron_calculus::{Breach, Roster, Units};

use crate::random::Random;

/// Ids of which every third is an address.
fn roster(count: usize) -> Roster {
    let id = |index: usize| match index % 3 {
        0 => format!("0x{:040x}", index * 7919),
        _ => format!("actor {index:08}"),
    };
    let mut ids: Vec<String> = (0..count).map(id).collect();
    ids.sort();
    let mut roster = Roster::default();
    ids.iter().for_each(|id| assert!(roster.push(id)));
    roster
}

fn amounts(count: usize, seed: u64) -> Vec<u128> {
    let mut random = Random(seed);
    (0..count).map(|_| if random.one_in(4) { 0 } else { random.bits(100) }).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn leaves_and_roots_are_those_of_openzeppelin() {
    // Two addresses of one repeated digit with 5e18 and 2.5e18 units: the example that the library's README opens with.
    let (one, two) = ("0x1111111111111111111111111111111111111111", "0x2222222222222222222222222222222222222222");
    let mut roster = Roster::default();
    assert!(roster.push(one) && roster.push(two));
    let amounts = [5_000_000_000_000_000_000, 2_500_000_000_000_000_000];
    let tree = oz::OzTree::build(&roster, &amounts, 1).expect("two leaves");
    let expected = "d4dee0beab2d53f2cc83e567171bd2820e49898130a22622b10ead383e90bd77";
    assert_eq!(hex(&tree.root().expect("two leaves")), expected);
    assert_eq!(oz::leaf_encoding(one), ["address", "uint256"]);
    for other in
        ["0X1111111111111111111111111111111111111111", "0x11", "1", "", &format!("{one}1"), &one.replace("11", "1g")]
    {
        assert_eq!(oz::leaf_encoding(other), ["string", "uint256"], "{other}");
    }
}

#[test]
fn two_spellings_of_one_address_are_refused() {
    let mut roster = Roster::default();
    for id in ["0x00000000000000000000000000000000000000AB", "0x00000000000000000000000000000000000000ab", "c"] {
        assert!(roster.push(id));
    }
    let Err(Breach::Schema(reason)) = oz::OzTree::build(&roster, &[1, 0, 1], 1) else { panic!("two spellings") };
    assert!(reason.contains("00AB` and `0x") && reason.ends_with("are spellings of one address"), "{reason}");
}

#[test]
fn nobody_paid_is_a_tree_without_leaves() {
    let roster = roster(3);
    let tree = oz::OzTree::build(&roster, &[0; 3], 1).expect("it is fine");
    assert_eq!((tree.root(), tree.proof(roster.get(0), 0)), (None, None));
    let sums = sum::SumTree::build("A", &roster, &[0; 3], 1).expect("it is fine");
    let proof = sums.prove(&roster, &[0; 3], roster.get(1));
    assert_eq!(sum::verify(&sums.root(), "A", roster.get(1), &proof), Some(0));
    assert_eq!(sum::verify(&sums.root(), "B", roster.get(1), &proof), None, "the root binds the asset");
}

#[test]
fn amounts_that_do_not_fit_the_roster_or_128_bits_are_refused() {
    let roster = roster(2);
    assert!(oz::OzTree::build(&roster, &[1], 1).is_err());
    assert!(sum::SumTree::build("A", &roster, &[1], 1).is_err());
    let breach = sum::SumTree::build("A", &roster, &[u128::MAX, 1], 1).expect_err("2^128");
    assert_eq!(breach, Breach::Overflow("asset `A`: the amounts add up to more than 128 bits".into()));
}

proptest! {
    // Without optimisation a hash of keccak takes fifty times as long.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_payout_has_a_proof_and_no_other_amount_does(count in 1_usize..150, seed: u64) {
        let (roster, amounts) = (roster(count), amounts(count, seed));
        let tree = oz::OzTree::build(&roster, &amounts, 1).expect("no spellings");
        prop_assert_eq!(oz::OzTree::build(&roster, &amounts, 3).expect("no spellings").root(), tree.root());
        let Some(root) = tree.root() else { return Ok(()) };
        for (actor, amount) in roster.iter().zip(&amounts) {
            let proof = tree.proof(actor, *amount);
            prop_assert_eq!(proof.is_some(), *amount > 0);
            let Some(mut proof) = proof else { continue };
            prop_assert!(oz::verify(&root, actor, *amount, &proof));
            prop_assert!(!oz::verify(&root, actor, amount + 1, &proof));
            prop_assert!(!oz::verify(&root, "somebody", *amount, &proof));
            prop_assert_eq!(tree.proof(actor, amount + 1), None);
            proof.push([0; 32]);
            prop_assert!(!oz::verify(&root, actor, *amount, &proof));
            proof.truncate(proof.len().saturating_sub(2));
            prop_assert!(tree.leaves() == 1 || !oz::verify(&root, actor, *amount, &proof));
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_sum_tree_proves_payouts_and_absences(count in 1_usize..150, seed: u64) {
        let (roster, amounts) = (roster(count), amounts(count, seed));
        let tree = sum::SumTree::build("A", &roster, &amounts, 1).expect("it fits");
        let root = tree.root();
        prop_assert_eq!(root.sum, amounts.iter().sum::<u128>());
        prop_assert_eq!(sum::SumTree::build("A", &roster, &amounts, 3).expect("it fits").root(), root);
        prop_assert_ne!(sum::SumTree::build("B", &roster, &amounts, 1).expect("it fits").root().hash, root.hash);
        let strangers = ["", "0x", "actor 00000001x", "zzz"];
        for actor in roster.iter().chain(strangers) {
            let amount = roster.find(actor).map_or(0, |place| amounts[place]);
            let proof = tree.prove(&roster, &amounts, actor);
            prop_assert_eq!(sum::verify(&root, "A", actor, &proof), Some(amount), "{} {:?}", actor, proof);
            prop_assert_eq!(sum::verify(&root, "B", actor, &proof), None);
            let text = serde_json::to_string(&proof).expect("it is JSON");
            prop_assert_eq!(serde_json::from_str::<sum::SumProof>(&text).expect("it is read"), proof);
        }
    }

    #[test]
    fn a_proof_that_was_tampered_with_shows_nothing(
        count in 2_usize..100,
        seed: u64,
        at: prop::sample::Index,
        how in 0_usize..11,
    ) {
        let roster = roster(count);
        let amounts: Vec<u128> = amounts(count, seed).into_iter().map(|amount| amount + 1).collect();
        let tree = sum::SumTree::build("A", &roster, &amounts, 1).expect("it fits");
        let place = at.index(count);
        let actor = roster.get(place);
        let sum::SumProof::Paid { leaf } = tree.prove(&roster, &amounts, actor) else { panic!("everyone is paid") };
        let mut forged = leaf.clone();
        tamper(&mut forged, how);
        prop_assume!(forged != leaf);
        let proof = sum::SumProof::Paid { leaf: forged.clone() };
        prop_assert_eq!(sum::verify(&tree.root(), "A", actor, &proof), None, "{:?}", forged);
        // Nor can a leaf be argued away: its neighbours are not next to each other.
        let neighbour = |place: Option<usize>| {
            let actor = roster.get(place.filter(|place| *place < count)?);
            match tree.prove(&roster, &amounts, actor) {
                sum::SumProof::Paid { leaf } => Some(leaf),
                sum::SumProof::Unpaid { .. } => None,
            }
        };
        let (before, after) = (neighbour(place.checked_sub(1)), neighbour(Some(place + 1)));
        for (before, after) in [(before.clone(), after.clone()), (before, None), (None, after), (None, None)] {
            let proof = sum::SumProof::Unpaid { before, after };
            prop_assert_eq!(sum::verify(&tree.root(), "A", actor, &proof), None);
        }
    }
}

/// One of the ways to forge a path.
fn tamper(path: &mut sum::SumPath, how: usize) {
    match how {
        0 => path.amount = Units(path.amount.0 + 1),
        1 => path.index ^= 1,
        2 => path.leaves += 1,
        3 => path.leaves = path.leaves.saturating_sub(1),
        4 => drop(path.siblings.pop()),
        5 => path.siblings.push(("00".repeat(32), Units(0))),
        6 => path.siblings.reverse(),
        7 => path.siblings.iter_mut().for_each(|sibling| sibling.1 = Units(u128::MAX)),
        8 => path.siblings.iter_mut().for_each(|sibling| sibling.0 = sibling.0.to_uppercase()),
        // The amount moves to the sibling: the sum above stays the same.
        9 => {
            path.amount = Units(path.amount.0 - 1);
            path.siblings.iter_mut().take(1).for_each(|sibling| sibling.1 = Units(sibling.1.0 + 1));
        }
        _ => path.index = u64::MAX,
    }
}
