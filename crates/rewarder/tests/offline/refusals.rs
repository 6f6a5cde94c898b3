//! Bad input is refused with the place and the reason, and nothing is computed.

use ron_usage::{InputError, InputFile};
use svc_rewarder::job::{Watch, compute_pinned};
use svc_rewarder::{PolicyDocument, RunError, Stage, Trust, Unwatched, compute};

use crate::{SMALLEST, Scratch};

#[test]
fn rows_that_cannot_be_counted_are_named() {
    let scratch = Scratch::new();
    for (quantity, what) in [
        ("-1", "negative"),
        ("NaN", "not a whole number"),
        ("1.5", "fraction"),
        ("1e3", "exponent"),
        ("", "empty"),
        ("340282366920938463463374607431768211456", "too large"),
    ] {
        let rows = format!("actor,quantity\nann,1\nbob,{quantity}\n");
        let error = compute(&scratch.job(&[("u.csv", &rows)], SMALLEST), &Unwatched).expect_err(what);
        assert!(error.is_refusal(), "{what}");
        let RunError::Input(InputError::BadRows { count, first }) = error else { panic!("{what}: {error}") };
        assert_eq!((count, first[0].row, first[0].file.as_str()), (1, 2, "u.csv"), "{what}");
        assert_eq!(first[0].column.as_deref(), Some("quantity"), "{what}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let scratch = Scratch::new();
    for (name, bytes) in [
        ("wrong.csv", b"actor,amount\nann,1\n".to_vec()),
        ("cut.parquet", b"PAR1\0\0\0\0".to_vec()),
        ("junk.parquet", [b"PAR1".as_slice(), &[0xff; 64], b"PAR1"].concat()),
    ] {
        let mut job = scratch.job(&[], SMALLEST);
        job.inputs = vec![InputFile::new(name, scratch.write(name, bytes))];
        let error = compute(&job, &Unwatched).expect_err(name);
        assert!(error.is_refusal() && error.to_string().contains(name), "{name}: {error}");
    }
}

#[test]
fn an_id_that_names_a_pot_is_refused() {
    let scratch = Scratch::new();
    let run = |actor: &str| {
        let rows = format!("actor,quantity\nann,1\n{actor},1\nzoe,1\n");
        compute(&scratch.job(&[("u.csv", &rows)], SMALLEST), &Unwatched)
    };
    for pot in ["epoch/2026-11", "epoch/", "epoch/a/b"] {
        let error = run(pot).expect_err(pot);
        assert!(error.is_refusal() && error.to_string().contains("`epoch/`"), "{error}");
    }
    for payee in ["epoch", "epoch0", "epoch.1", "Epoch/1", "my/epoch/1"] {
        run(payee).expect(payee);
    }
}

#[test]
fn a_pinned_file_has_these_bytes_whatever_another_file_has() {
    let scratch = Scratch::new();
    let (small, large) = ("actor,quantity\nann,1\n", "actor,quantity\neve,99\n");
    let job = scratch.job(&[("small.csv", small), ("large.csv", large)], SMALLEST);
    let hash = |text: &str| Some(*blake3::hash(text.as_bytes()).as_bytes());
    for (pins, wrong) in [
        ([hash(small), hash(large)], None),
        ([None, hash(large)], None),
        ([hash(large), hash(large)], Some("small.csv")),
        ([hash(large), None], Some("small.csv")),
        ([hash(small), hash(small)], Some("large.csv")),
    ] {
        let run = compute_pinned(&job, &pins, &Unwatched, ron_calculus::allocate);
        let told = run.err().map(|error| error.to_string());
        assert_eq!(told.is_some(), wrong.is_some(), "{pins:?}: {told:?}");
        assert!(wrong.is_none_or(|name| told.is_some_and(|told| told.starts_with(name))), "{pins:?}");
    }
}

#[test]
fn totals_past_128_bits_are_refused() {
    let scratch = Scratch::new();
    let most = u128::MAX;
    let rows = format!("actor,quantity\nann,{most}\nann,1\n");
    let error = compute(&scratch.job(&[("u.csv", &rows)], SMALLEST), &Unwatched).expect_err("too much");
    assert!(matches!(error, RunError::Input(InputError::Overflow { .. })), "{error}");
    let rows = format!("actor,quantity\nann,{most}\nbob,1\n");
    let run = compute(&scratch.job(&[("u.csv", &rows)], SMALLEST), &Unwatched).expect("read");
    assert!(run.outcome.is_err(), "the sum of all scores leaves 128 bits: quarantine");
}

#[test]
fn policies_that_cannot_be_run_are_refused() {
    let trust = Trust { allows_unsigned: true, ..Trust::default() };
    for (policy, word) in [
        (SMALLEST.replace("\"ruleset\":1", "\"ruleset\":9"), "ruleset"),
        (SMALLEST.replace("\"pool\"", "\"pull\""), "pull"),
        (SMALLEST.replace("\"1000000\"", "1000000"), "string"),
        (SMALLEST.replace("\"1\"", "\"-1\""), "-1"),
        ("{".to_owned(), "EOF"),
        ("[]".to_owned(), ""),
    ] {
        let error = PolicyDocument::read(policy.as_bytes(), trust).expect_err(&policy).to_string();
        assert!(error.contains(word), "{policy}: {error}");
    }
}

#[test]
fn a_run_stops_when_it_is_told_to() {
    struct StopAt(Stage);
    impl Watch for StopAt {
        fn at(&self, stage: Stage, _done: u64, _of: u64) -> bool {
            stage != self.0
        }
    }
    let scratch = Scratch::new();
    let job = scratch.job(&[("u.csv", "actor,quantity\nann,1\n")], SMALLEST);
    for stage in [Stage::Reading, Stage::Dividing, Stage::Rooting] {
        let stopped = compute(&job, &StopAt(stage));
        assert!(matches!(stopped, Err(RunError::Stopped)), "{stage:?}");
    }
    let computed = compute(&job, &StopAt(Stage::Writing)).expect("computed");
    let disk = ron_log::RamDisk::new();
    let stopped = svc_rewarder::artifacts::write(&computed, &disk, 1, &StopAt(Stage::Writing));
    assert!(matches!(stopped, Err(RunError::Stopped)));
}
