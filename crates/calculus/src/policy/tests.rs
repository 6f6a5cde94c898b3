//! Tests of reading and checking policies.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{POLICY_BYTES_MAX, Policy, Weight, integer_weights};

const SMALLEST: &str =
    r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000000","weights":{"usage":"1"}}]}"#;

/// A policy with one asset that has these fields beside its name.
fn with(fields: &str) -> String {
    format!(r#"{{"id":"demo","ruleset":1,"assets":[{{"asset":"RON",{fields}}}]}}"#)
}

fn refusal(text: &str) -> String {
    Policy::parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn the_smallest_policy_is_read_and_written_again() {
    let policy = Policy::parse(SMALLEST.as_bytes()).expect("it is good");
    assert!(policy.is_complete());
    let written = serde_json::to_string(&policy).expect("it can be written");
    assert_eq!(Policy::parse(written.as_bytes()), Ok(policy));
}

#[test]
fn what_cannot_be_run_is_refused_with_its_place() {
    let weight = r#""weights":{"usage":"1"}"#;
    for (text, expected) in [
        (SMALLEST.replace("\"id\"", "\"name\""), "policy: name: unknown field `name`"),
        (SMALLEST.replace("\"pool\"", "\"pot\""), "policy: assets[0].pot: unknown field `pot`"),
        (SMALLEST.replace("\"ruleset\":1", "\"ruleset\":2"), "policy: ruleset: ruleset 2 is not known"),
        (SMALLEST.replace("demo", ""), "policy: id: the name is empty"),
        (SMALLEST.replace("demo", "a\\u0000b"), "policy: id: the name has the control character U+0000"),
        (SMALLEST.replace("RON", &"x".repeat(257)), "policy: assets[0].asset: a name of 257 bytes"),
        (SMALLEST.replace("usage", "\\u0007"), "policy: assets[0].weights.\\u{7}: the name has the control"),
        (r#"{"id":"demo","ruleset":1,"assets":[]}"#.to_owned(), "policy: assets: 0 of them"),
        (SMALLEST.replace("\"1000000\"", "1000000"), "policy: assets[0].pool: invalid type: integer"),
        (SMALLEST.replace("\"1000000\"", "\"-1\""), "policy: assets[0].pool: `-1` is not a whole number"),
        (SMALLEST.replace("\"1000000\"", "\"01\""), "policy: assets[0].pool: `01` is not a whole number"),
        (SMALLEST.replace("\"1\"", "\"1/0\""), "policy: assets[0].weights.usage: `1/0` divides by zero"),
        (SMALLEST.replace("\"1\"", "\"0\""), "policy: assets[0].weights: all weights are zero"),
        (with(r#""pool":"1","weights":{}"#), "policy: assets[0].weights: 0 of them"),
        (with(&format!(r#""pool":"3","groups":{{"a":"1","b":"1"}},{weight}"#)), "policy: assets[0].pool: 3 is not"),
        (with(&format!(r#""groups":{{"":"1"}},{weight}"#)), "policy: assets[0].groups.: the name is empty"),
        (with(&format!(r#""pool":"1","cap":"0",{weight}"#)), "policy: assets[0].cap: a cap of 0"),
        (with(&format!(r#""pool":"1","cap":"2","minimum":"3",{weight}"#)), "policy: assets[0].minimum: 3 is more"),
        (with(r#""pool":"1","weights":{"a":"1","a":"2"}"#), "policy: assets[0].weights: the key `a` stands"),
        (with(&format!(r#""groups":{{"a":"1","a":"1"}},{weight}"#)), "policy: assets[0].groups: the key `a` stands"),
        (with(&format!(r#""pool":"1","pool":"2",{weight}"#)), "policy: assets[0]: duplicate field `pool`"),
        (with(&format!(r#""pool":"1","rounding":"up",{weight}"#)), "policy: assets[0].rounding: unknown variant `up`"),
        (
            r#"["demo",1,[{"asset":"RON","weights":{"usage":"1"}}],null]"#.to_owned(),
            "policy: .: a list, where an object",
        ),
        (SMALLEST.replace("]}", r#"],"release":[true,{},null,null]}"#), "policy: release: a list, where an object"),
        (format!("{SMALLEST} x"), "policy: .: trailing characters"),
        ("[".repeat(100_000), "policy: [0]: invalid type: sequence"),
        (" ".repeat(POLICY_BYTES_MAX + 1), "policy: .: 1048577 bytes; the limit is 1048576"),
    ] {
        let said = refusal(&text);
        assert!(said.starts_with(expected), "`{said}` instead of `{expected}`");
    }
}

#[test]
fn counts_and_limits_are_bounded() {
    let asset = |name: &str| format!(r#"{{"asset":"{name}","pool":"1","weights":{{"usage":"1"}}}}"#);
    let document = |assets: &[String]| format!(r#"{{"id":"demo","ruleset":1,"assets":[{}]}}"#, assets.join(","));
    let many: Vec<String> = (0..65).map(|index| asset(&index.to_string())).collect();
    assert!(Policy::parse(document(&many[..64]).as_bytes()).is_ok());
    assert!(refusal(&document(&many)).starts_with("policy: assets: 65 of them"));
    assert!(refusal(&document(&[asset("a"), asset("a")])).starts_with("policy: assets[1].asset: `a` stands"));
    let map = |count: usize| (0..count).map(|index| format!(r#""{index}":"1""#)).collect::<Vec<_>>().join(",");
    for (count, is_good) in [(1024, true), (1025, false)] {
        let weights = with(&format!(r#""pool":"1","weights":{{{}}}"#, map(count)));
        assert_eq!(Policy::parse(weights.as_bytes()).is_ok(), is_good);
        let groups = with(&format!(r#""weights":{{"usage":"1"}},"groups":{{{}}}"#, map(count)));
        assert_eq!(Policy::parse(groups.as_bytes()).is_ok(), is_good);
    }
    let most = u128::MAX;
    let over = with(&format!(r#""weights":{{"usage":"1"}},"groups":{{"a":"{most}","b":"1"}}"#));
    assert!(refusal(&over).starts_with("policy: assets[0].groups: the pools of the groups add up"));
    let limit = SMALLEST.replace("]}", r#"],"release":{"total_max":{"NOR":"1"}}}"#);
    assert_eq!(refusal(&limit), "policy: release.total_max.NOR: the policy has no such asset");
}

#[test]
fn pools_are_filled_in_and_overridden() {
    let open = Policy::parse(with(r#""weights":{"usage":"1"}"#).as_bytes()).expect("without a pool");
    assert!(!open.is_complete());
    let pools = |name: &str| BTreeMap::from([(name.to_owned(), 7)]);
    let filled = open.with_pools(&pools("RON")).expect("it has that asset");
    assert!(filled.is_complete());
    assert_eq!(filled.assets[0].total_pool(), Some(7));
    let fixed = Policy::parse(SMALLEST.as_bytes()).expect("with a pool");
    assert_eq!(fixed.with_pools(&pools("RON")).expect("overridden").assets[0].total_pool(), Some(7));
    assert!(open.with_pools(&pools("NOR")).expect_err("unknown").to_string().contains("no such asset"));
    let grouped = with(r#""weights":{"usage":"1"},"groups":{"a":"1","b":"2"}"#);
    let grouped = Policy::parse(grouped.as_bytes()).expect("with groups");
    assert_eq!(grouped.assets[0].total_pool(), Some(3));
    assert!(grouped.with_pools(&pools("RON")).is_err());
}

fn weights(texts: &[&str]) -> BTreeMap<String, Weight> {
    let parse = |text: &str| Weight::try_from(text.to_owned()).expect("a weight");
    texts.iter().enumerate().map(|(index, text)| (format!("m{index}"), parse(text))).collect()
}

#[test]
fn weights_become_whole_numbers_without_a_common_factor() {
    let most = u128::MAX.to_string();
    let (odd, other) = (format!("1/{}", 1_u128 << 126), format!("1/{}", 3 * (1_u128 << 126)));
    for (texts, expected) in [
        (&["1"][..], Some(vec![1])),
        (&["1/3", "1/2", "0"], Some(vec![2, 3, 0])),
        (&["6/4", "30/10"], Some(vec![1, 2])),
        (&[most.as_str(), "1"], Some(vec![u128::MAX, 1])),
        (&[most.as_str(), "1/2"], None),
        (&[odd.as_str(), other.as_str()], Some(vec![3, 1])),
    ] {
        let map = weights(texts);
        let found = integer_weights(&map).map(|found| found.into_values().collect::<Vec<u128>>());
        assert_eq!(found, expected, "{texts:?}");
    }
}

proptest! {
    #[test]
    fn hostile_text_is_read_or_refused_without_panic(text in "\\PC{0,200}", at in 0_usize..90, byte: u8) {
        let _ = Policy::parse(text.as_bytes());
        let mut bytes = SMALLEST.as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(policy) = Policy::parse(&bytes) {
            let written = serde_json::to_vec(&policy).expect("it can be written");
            prop_assert_eq!(Policy::parse(&written), Ok(policy));
        }
    }
}
