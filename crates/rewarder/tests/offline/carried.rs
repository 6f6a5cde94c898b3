//! A correction carries in what the corrected run carried in, and nobody can make it say something else.

use std::collections::BTreeMap;
use std::sync::Arc;

use ron_calculus::Units;
use ron_log::{Disk, RamDisk};
use svc_rewarder::correct::{Bounds, Correction};
use svc_rewarder::hashing::b3;
use svc_rewarder::job::{Basis, read, settle};
use svc_rewarder::verify::{Verification, verify};
use svc_rewarder::{Computed, RunError, Seal, SealedRun, Unwatched, artifacts};

use crate::{SMALLEST, Scratch, computed, cost, opened, units};

const ROWS: &str = "actor,quantity\nann,1\nbob,3\n";

/// Changes what a correction begins from.
type Forging = fn(&mut Correction);

/// A run that was paid, with forty units carried in from the one before.
struct Paid {
    computed: Computed,
    seal: Seal,
}

fn paid(scratch: &Scratch) -> Paid {
    let mut job = scratch.job(&[("u.csv", ROWS)], SMALLEST);
    (job.carry, job.carry_from) = (units("RON", 40), Some(b3(&[1; 32])));
    let computed = computed(&job);
    let disk = RamDisk::new();
    let seal = artifacts::write(&computed, &disk, 1, &Unwatched).expect("written");
    Paid { computed, seal }
}

/// What a correction of it follows from, with these units carried in.
fn basis(scratch: &Scratch, paid: &Paid, carry: BTreeMap<String, Units>) -> Basis {
    let mut job = scratch.job(&[("v.csv", "actor,quantity\nann,1\nbob,1\n")], SMALLEST);
    job.epoch = "fix".parse().expect("a name");
    (job.carry, job.carry_from) = (carry, Some(b3(&[1; 32])));
    let basis = read(&job, &Unwatched).expect("read");
    let correction = Correction::of(&paid.computed, paid.seal.commitment, Bounds::default()).expect("it adds up");
    Basis { correction: Some(correction.with_manifest(&paid.seal.bytes)), ..basis }
}

/// The correction, with what it begins from changed by whoever makes it, and its manifest kept beside it or not.
fn forged(basis: Basis, is_kept: bool, change: impl FnOnce(&mut Correction)) -> SealedRun {
    let mut correction = basis.correction.clone().expect("a correction");
    change(&mut correction);
    correction.manifest = correction.manifest.filter(|_| is_kept);
    let basis = Basis { correction: Some(correction), ..basis };
    let made = settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("it agrees with itself");
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    artifacts::write(&made, &*disk, 1, &Unwatched).expect("written");
    opened(&disk)
}

fn verified(run: &SealedRun) -> Verification {
    verify(run, &[], &cost(1), &Unwatched).expect("compared")
}

#[test]
fn a_correction_carries_what_was_really_carried() {
    let scratch = Scratch::new();
    let paid = paid(&scratch);
    let (true_carry, made_up) = (units("RON", 40), units("RON", 9_000));
    let refused = settle(basis(&scratch, &paid, made_up.clone()), 1, &Unwatched, ron_calculus::allocate);
    assert!(matches!(refused, Err(RunError::Order(_))), "{refused:?}");

    let honest = forged(basis(&scratch, &paid, true_carry), true, |_| {});
    let found = verified(&honest);
    assert!(found.is_clean(), "{found:?}");
    assert!(found.held.iter().any(|what| what.contains("40 units are carried in")), "{found:?}");

    // Whoever writes the folder by hand makes the rest of it agree.
    let lying = forged(basis(&scratch, &paid, made_up.clone()), true, |correction| correction.carry = made_up.clone());
    let found = verified(&lying);
    assert!(found.differs.iter().any(|what| what.contains("40 RON were carried in, not 9000 RON")), "{found:?}");
    assert!(lying.load().is_err(), "nothing is paid or proven from it");
}

#[test]
fn a_correction_of_a_version_that_kept_no_manifest_is_believed_beside_the_run_it_corrects() {
    let scratch = Scratch::new();
    let paid = paid(&scratch);
    let (true_carry, made_up) = (units("RON", 40), units("RON", 9_000));
    let old = || forged(basis(&scratch, &paid, true_carry.clone()), false, |_| {});
    let found = verified(&old());
    assert!(found.differs.iter().any(|what| what.contains("--corrects")), "{found:?}");
    assert!(old().load().is_ok(), "it opens as before");
    let found = verified(&old().beside(&paid.seal.bytes));
    assert!(found.is_clean(), "{found:?}");
    let lying =
        || forged(basis(&scratch, &paid, made_up.clone()), false, |correction| correction.carry = made_up.clone());
    for run in [lying(), lying().beside(&paid.seal.bytes)] {
        let found = verified(&run);
        assert!(!found.is_clean(), "{found:?}");
    }
}

#[test]
fn what_a_correction_says_was_paid_and_left_over_is_what_the_corrected_run_says() {
    let scratch = Scratch::new();
    let paid = paid(&scratch);
    let carry = units("RON", 40);
    let changes: [(&str, Forging); 4] = [
        ("less paid", |correction| correction.paid[0].1[0] -= 10),
        ("the same sum, paid to others", |correction| {
            correction.paid[0].1[0] -= 10;
            correction.paid[0].1[1] += 10;
        }),
        ("units left over that were not", |correction| {
            correction.reserved.insert("RON".to_owned(), Units(0));
        }),
        ("another run's manifest", |correction| correction.commitment = [9; 32]),
    ];
    for (what, change) in changes {
        let found = verified(&forged(basis(&scratch, &paid, carry.clone()), true, change));
        assert!(found.differs.iter().any(|told| told.contains("does not begin from")), "{what}: {found:?}");
    }
}
