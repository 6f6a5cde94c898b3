//! The power goes at every operation of the disk: there is a whole run, or none.

use std::sync::Arc;

use ron_log::{Disk, SimDisk};
use svc_rewarder::verify::verify;
use svc_rewarder::{SealedError, SealedRun, Unwatched, artifacts};

use crate::{MEMORY_BYTES, RICH, Scratch, computed, cost, usage};

/// What a power cut leaves of unsynced writes: nothing, everything, any sectors, any pages.
const SURVIVALS: u64 = 6;

#[test]
fn a_crash_leaves_a_whole_run_or_none() {
    let scratch = Scratch::new();
    let run = computed(&scratch.job(&[("u.csv", &usage(40))], RICH));
    let whole = SimDisk::new(1);
    let seal = artifacts::write(&run, &whole, 1, &Unwatched).expect("written");
    let (mut none, mut some) = (0, 0);
    for operation in 0..whole.operations() {
        let disk = SimDisk::new(1);
        disk.crash_at(operation);
        assert!(artifacts::write(&run, &disk, 1, &Unwatched).is_err(), "the power went at {operation}");
        for seed in 0..SURVIVALS {
            let found: Arc<dyn Disk> = Arc::new(disk.crash(seed));
            match SealedRun::open(Arc::clone(&found), MEMORY_BYTES, 1) {
                Err(SealedError::Missing) => none += 1,
                Err(error) => panic!("operation {operation} ({}), seed {seed}: {error}", disk.operation(operation)),
                Ok(opened) => {
                    let verified = verify(&opened, &[], &cost(1), &Unwatched).expect("compared");
                    assert!(verified.is_clean(), "operation {operation}, seed {seed}: {verified:?}");
                    some += 1;
                }
            }
            if !found.list().expect("listed").contains(&artifacts::MANIFEST.to_owned()) {
                let foreign = artifacts::foreign_file(&*found).expect("listed");
                assert_eq!(
                    foreign, None,
                    "operation {operation}, seed {seed}: what a crash leaves is known as its own"
                );
            }
            // Doing it again heals whatever was left, to the same bytes.
            artifacts::remove_leftovers(&*found).expect("removed");
            let again = artifacts::write(&run, &*found, 1, &Unwatched).expect("written");
            assert_eq!(again.commitment, seal.commitment);
            assert!(found.list().expect("listed").iter().all(|name| !name.starts_with(artifacts::TEMPORARY)));
        }
    }
    assert!(none > 0 && some > 0, "{none} without a run, {some} with one");
}

#[test]
fn files_of_others_are_known_and_stay_whatever_they_are_called() {
    let scratch = Scratch::new();
    let run = computed(&scratch.job(&[("u.csv", &usage(40))], RICH));
    for name in ["tmp-notes.txt", "tmp-", "policy.json", "usage.parquet", "commitment", "paid.ndjson", "README"] {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        disk.create(name).expect("made").write_at(0, b"mine").expect("written");
        assert_eq!(artifacts::foreign_file(&*disk).expect("listed").as_deref(), Some(name));
        assert_eq!(artifacts::remove_leftovers(&*disk).expect("looked"), 0, "{name}");
        // Beside what a crash left, too.
        for unfinished in ["tmp-usage.parquet", "tmp-run.json"] {
            disk.create(unfinished).expect("made").write_at(0, b"{").expect("written");
        }
        assert_eq!(artifacts::foreign_file(&*disk).expect("listed").as_deref(), Some(name));
        assert_eq!(artifacts::remove_leftovers(&*disk).expect("removed"), 2, "{name}");
        assert_eq!(disk.list().expect("listed"), [name]);
    }
    let disk = SimDisk::new(1);
    artifacts::write(&run, &disk, 1, &Unwatched).expect("written");
    assert_eq!(artifacts::remove_leftovers(&disk).expect("looked"), 0, "a whole run is no leftover");
}

#[test]
fn a_failing_disk_leaves_no_manifest() {
    let scratch = Scratch::new();
    let run = computed(&scratch.job(&[("u.csv", &usage(40))], RICH));
    let whole = SimDisk::new(1);
    artifacts::write(&run, &whole, 1, &Unwatched).expect("written");
    for number in 0..whole.syncs() - 1 {
        let disk = SimDisk::new(1);
        disk.fail_sync(number);
        let error = artifacts::write(&run, &disk, 1, &Unwatched).expect_err("a sync failed");
        assert!(!error.is_refusal(), "the machine is to blame: {error}");
        let found: Arc<dyn Disk> = Arc::new(disk.restart());
        assert!(matches!(SealedRun::open(found, MEMORY_BYTES, 1).err(), Some(SealedError::Missing)), "sync {number}");
    }
}
