//! The same inputs give the same bytes, however many threads there are and however the rows are split.

use svc_rewarder::artifacts::{ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, USAGE};

use crate::{RICH, Scratch, cost, files, units, usage, written};

#[test]
fn threads_change_no_byte_of_any_file() {
    let scratch = Scratch::new();
    let mut job = scratch.job(&[("a.csv", &usage(4500))], RICH);
    let mut first = None;
    for threads in [1, 2, 8] {
        job.cost = cost(threads);
        let found = files(&*written(&job).0);
        assert_eq!(found.len(), 7, "{:?}", found.keys());
        let first = first.get_or_insert_with(|| found.clone());
        for (name, bytes) in &found {
            assert!(first[name] == *bytes, "{name} differs with {threads} threads");
        }
    }
}

#[test]
fn splitting_and_order_change_no_amount_and_no_root() {
    let scratch = Scratch::new();
    let text = usage(300);
    let (header, rows) = text.split_once('\n').expect("a header");
    let whole = written(&scratch.job(&[("a.csv", &text)], RICH));
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.reverse();
    let (first, second) = rows.split_at(100);
    let part = |rows: &[&str]| format!("{header}\n{}\n", rows.join("\n"));
    let parts = [("b.csv", part(second)), ("a.csv", part(first)), ("empty.csv", header.to_owned() + "\n")];
    let parts: Vec<(&str, &str)> = parts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let split = written(&scratch.job(&parts, RICH));
    let turned: Vec<(&str, &str)> = parts.iter().rev().copied().collect();
    assert_eq!(
        written(&scratch.job(&turned, RICH)).1.bytes,
        split.1.bytes,
        "the order of files is not in the manifest"
    );
    let (whole_files, split_files) = (files(&*whole.0), files(&*split.0));
    for name in [ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, USAGE] {
        assert!(whole_files[name] == split_files[name], "{name}");
    }
    assert_eq!(whole.1.manifest.run_key, split.1.manifest.run_key);
    assert_eq!(whole.1.manifest.assets, split.1.manifest.assets);
    assert_ne!(whole.1.commitment, split.1.commitment, "the files are others, and the manifest says so");
}

#[test]
fn one_flipped_byte_is_another_commitment() {
    let scratch = Scratch::new();
    let text = "actor,quantity\nann,17\nbob,20\n".to_owned();
    let expected = written(&scratch.job(&[("u.csv", &text)], RICH)).1.commitment;
    let mut tried = 0;
    for (place, byte) in text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_alphanumeric()).skip(13) {
        let mut flipped = text.clone().into_bytes();
        flipped[place] = byte ^ 1;
        let flipped = String::from_utf8(flipped).expect("ASCII");
        let found = written(&scratch.job(&[("u.csv", &flipped)], RICH)).1.commitment;
        assert_ne!(found, expected, "byte {place}: {flipped}");
        tried += 1;
    }
    assert_eq!(tried, 10);
    let policy = RICH.replace("1000003", "1000002");
    assert_ne!(written(&scratch.job(&[("u.csv", &text)], &policy)).1.commitment, expected);
}

#[test]
fn pools_and_carry_given_with_the_run_are_in_its_key() {
    let scratch = Scratch::new();
    let mut job = scratch.job(&[("u.csv", "actor,quantity\nann,1\nbob,2\n")], RICH);
    let plain = written(&job).1.manifest;
    job.pools = units("USDC", 777);
    let given = written(&job).1.manifest;
    assert_eq!(given.run_key, plain.run_key, "the pool is the same, whoever said it");
    assert_eq!(given.policy.pools_overridden, units("USDC", 777));
    job.pools = units("USDC", 778);
    assert_ne!(written(&job).1.manifest.run_key, plain.run_key);
    job.pools.clear();
    job.carry = units("RON", 5);
    let carried = written(&job).1.manifest;
    assert_ne!(carried.run_key, plain.run_key);
    assert_eq!(carried.assets[0].pool.0, plain.assets[0].pool.0 + 5);
    job.carry = units("RON", 0);
    assert_eq!(written(&job).1.manifest.run_key, plain.run_key, "nothing carried is nothing");
}
