//! A payee whom the ledger never pays: the epoch is corrected so that what was due to it goes to the others.

use std::sync::Arc;
use std::time::Duration;

use ron_calculus::Breach;
use ron_kernel::Deadline;
use ron_types::Kind;

use super::corrections::uploaded;
use super::{Rig, reason};
use crate::correct::{Bounds, Correction};
use crate::hashing::parse_b3;
use crate::intents::intent_key;
use crate::job::{Basis, Computed, RunError, Unwatched, settle};
use crate::service::emitter::settle_all;
use crate::service::engine::{Begun, Computation};
use crate::service::request::Prepared;
use crate::service::scheduler::schedule;
use crate::service::writer::settle_down;
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

    /// Has a correction sealed, released and paid.
    async fn pay_correction(&self, fix: Computed) {
        settle_down(&self.engine, rig::computation(&self.engine, fix)).expect("sealed");
        let store = self.engine.store().expect("open");
        store.release("fix", "ann", &self.row("fix").commitment).expect("released");
        settle_all(&self.engine).await.expect("paid");
        assert_eq!(self.row("fix").status, EpochStatus::Settled, "{:?}", self.row("fix").quarantine);
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
    let held = settle_down(&rig.engine, rig::computation(&rig.engine, fix.clone())).expect("sealed");
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
    settle_down(&rig.engine, rig::computation(&rig.engine, fix)).expect("sealed");
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
    let mut rig = Rig::new();
    let (paid, row) = rig.refused().await;
    let fix = without_the_last("fix", &paid, &row, &[NEVER_PAID]);
    settle_down(&rig.engine, rig::computation(&rig.engine, fix)).expect("sealed");
    rig.engine.store().expect("open").release("fix", "ann", &rig.row("fix").commitment).expect("released");
    rig.ledger.book().refuses_account = None;
    let other = Rig { ledger: rig.ledger.clone(), ..Rig::new() };
    let (engine, receivers) = rig::engine(&other.disk, &rig.ledger);
    let other = Rig { engine, receivers, ..other };
    super::recover(&other.engine).expect("a log");
    other.seal("e1", "", 4);
    settle_all(&other.engine).await.expect("paid");
    settle_all(&rig.engine).await.expect("it ends");
    let over = rig.row("fix");
    assert_eq!(reason(&over), Some(QuarantineReason::Rejected), "nothing of it is booked");
    assert_eq!(rig.accounts().values().sum::<u128>(), 1_000_003);

    // It keeps neither the corrected run nor its name.
    let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
    rewarder.release(&paid.basis.epoch, "ann", &rig::LIFTS, deadline()).await.expect("lifted");
    settle_all(&rig.engine).await.expect("paid");
    assert_eq!(rig.row("e1").status, EpochStatus::Settled);
    let commitment = parse_b3(&row.commitment).expect("a hash");
    let correction = Some(Correction::of(&paid, commitment, Bounds::default()).expect("it adds up"));
    let basis = Basis { correction, ..rig::computed("fix", rig::policy(""), 5, ron_calculus::allocate).basis };
    let right = settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("computed");
    correction::admit(&rig.engine, rig.engine.store().expect("open"), &uploaded(&right)).expect("let in");
    let prepared = Prepared { hash: [9; 32], ..rig::prepared(&right) };
    assert_eq!(schedule(&rig.engine, prepared).await.expect("its name is free"), Begun::Started);
    let ticket = rig.engine.next_ticket(&mut rig.receivers.jobs).await.expect("a run");
    let (written, _) = tokio::sync::oneshot::channel();
    let held = settle_down(&rig.engine, Computation { ticket, outcome: Ok(Box::new(right)), written }).expect("sealed");
    assert!(held.is_in_place_of_rejected(), "whoever releases it names its commitment: {held:?}");
    let (epoch, nameless) = (over.epoch.parse().expect("a name"), ReleaseRequest::default());
    let nameless = rewarder.release(&epoch, "ann", &nameless, deadline()).await.expect_err("which one?");
    assert!(nameless.detail.contains("look at it"));
}

#[tokio::test(start_paused = true)]
async fn an_epoch_that_another_run_has_paid_is_no_epoch_with_refused_payees() {
    let rig = Rig::new();
    rig.seal("e1", "", 4);
    settle_all(&rig.engine).await.expect("paid");
    let accounts = rig.accounts();
    // A node whose seal log is older, or which never had one, computes the epoch from other usage.
    let other = Rig::new();
    let (engine, receivers) = rig::engine(&other.disk, &rig.ledger);
    let other = Rig { engine, receivers, ledger: rig.ledger.clone(), ..other };
    super::recover(&other.engine).expect("a log");
    let computed = rig::computed("e1", rig::policy(""), 3, ron_calculus::allocate);
    let row = other.seal("e1", "", 3);
    assert_ne!(row.run_key, rig.row("e1").run_key);
    settle_all(&other.engine).await.expect("it ends");
    let row = other.row("e1");
    assert_eq!((reason(&row), row.unpaid.as_ref()), (Some(QuarantineReason::Intent), None), "{row:?}");
    assert!(row.quarantine.as_ref().is_some_and(|why| why.detail.contains("pot taken")), "{row:?}");
    let run = uploaded(&without_the_last("fix", &computed, &row, &["a000", "a001", "a002"]));
    let store = other.engine.store().expect("open");
    assert_eq!(correction::admit(&other.engine, store, &run).expect_err("nothing was refused").kind, Kind::Conflict);
    assert_eq!(rig.accounts(), accounts, "the pot is paid once");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_lost_a_run_and_its_correction_has_both_again_once_after_a_resend() {
    for is_still_refused in [true, false] {
        let rig = Rig::new();
        let (paid, row) = rig.refused().await;
        rig.pay_correction(without_the_last("fix", &paid, &row, &[NEVER_PAID])).await;
        let (accounts, booked) = (rig.accounts(), rig.ledger.book().booked.clone());
        {
            let mut book = rig.ledger.book();
            (book.booked, book.payers, book.followers) = Default::default();
            book.refuses_account = book.refuses_account.take().filter(|_| is_still_refused);
        }
        assert!(settle_all(&rig.engine).await.is_err(), "the ledger lacks what is settled");
        let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
        assert_eq!(rewarder.resend("ann", false, deadline()).await.expect("asked").len(), 1);
        settle_all(&rig.engine).await.expect("sent again");
        assert_eq!((rig.accounts(), &rig.ledger.book().booked), (accounts, &booked));
        rig.seal("e2", "", 3);
        settle_all(&rig.engine).await.expect("epochs are paid again");
        assert_eq!(rig.row("e2").status, EpochStatus::Settled);
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_is_due_nothing_in_the_correction() {
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    let basis = without_the_last("fix", &paid, &row, &[NEVER_PAID]).basis;
    let all = rig::computed("fix", rig::policy(""), 4, ron_calculus::allocate).basis;
    let again = settle(Basis { correction: basis.correction, ..all }, 1, &Unwatched, ron_calculus::allocate);
    let outcome = again.expect("computed").outcome;
    let breach = outcome.expect_err("it would be paid again");
    assert!(matches!(&breach, Breach::Schema(why) if why.contains("leave it out of the usage")), "{breach}");
}

#[tokio::test(start_paused = true)]
async fn what_an_epoch_with_refused_payees_left_over_is_carried_once_its_correction_is_settled() {
    let leaves_some = r#"{"id":"demo","ruleset":1,"assets":[
        {"asset":"RON","pool":"101","rounding":"floor_carry","weights":{"usage":"1"}}]}"#;
    let policy = || ron_calculus::Policy::parse(leaves_some.as_bytes()).expect("a policy");
    let rig = Rig::new();
    rig.ledger.book().refuses_account = Some(NEVER_PAID.to_owned());
    let paid = rig::computed("e1", policy(), 4, ron_calculus::allocate);
    settle_down(&rig.engine, rig::computation(&rig.engine, paid.clone())).expect("sealed");
    settle_all(&rig.engine).await.expect("it ends");
    let next = rig::computed("e2", policy(), 4, ron_calculus::allocate);
    let carries =
        || Prepared { carry_from: Some("e1".parse().expect("a name")), hash: [2; 32], ..rig::prepared(&next) };
    assert_eq!(schedule(&rig.engine, carries()).await.expect_err("not corrected").kind, Kind::NotFound);
    let fix = without_the_last("fix", &paid, &rig.row("e1"), &[NEVER_PAID]);
    let fix = Basis { policy: policy(), document: paid.basis.document.clone(), ..fix.basis };
    rig.pay_correction(settle(fix, 1, &Unwatched, ron_calculus::allocate).expect("computed")).await;
    assert_eq!(schedule(&rig.engine, carries()).await.expect("its leftovers are there"), Begun::Started);
}

#[tokio::test(start_paused = true)]
async fn a_correction_that_cannot_begin_is_over_and_keeps_nothing() {
    let release = |rig: &Rig, fix: &Computed| {
        settle_down(&rig.engine, rig::computation(&rig.engine, fix.clone())).expect("sealed");
        rig.engine.store().expect("open").release("fix", "ann", &rig.row("fix").commitment).expect("released");
    };
    // The others have as much as they may, so that it pays nobody and the ledger would not hear of it.
    let capped =
        r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"100","cap":"10","weights":{"usage":"1"}}]}"#;
    let policy = || ron_calculus::Policy::parse(capped.as_bytes()).expect("a policy");
    let rig = Rig::new();
    rig.ledger.book().refuses_account = Some(NEVER_PAID.to_owned());
    let paid = rig::computed("e1", policy(), 4, ron_calculus::allocate);
    settle_down(&rig.engine, rig::computation(&rig.engine, paid.clone())).expect("sealed");
    settle_all(&rig.engine).await.expect("it ends");
    let fix = without_the_last("fix", &paid, &rig.row("e1"), &[NEVER_PAID]);
    let fix = Basis { policy: policy(), document: paid.basis.document.clone(), ..fix.basis };
    release(&rig, &settle(fix, 1, &Unwatched, ron_calculus::allocate).expect("computed"));
    settle_all(&rig.engine).await.expect("it ends");
    assert_eq!(reason(&rig.row("fix")), Some(QuarantineReason::Rejected));
    rig.engine.store().expect("open").lift("e1", "ann").expect("nothing keeps it");

    // The ledger refuses a payee of its own.
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    release(&rig, &without_the_last("fix", &paid, &row, &[NEVER_PAID]));
    rig.ledger.book().refuses_account = Some("a000".to_owned());
    settle_all(&rig.engine).await.expect("it ends");
    assert_eq!((reason(&rig.row("fix")), rig.booked()), (Some(QuarantineReason::Rejected), 3));
}

#[tokio::test(start_paused = true)]
async fn a_correction_stops_after_one_batch_if_another_node_pays_what_was_refused_right_before_it() {
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    let fix = without_the_last("fix", &paid, &row, &[NEVER_PAID]);
    settle_down(&rig.engine, rig::computation(&rig.engine, fix.clone())).expect("sealed");
    rig.engine.store().expect("open").release("fix", "ann", &rig.row("fix").commitment).expect("released");
    let amount = *paid.paying().1[0].amounts.get(3).expect("four actors");
    let content = (paid.run_key, "RON".to_owned(), NEVER_PAID.to_owned(), amount, false);
    {
        let mut book = rig.ledger.book();
        // After the question what is booked of the run, before the first payout.
        let first_payout = book.calls + 2;
        book.books_at.insert(first_payout, (intent_key(&paid.run_key, "RON", NEVER_PAID), content));
    }
    settle_all(&rig.engine).await.expect("it ends");
    assert_eq!(reason(&rig.row("fix")), Some(QuarantineReason::Intent));
    let of_fix = rig.ledger.book().booked.values().filter(|content| content.0 == fix.run_key).count();
    assert_eq!((of_fix, rig.booked()), (2, 6));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_takes_more_than_one_run_from_a_pot_is_sent_no_correction_of_refused_payees() {
    let rig = Rig::new();
    let (paid, row) = rig.refused().await;
    let fix = without_the_last("fix", &paid, &row, &[NEVER_PAID]);
    settle_down(&rig.engine, rig::computation(&rig.engine, fix.clone())).expect("sealed");
    let store = rig.engine.store().expect("open");
    store.release("fix", "ann", &rig.row("fix").commitment).expect("released");
    rig.ledger.book().forgets_pots = true;
    settle_all(&rig.engine).await.expect("it ends");
    assert_eq!((reason(&rig.row("fix")), rig.booked()), (Some(QuarantineReason::Rejected), 3));
    let refused = correction::admit(&rig.engine, store, &uploaded(&fix)).expect_err("it is known by now");
    assert!(refused.detail.contains("one run per pot"), "{refused}");
}
