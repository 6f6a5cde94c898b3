//! A payee whom the ledger never pays: the epoch is corrected so that what was due to it goes to the others.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::Deadline;
use ron_types::Kind;

use super::corrections::uploaded;
use super::{Rig, reason};
use crate::correct::{Bounds, Correction};
use crate::hashing::parse_b3;
use crate::job::{Basis, Computed, RunError, Unwatched, settle};
use crate::service::emitter::settle_all;
use crate::service::{ReleaseRequest, Rewarder, correction, rig};
use crate::store::{EpochRow, EpochStatus, QuarantineReason, StoreError};

const NEVER_PAID: &str = "a003";

impl Rig {
    /// An epoch of four of whom the ledger refuses the last, and what it was computed from.
    async fn refused(&self) -> (Computed, Arc<EpochRow>) {
        self.ledger.book().refuses_account = Some(NEVER_PAID.to_owned());
        let paid = rig::computed("e1", rig::policy(""), 4, ron_calculus::allocate);
        self.seal("e1", "", 4);
        settle_all(&self.engine).await.expect("it ends");
        (paid, self.row("e1"))
    }

    /// Units that each account has, whatever run paid them.
    fn accounts(&self) -> std::collections::BTreeMap<String, u128> {
        let mut accounts = std::collections::BTreeMap::new();
        for (_, _, account, amount, is_back) in self.ledger.book().booked.values() {
            assert!(!is_back);
            *accounts.entry(account.clone()).or_default() += amount;
        }
        accounts
    }
}

/// The correction that leaves out the last actor, and says of these payouts that they were refused.
fn without_the_last(epoch: &str, paid: &Computed, row: &EpochRow, refused: &[&str]) -> Computed {
    let commitment = parse_b3(&row.commitment).expect("a hash");
    let refused: Vec<(String, String)> = refused.iter().map(|actor| ("RON".to_owned(), (*actor).to_owned())).collect();
    let correction = Correction::of(paid, commitment, Bounds::default()).and_then(|made| made.without(&refused));
    let correction = Some(correction.expect("they were due"));
    let basis = Basis { correction, ..rig::computed(epoch, rig::policy(""), 3, ron_calculus::allocate).basis };
    settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("computed")
}

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn an_epoch_with_an_impossible_payee_is_corrected_so_that_the_others_have_the_whole_pot() {
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    assert_eq!((row.status, reason(&row)), (EpochStatus::Quarantined, Some(QuarantineReason::Intent)));
    let fix = without_the_last("fix", &paid, &row, &[NEVER_PAID]);
    let run = uploaded(&fix);
    let store = rig.engine.store().expect("open");
    correction::admit(&rig.engine, store, &run).expect("let in");
    let again = correction::compute(&rig.engine, &run, &Unwatched, ron_calculus::allocate).expect("the same");
    assert_eq!(again.run_key, fix.run_key);
    let held = super::settle_down(&rig.engine, rig::computation(&rig.engine, fix.clone())).expect("sealed");
    assert_eq!(held.status, EpochStatus::Held);
    let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
    rewarder.release(&fix.basis.epoch, "ann", &ReleaseRequest::default(), deadline()).await.expect("released");
    // The account is opened again: nothing is due to it any more.
    rig.ledger.book().refuses_account = None;
    let lifted =
        rewarder.release(&paid.basis.epoch, "ann", &rig::LIFTS, deadline()).await.expect_err("it is corrected");
    assert_eq!(lifted.kind, Kind::Conflict);
    settle_all(&rig.engine).await.expect("paid");
    assert_eq!(rig.row("fix").status, EpochStatus::Settled);
    let accounts = rig.accounts();
    assert_eq!(accounts.values().sum::<u128>(), 1_000_003, "the pot, to the unit");
    let expected = rig::computed("e1", rig::policy(""), 3, ron_calculus::allocate);
    assert_eq!(accounts.len(), 3);
    let entitled = &expected.paying().1[0].amounts;
    assert!(accounts.values().zip(entitled).all(|(found, due)| found.abs_diff(*due) <= 1), "{accounts:?}");
    // Nothing of it happens twice, and nothing more is made of the run that was corrected.
    settle_all(&rig.engine).await.expect("nothing to do");
    let second = uploaded(&without_the_last("fix-2", &paid, &row, &[NEVER_PAID]));
    assert_eq!(correction::admit(&rig.engine, store, &second).expect_err("one correction").kind, Kind::Conflict);
    assert!(rewarder.release(&paid.basis.epoch, "ann", &rig::LIFTS, deadline()).await.is_err());
    assert_eq!(rig.accounts(), accounts);
}

#[tokio::test(start_paused = true)]
async fn what_a_correction_says_was_refused_is_what_the_ledger_refused() {
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    let store = rig.engine.store().expect("open");
    for refused in [&["a001"][..], &["a001", NEVER_PAID], &[]] {
        let run = uploaded(&without_the_last("fix", &paid, &row, refused));
        assert_eq!(
            correction::admit(&rig.engine, store, &run).expect_err("not so").kind,
            Kind::Conflict,
            "{refused:?}"
        );
        let computed = correction::compute(&rig.engine, &run, &Unwatched, ron_calculus::allocate);
        assert!(matches!(computed, Err(RunError::Order(_))), "{refused:?}");
    }
    let nobody = [("RON".to_owned(), "nobody".to_owned())];
    let correction = Correction::of(&paid, [7; 32], Bounds::default()).expect("it adds up");
    assert!(correction.without(&nobody).is_err(), "nothing was due");

    // Lifted while the correction is held, the epoch is paid as a whole: the correction is not paid any more.
    let fix = without_the_last("fix", &paid, &row, &[NEVER_PAID]);
    super::settle_down(&rig.engine, rig::computation(&rig.engine, fix)).expect("sealed");
    rig.ledger.book().refuses_account = None;
    let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
    rewarder.release(&paid.basis.epoch, "ann", &rig::LIFTS, deadline()).await.expect("lifted");
    settle_all(&rig.engine).await.expect("paid");
    assert_eq!(rig.row("e1").status, EpochStatus::Settled);
    assert!(matches!(store.release("fix", "ann", &rig.row("fix").commitment), Err(StoreError::PaidSince { .. })));
    assert_eq!(rig.accounts(), {
        let amounts = &paid.paying().1[0].amounts;
        (0..4).map(|number| (format!("a{number:03}"), amounts[number])).collect()
    });
}

/// Another node of the same ledger has paid, meanwhile, what was refused here.
#[tokio::test(start_paused = true)]
async fn a_correction_is_not_paid_if_the_ledger_has_since_booked_what_it_refused() {
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    let fix = without_the_last("fix", &paid, &row, &[NEVER_PAID]);
    super::settle_down(&rig.engine, rig::computation(&rig.engine, fix)).expect("sealed");
    rig.engine.store().expect("open").release("fix", "ann", &rig.row("fix").commitment).expect("released");
    rig.ledger.book().refuses_account = None;
    let other = Rig { ledger: rig.ledger.clone(), ..Rig::new() };
    let (engine, receivers) = rig::engine(&other.disk, &rig.ledger);
    let other = Rig { engine, receivers, ..other };
    super::recover(&other.engine).expect("a log");
    other.seal("e1", "", 4);
    settle_all(&other.engine).await.expect("paid");
    settle_all(&rig.engine).await.expect("it ends");
    assert_eq!(reason(&rig.row("fix")), Some(QuarantineReason::Intent));
    assert_eq!(rig.accounts().values().sum::<u128>(), 1_000_003);
}
