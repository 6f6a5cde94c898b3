//! A written run is opened, verified and explained; a changed one is found out.

use std::sync::Arc;

use ron_calculus::Units;
use ron_log::{Disk, RamDisk};
use ron_usage::InputFile;
use svc_rewarder::artifacts::{
    ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, COMMITMENT, ENVELOPE, INPUT_NAMES, MANIFEST, POLICY, USAGE,
};
use svc_rewarder::envelope::Envelope;
use svc_rewarder::hashing::b3;
use svc_rewarder::job::{self, Basis};
use svc_rewarder::manifest::{FORMAT, FORMAT_WITH_NAMES};
use svc_rewarder::verify::verify;
use svc_rewarder::{
    Computed, PolicyDocument, SealedError, SealedRun, SigningKey, Trust, TrustedKeys, Unwatched, artifacts, compute,
};

use crate::{MEMORY_BYTES, RICH, SMALLEST, Scratch, cost, files, opened, units, usage, written};

/// A copy of a folder with one file changed.
fn changed(disk: &dyn Disk, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Arc<dyn Disk> {
    let copy: Arc<dyn Disk> = Arc::new(RamDisk::new());
    let mut files = files(disk);
    change(files.get_mut(name).expect("there"));
    for (name, bytes) in files {
        copy.create(&name).expect("made").write_at(0, &bytes).expect("written");
    }
    copy
}

#[test]
fn a_run_is_its_folder() {
    let scratch = Scratch::new();
    let job = scratch.job(&[("u.csv", &usage(500))], RICH);
    let (disk, seal) = written(&job);
    let names: Vec<String> = files(&*disk).into_keys().collect();
    let mut expected = [ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, COMMITMENT, INPUT_NAMES, POLICY, MANIFEST, USAGE];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let found = files(&*disk);
    assert_eq!(found[COMMITMENT], format!("{}\n", b3(blake3::hash(&found[MANIFEST]).as_bytes())).into_bytes());
    assert_eq!(seal.manifest.policy.hash, b3(blake3::hash(&found[POLICY]).as_bytes()), "`b3sum policy.json`");
    let text = String::from_utf8(found[MANIFEST].clone()).expect("text");
    assert!(!text.contains(&*scratch.path().to_string_lossy()), "no path of a machine: {text}");
    let run = opened(&disk);
    let verified = verify(&run, &[], &cost(2), &Unwatched).expect("verified");
    assert!(verified.is_clean(), "{verified:?}");
    let again = verify(&run, &job.inputs, &cost(1), &Unwatched).expect("verified");
    assert!(again.is_clean() && again.held.len() == verified.held.len() + 2, "{again:?}");
    let other = InputFile::new("v.csv", scratch.write("v.csv", "actor,quantity\nann,1\n"));
    let wrong = verify(&run, &[other], &cost(1), &Unwatched).expect("compared");
    assert_eq!(wrong.differs.len(), 2, "{wrong:?}");
}

#[test]
fn the_smallest_run_is_what_was_promised() {
    let scratch = Scratch::new();
    let (disk, seal) = written(&scratch.job(&[("u.csv", "actor,quantity\nbob,1\nann,2\nzoe,0\n")], SMALLEST));
    let lines = files(&*disk).remove(ALLOCATIONS_NDJSON).expect("there");
    let expected = "{\"actor\":\"ann\",\"asset\":\"RON\",\"amount\":\"666667\"}\n\
                    {\"actor\":\"bob\",\"asset\":\"RON\",\"amount\":\"333333\"}\n\
                    {\"actor\":\"zoe\",\"asset\":\"RON\",\"amount\":\"0\"}\n";
    assert_eq!(String::from_utf8(lines).expect("text"), expected);
    let facts = &seal.manifest.assets[0];
    assert_eq!((facts.pool, facts.paid, facts.delta, facts.payees), (Units(1_000_000), Units(1_000_000), Units(0), 2));
    assert!(!seal.manifest.policy.signed);
    let run = opened(&disk);
    let explained = run.explain("zoe").expect("explained");
    assert_eq!((explained.assets[0].amount, explained.assets[0].why_zero.is_some()), (Units(0), true));
    assert_eq!(run.explain("ann").expect("explained").assets[0].amount, Units(666_667));
}

#[test]
fn a_golden_run_keeps_its_commitment() {
    let scratch = Scratch::new();
    let job = scratch.job(&[("u.csv", &usage(64))], RICH);
    // Whoever changes one of these changes what published runs mean: then the ruleset or the format needs a new number.
    for (format, commitment) in [
        (FORMAT_WITH_NAMES, "b3:c80be30d90caba7cf248ddd854da46c78855f317cd079152bb551832af7f41b0"),
        (FORMAT, "b3:659e0e53bd03464bdc02391f296d12c25e0eccf232a82039c748b5faa64bc63a"),
    ] {
        let basis = Basis { format, ..job::read(&job, &Unwatched).expect("read") };
        let computed = job::settle(basis, 2, &Unwatched, ron_calculus::allocate).expect("computed");
        let seal = artifacts::seal_of(&computed, 2, &Unwatched).expect("hashed");
        assert_eq!(b3(&seal.commitment), commitment, "format {format}");
    }
}

#[test]
fn every_changed_file_is_found_out() {
    let scratch = Scratch::new();
    let (disk, _) = written(&scratch.job(&[("u.csv", &usage(50))], RICH));
    for name in [ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, POLICY, USAGE] {
        let changed = changed(&*disk, name, |bytes| bytes[10] ^= 1);
        let run = opened(&changed);
        let found = verify(&run, &[], &cost(1), &Unwatched).expect("compared");
        assert!(found.differs.iter().any(|what| what.starts_with(name)), "{name}: {found:?}");
        let is_needed = [POLICY, USAGE].contains(&name);
        assert_eq!(run.load().is_err(), is_needed, "{name}: what is used is checked");
    }
    for name in [MANIFEST, COMMITMENT] {
        let changed = changed(&*disk, name, |bytes| bytes[10] ^= 1);
        let refused = SealedRun::open(changed, MEMORY_BYTES, 1).err();
        assert!(matches!(refused, Some(SealedError::Damaged { .. })), "{name}: {refused:?}");
    }
    let empty: Arc<dyn Disk> = Arc::new(RamDisk::new());
    assert!(matches!(SealedRun::open(empty, MEMORY_BYTES, 1).err(), Some(SealedError::Missing)));
}

#[test]
fn want_of_memory_is_not_called_damage_and_the_memory_of_the_run_is_enough() {
    let scratch = Scratch::new();
    let (disk, _) = written(&scratch.job(&[("u.csv", &usage(20_000))], RICH));
    let open = |memory_bytes: u64| SealedRun::open(Arc::clone(&disk), memory_bytes, 1).expect("opened");
    for memory_bytes in [1_000, 100_000] {
        let refused = open(memory_bytes).load().err();
        let kind = match &refused {
            Some(SealedError::Io(error)) => error.kind(),
            other => panic!("with {memory_bytes} bytes of memory: {other:?}"),
        };
        assert_eq!(kind, std::io::ErrorKind::OutOfMemory);
    }
    // Tables double as they grow: what the totals take is enough all the same.
    let totals_bytes: u64 = 20_000 * (16 + 2 * 18) + usage(20_000).len() as u64 / 2;
    open(totals_bytes).load().expect("whole");
    let cut = changed(&*disk, USAGE, |bytes| bytes.truncate(100));
    assert!(matches!(opened(&cut).load().err(), Some(SealedError::Damaged { .. })));
}

#[test]
fn a_forged_manifest_with_its_own_commitment_does_not_verify() {
    let scratch = Scratch::new();
    let (disk, _) = written(&scratch.job(&[("u.csv", &usage(50))], RICH));
    let forged = changed(&*disk, MANIFEST, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("text");
        *bytes = text.replace("\"payees\":", "\"payees\":1").into_bytes();
    });
    let bytes = files(&*forged)[MANIFEST].clone();
    let commitment = format!("{}\n", b3(blake3::hash(&bytes).as_bytes()));
    forged.create(COMMITMENT).expect("made").write_at(0, commitment.as_bytes()).expect("written");
    let run = opened(&forged);
    let found = verify(&run, &[], &cost(1), &Unwatched).expect("compared");
    assert!(!found.is_clean(), "{found:?}");
    assert!(matches!(run.load().err(), Some(SealedError::Damaged { .. })));
}

#[test]
fn a_manifest_cannot_lead_out_of_its_folder() {
    let scratch = Scratch::new();
    let (disk, seal) = written(&scratch.job(&[("u.csv", &usage(5))], RICH));
    for name in ["../secret", "/dev/zero", MANIFEST] {
        let mut manifest = seal.manifest.clone();
        manifest.artifacts.insert(name.to_owned(), b3(&[0; 32]));
        let bytes = manifest.to_bytes().expect("canonical");
        let forged = changed(&*disk, MANIFEST, |file| file.clone_from(&bytes));
        let commitment = b3(blake3::hash(&bytes).as_bytes());
        forged.create(COMMITMENT).expect("made").write_at(0, commitment.as_bytes()).expect("written");
        let refused = SealedRun::open(forged, MEMORY_BYTES, 1).err().expect("refused").to_string();
        assert!(refused.contains(name), "{refused}");
    }
}

#[test]
fn a_signed_policy_stays_signed() {
    let scratch = Scratch::new();
    let keys: Vec<SigningKey> = (0..2).map(|_| SigningKey::generate().expect("made")).collect();
    let trusted = TrustedKeys { threshold: 2, keys: keys.iter().map(SigningKey::public).collect() };
    let mut envelope = Envelope::around(SMALLEST.as_bytes());
    keys.iter().for_each(|key| envelope.sign(key).expect("signed"));
    let trust = Trust { keys: Some(&trusted), allows_unsigned: false };
    let mut job = scratch.job(&[("u.csv", "actor,quantity\nann,1\nbob,3\n")], SMALLEST);
    let unsigned = written(&job).1.manifest;
    job.policy = PolicyDocument::read(envelope.to_text().as_bytes(), trust).expect("signed");
    job.pools = units("RON", 1_000_000);
    let (disk, seal) = written(&job);
    assert!(seal.manifest.policy.signed && seal.manifest.policy.signers.len() == 2);
    assert_eq!(seal.manifest.run_key, unsigned.run_key, "a signature moves no unit");
    let run = opened(&disk);
    let found = verify(&run, &[], &cost(1), &Unwatched).expect("compared");
    assert!(found.is_clean(), "{found:?}");
    run.check_signatures(&trusted).expect("by these keys");
    let stranger = TrustedKeys { threshold: 1, keys: vec![SigningKey::generate().expect("made").public()] };
    assert!(run.check_signatures(&stranger).is_err());
    let changed = changed(&*disk, ENVELOPE, |bytes| bytes[20] ^= 1);
    assert!(opened(&changed).load().is_err());
}

#[test]
fn what_is_left_over_is_carried() {
    let scratch = Scratch::new();
    let policy = SMALLEST.replace("\"weights\"", "\"rounding\":\"floor_carry\",\"weights\"");
    let rows = "actor,quantity\na,1\nb,1\nc,1\n";
    let (disk, seal) = written(&scratch.job(&[("u.csv", rows)], &policy));
    assert_eq!(seal.manifest.assets[0].delta, Units(1));
    let run = opened(&disk);
    let mut next = scratch.job(&[("u.csv", rows)], &policy);
    next.epoch = "2026-12".parse().expect("an epoch");
    next.carry = run.left_over();
    next.carry_from = Some(b3(&run.commitment()));
    let (disk, seal) = written(&next);
    assert_eq!((seal.manifest.assets[0].pool, seal.manifest.assets[0].delta), (Units(1_000_001), Units(2)));
    assert_eq!(seal.manifest.carry, units("RON", 1));
    assert!(verify(&opened(&disk), &[], &cost(1), &Unwatched).expect("compared").is_clean());
    next.carry = units("XYZ", 1);
    let refused = compute(&next, &Unwatched).expect_err("an asset that nobody pays");
    assert!(refused.is_refusal() && refused.to_string().contains("XYZ"), "{refused}");
}

#[test]
fn a_breach_is_sealed_in_quarantine_and_pays_nobody() {
    let scratch = Scratch::new();
    let job = scratch.job(&[("u.csv", "actor,quantity\nann,1\nbob,3\n")], SMALLEST);
    let wrong = svc_rewarder::job::compute_with(&job, &Unwatched, |question| {
        let mut allocations = ron_calculus::allocate(question)?;
        allocations[0].amounts[0] += 1;
        Ok(allocations)
    });
    let wrong: Computed = wrong.expect("a run, though one in quarantine");
    assert!(wrong.outcome.as_ref().expect_err("caught").to_string().starts_with("conservation"), "{wrong:?}");
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    let seal = artifacts::write(&wrong, &*disk, 1, &Unwatched).expect("sealed");
    assert!(seal.manifest.reason.is_some() && seal.manifest.assets.is_empty() && seal.manifest.intents.is_empty());
    assert!(svc_rewarder::Intents::of(&wrong).batch(0, 10).is_none());
    let refused = opened(&disk).load().err();
    assert!(matches!(refused, Some(SealedError::Quarantined(_))), "{refused:?}");
}
