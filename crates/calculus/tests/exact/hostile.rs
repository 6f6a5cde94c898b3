//! Epochs that somebody would make up to break the arithmetic.

use std::collections::BTreeMap;

use ron_calculus::{Breach, Units};

use crate::case::{Case, Row, row};

fn check(fields: &str, quantities: &[u128], expected: &[u128]) {
    assert_eq!(Case::simple(fields, quantities).amounts(), expected, "{fields} {quantities:?}");
}

#[test]
fn small_epochs_have_the_amounts_one_expects() {
    check(r#""pool":"7""#, &[3], &[7]);
    check(r#""pool":"6""#, &[5, 5, 5], &[2, 2, 2]);
    check(r#""pool":"100""#, &[0, 0], &[0, 0]);
    check(r#""pool":"0""#, &[1, 2], &[0, 0]);
    check(r#""pool":"10","ties":"id""#, &[1, 1, 1], &[4, 3, 3]);
    check(r#""pool":"2","ties":"id""#, &[1; 5], &[1, 1, 0, 0, 0]);
    check(r#""pool":"10","rounding":"floor_carry""#, &[1, 1, 1], &[3, 3, 3]);
    check(r#""pool":"100","cap":"30""#, &[1, 2, 7], &[30, 30, 30]);
    check(r#""pool":"70","cap":"30""#, &[1, 2, 7], &[13, 27, 30]);
    check(r#""pool":"100","minimum":"20""#, &[1, 4, 5], &[0, 44, 56]);
    check(r#""pool":"100","minimum":"60""#, &[5, 5], &[0, 0]);
    check(r#""pool":"100","minimum":"101""#, &[5], &[0]);
    check(r#""pool":"100","cap":"40","minimum":"20""#, &[1, 1, 3, 9], &[0, 0, 40, 40]);
}

#[test]
fn numbers_at_the_edge_are_exact() {
    let most = u128::MAX;
    let halves = Case::simple(&format!(r#""pool":"{most}","ties":"id""#), &[1, 1]).amounts();
    assert_eq!(halves, [1 << 127, (1 << 127) - 1]);
    let (tiny, huge) = (1, 1 << 100);
    let amounts = Case::simple(r#""pool":"1000000000000000000000000000""#, &[tiny, huge]).amounts();
    assert_eq!(amounts, [0, 1_000_000_000_000_000_000_000_000_000], "1e27 / 2^100 is below half a unit");
    // W near 2^127, products near 2^254.
    let amounts = Case::simple(&format!(r#""pool":"{most}""#), &[(1 << 126) - 1, 1 << 126]).amounts();
    assert_eq!(amounts, [(1 << 127) - 2, (1 << 127) + 1]);
}

#[test]
fn a_pool_of_1e27_times_a_score_of_1e15_is_no_overflow() {
    let pool = 10_u128.pow(27);
    let quantities = [10_u128.pow(15), 2 * 10_u128.pow(15), 4 * 10_u128.pow(15)];
    let amounts = Case::simple(&format!(r#""pool":"{pool}""#), &quantities).amounts();
    // 1e27 / 7 is 142857142857142857142857142.857…, twice that ….714, four times ….428.
    let expected = [142857142857142857142857143_u128, 285714285714285714285714286, 571428571428571428571428571];
    assert_eq!(amounts, expected);
}

#[test]
fn quantities_of_thirty_digits_and_weights_of_a_hundred_bits_are_exact_or_refused() {
    let thirty = 999_999_999_999_999_999_999_999_999_999_u128;
    let amounts = Case::simple(r#""pool":"3","ties":"id""#, &[thirty, thirty]).amounts();
    assert_eq!(amounts, [2, 1]);
    let weights = format!(r#"{{"asset":"A","pool":"10","weights":{{"light":"1","heavy":"{}"}}}}"#, 1_u128 << 100);
    let rows = |quantity| -> Vec<Row> {
        vec![
            ("a".into(), "light".into(), None, None, Units(1)),
            ("b".into(), "heavy".into(), None, None, Units(quantity)),
        ]
    };
    assert_eq!(Case::new(&weights, rows(1)).amounts(), [0, 10]);
    let breach = Case::new(&weights, rows(1 << 28)).try_allocate(2).expect_err("2^128");
    assert_eq!(breach, Breach::Overflow("asset `A`: the score of `b` adds up to more than 128 bits".into()));
    let most = Case::simple(r#""pool":"1""#, &[u128::MAX, 1]).try_allocate(2).expect_err("the sum is 2^128");
    assert_eq!(most, Breach::Overflow("asset `RON`: the scores add up to more than 128 bits".into()));
}

#[test]
fn rules_hold_at_the_edge_of_every_number() {
    let most = u128::MAX;
    for rule in ["largest_remainder", "webster", "floor_carry"] {
        for bounds in [String::new(), format!(r#","cap":"{most}""#), r#","cap":"1""#.into(), r#","minimum":"1""#.into()]
        {
            for quantities in [&[1, most - 1][..], &[most], &[1, 1, 1, 1 << 127], &[3, 5, 7]] {
                let fields = format!(r#""pool":"{most}","rounding":"{rule}"{bounds}"#);
                let case = Case::simple(&fields, quantities);
                let allocation = case.allocate().remove(0);
                let least = quantities.len() as u128;
                let expected = match bounds.contains(r#""cap":"1""#) {
                    true => least..=least,
                    false if rule == "floor_carry" => most - least..=most,
                    false => most..=most,
                };
                assert!(expected.contains(&allocation.paid), "{fields} {quantities:?}: {}", allocation.paid);
            }
        }
    }
}

#[test]
fn ids_that_only_look_alike_are_different_actors() {
    // The same word composed, decomposed, with another script's letter, and with a trailing space.
    let looks_alike = ["caf\u{e9}", "cafe\u{301}", "\u{441}af\u{e9}", "caf\u{e9} "];
    let rows = looks_alike.iter().map(|actor| row(actor, 1)).collect();
    let case = Case::new(r#"{"asset":"A","pool":"8","weights":{"usage":"1"}}"#, rows);
    assert_eq!(case.totals().roster().len(), 4);
    assert_eq!(case.amounts(), [2; 4]);
}

#[test]
fn repeated_ids_add_up() {
    let rows = vec![row("a", 1), row("b", 3), row("a", 2)];
    let case = Case::new(r#"{"asset":"A","pool":"8","weights":{"usage":"1"}}"#, rows);
    assert_eq!(case.amounts(), [4, 4]);
}

#[test]
fn a_million_equals_differ_by_one_unit_and_by_hash() {
    let count = if std::env::var_os("MACRO_SOAK").is_some() { 1_000_000 } else { 50_000 };
    let pool = count as u128 * 3 + count as u128 / 2;
    let quantities = vec![9; count];
    let amounts = |rule: &str, threads| {
        let case = Case::simple(&format!(r#""pool":"{pool}","rounding":"{rule}""#), &quantities);
        case.try_allocate(threads).expect("it is good").remove(0).amounts
    };
    let first = amounts("largest_remainder", 1);
    assert_eq!(first.iter().filter(|amount| **amount == 4).count(), count / 2);
    assert_eq!(first.iter().filter(|amount| **amount == 3).count(), count / 2);
    assert_ne!(first[..count / 2].iter().filter(|amount| **amount == 4).count(), count / 2, "not by place");
    assert_eq!(amounts("largest_remainder", 3), first);
    assert_eq!(amounts("webster", 2), first, "among equals the rules agree");
}

#[test]
fn what_the_policy_does_not_know_is_refused_by_name() {
    let grouped = r#"{"asset":"A","groups":{"east":"5","west":"6"},"weights":{"usage":"1"}},{"asset":"B","pool":"1","weights":{"other":"1"}}"#;
    let plain = r#"{"asset":"A","pool":"5","weights":{"usage":"1"}}"#;
    let one = |metric: &str, group: Option<&str>, asset: Option<&str>| -> Vec<Row> {
        vec![("a".into(), metric.into(), group.map(Into::into), asset.map(Into::into), Units(1))]
    };
    for (assets, rows, expected) in [
        (grouped, one("usage", None, None), "usage `usage` without a group, and asset `A` has a pool for each group"),
        (grouped, one("usage", Some("north"), None), "usage in group `north`, which the policy does not know"),
        (plain, one("usage", Some("east"), None), "usage in group `east`, which the policy does not know"),
        (plain, one("usage", None, Some("C")), "usage for asset `C`, which the policy does not know"),
    ] {
        let breach = Case::new(assets, rows).try_allocate(1).expect_err(expected);
        assert_eq!(breach, Breach::Schema(expected.to_owned()));
    }
    let fine = Case::new(grouped, one("other", None, None)).allocate();
    assert_eq!((fine[0].paid, fine[1].paid), (0, 1), "what has no weight in an asset needs no group there");
    let mut carried = Case::new(plain, one("usage", None, None));
    carried.carry = BTreeMap::from([("C".to_owned(), Units(1))]);
    assert!(matches!(carried.try_allocate(1), Err(Breach::Schema(_))));
    carried.carry = BTreeMap::from([("A".to_owned(), Units(u128::MAX))]);
    assert!(matches!(carried.try_allocate(1), Err(Breach::Overflow(_))));
    let open = Case::new(r#"{"asset":"A","weights":{"usage":"1"}}"#, one("usage", None, None));
    assert_eq!(open.try_allocate(1), Err(Breach::Schema("asset `A` has no pool".to_owned())));
}

#[test]
fn what_is_left_over_is_carried_into_the_next_epoch() {
    let mut case = Case::simple(r#""pool":"10","rounding":"floor_carry""#, &[1, 1, 1]);
    case.carry = BTreeMap::from([("RON".to_owned(), Units(2))]);
    let allocation = case.allocate().remove(0);
    assert_eq!((allocation.pool, allocation.paid), (12, 12));
    let grouped = r#"{"asset":"A","groups":{"east":"4","west":"6"},"weights":{"usage":"1"}}"#;
    let of = |actor: &str, group: &str| (actor.to_owned(), "usage".to_owned(), Some(group.to_owned()), None, Units(1));
    let mut case = Case::new(grouped, vec![of("a", "east"), of("b", "west"), of("c", "west"), of("a", "west")]);
    case.carry = BTreeMap::from([("A".to_owned(), Units(5))]);
    // East 4 + 2, west 6 + 3: a gets all of the one and a third of the other.
    assert_eq!(case.amounts(), [6 + 3, 3, 3]);
}
