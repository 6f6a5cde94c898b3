//! What the live rewarder does when the ledger, the policy or a task says no.

use std::sync::Arc;

use ron_log::SimDisk;
use ron_types::Kind;

use super::Receivers;
use super::emitter::settle_all;
use super::engine::{Begun, Engine};
use super::rig::{self, ACTORS, SimLedger};
use super::scheduler::schedule;
use super::writer::{recover, settle_down};
use crate::store::{EpochRow, EpochStatus, QuarantineReason};

struct Rig {
    disk: SimDisk,
    ledger: SimLedger,
    engine: Arc<Engine>,
    receivers: Receivers,
}

impl Rig {
    fn new() -> Rig {
        let (disk, ledger) = (SimDisk::new(1), SimLedger::default());
        let (engine, receivers) = rig::engine(&disk, &ledger);
        recover(&engine).expect("an empty log");
        Rig { disk, ledger, engine, receivers }
    }

    /// Seals an epoch of this policy with so many actors.
    fn seal(&self, epoch: &str, more_policy: &str, actors: u128) -> Arc<EpochRow> {
        let computed = rig::computed(epoch, rig::policy(more_policy), actors, ron_calculus::allocate);
        settle_down(&self.engine, rig::computation(&self.engine, computed)).expect("sealed")
    }

    fn row(&self, epoch: &str) -> Arc<EpochRow> {
        self.engine.store().expect("open").get(epoch).expect("sealed")
    }

    fn booked(&self) -> usize {
        self.ledger.book().booked.len()
    }
}

fn reason(row: &EpochRow) -> Option<QuarantineReason> {
    row.quarantine.as_ref().map(|quarantine| quarantine.reason)
}

#[tokio::test(start_paused = true)]
async fn a_payout_that_is_in_the_ledger_with_another_amount_quarantines_and_is_named() {
    let rig = Rig::new();
    let computed = rig::computed("e1", rig::policy(""), ACTORS, ron_calculus::allocate);
    let (key, amount) = rig::payouts(&computed).into_iter().next().expect("a payout");
    let intents = crate::intents::Intents::of(&computed);
    let (batch, _) = intents.batch(0, 1000).expect("payouts");
    let entry = batch.entries.iter().find(|entry| entry.key == key).expect("its entry").clone();
    let content = (computed.run_key, "RON".to_owned(), entry.account.clone(), amount + 1, false);
    rig.ledger.book().booked.insert(key, content);
    rig.seal("e1", "", ACTORS);
    settle_all(&rig.engine).await.expect("it ends");
    let row = rig.row("e1");
    assert_eq!((row.status, reason(&row)), (EpochStatus::Quarantined, Some(QuarantineReason::Intent)));
    let detail = &row.quarantine.as_ref().expect("why").detail;
    assert!(detail.contains(&format!("{:?}", entry.account)), "{detail}");
    let booked = rig.booked();
    settle_all(&rig.engine).await.expect("nothing to do");
    assert_eq!(rig.booked(), booked, "nothing more leaves");
}

#[tokio::test(start_paused = true)]
async fn what_the_ledger_refuses_or_does_not_hold_quarantines() {
    let rig = Rig::new();
    rig.ledger.book().refuses = Some("the account is closed".to_owned());
    rig.seal("refused", "", 4);
    settle_all(&rig.engine).await.expect("it ends");
    assert!(rig.row("refused").quarantine.as_ref().expect("why").detail.contains("the account is closed"));
    rig.ledger.book().refuses = None;
    rig.ledger.book().hides = 1;
    rig.seal("hidden", "", 4);
    settle_all(&rig.engine).await.expect("it ends");
    let row = rig.row("hidden");
    assert_eq!(reason(&row), Some(QuarantineReason::Intent));
    assert!(row.reconciliation.as_ref().is_some_and(|report| report["agrees"] == false), "{row:?}");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_does_not_answer_costs_time_and_nothing_else() {
    let rig = Rig::new();
    rig.ledger.book().is_dead = true;
    rig.seal("e1", "", ACTORS);
    assert!(settle_all(&rig.engine).await.is_err() && rig.engine.counts.ledger_waits());
    assert_eq!(rig.row("e1").status, EpochStatus::Released);
    rig.ledger.revive();
    settle_all(&rig.engine).await.expect("it answers again");
    assert_eq!((rig.row("e1").status, rig.booked()), (EpochStatus::Settled, ACTORS as usize));
    assert!(!rig.engine.counts.ledger_waits());
}

#[tokio::test(start_paused = true)]
async fn a_breach_of_conservation_is_sealed_as_such_and_pays_nobody() {
    let rig = Rig::new();
    let broken = rig::computed("e1", rig::policy(""), ACTORS, rig::divide_wrongly);
    let row = settle_down(&rig.engine, rig::computation(&rig.engine, broken)).expect("sealed");
    assert_eq!((row.status, reason(&row)), (EpochStatus::Quarantined, Some(QuarantineReason::Conservation)));
    settle_all(&rig.engine).await.expect("nothing to do");
    assert_eq!((rig.booked(), rig.ledger.book().calls), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn artifacts_that_are_not_what_was_sealed_are_not_paid() {
    for file in ["run.json", "usage.parquet", "policy.json"] {
        let rig = Rig::new();
        rig.seal("e1", "", 4);
        rig.disk.flip_bit(&format!("epoch~e1~{file}"), 20, 0);
        settle_all(&rig.engine).await.expect("it ends");
        let row = rig.row("e1");
        assert_eq!((reason(&row), rig.booked()), (Some(QuarantineReason::Integrity), 0), "{file}: {row:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_holds_what_the_policy_does_not_let_go() {
    let rig = Rig::new();
    let held = |row: &EpochRow| row.held_because.clone().unwrap_or_default();
    let (new, change) = (r#","release":{"new_payees_max":2}"#, r#","release":{"change_percent_max":10}"#);
    assert!(held(&rig.seal("by-hand", r#","release":{"by_hand":true}"#, 4)).contains("a person"));
    assert!(held(&rig.seal("total", r#","release":{"total_max":{"RON":"1000002"}}"#, 4)).contains("1000003"));
    assert_eq!(
        rig.seal("total-fine", r#","release":{"total_max":{"RON":"1000003"}}"#, 4).status,
        EpochStatus::Released
    );
    settle_all(&rig.engine).await.expect("paid");
    // Compared with the four of `total-fine`, the only one settled.
    assert_eq!(rig.seal("new-fine", new, 6).status, EpochStatus::Released);
    assert!(held(&rig.seal("new", new, 7)).contains("3 payees were not paid before"));
    assert_eq!(rig.seal("same", change, 4).status, EpochStatus::Released);
    assert!(held(&rig.seal("change", change, 5)).contains("a000"), "everybody's share shrinks by a fifth");
    assert!(held(&rig.seal("gone", change, 3)).contains("10 %"));
    let store = rig.engine.store().expect("open");
    store.release("by-hand", "ann").expect("released");
    settle_all(&rig.engine).await.expect("paid");
    assert_eq!(rig.row("by-hand").released_by.as_deref(), Some("ann"));
    assert_eq!((rig.row("by-hand").status, rig.row("total").status), (EpochStatus::Settled, EpochStatus::Held));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_worker_dies_comes_back_and_one_that_is_over_does_not() {
    let mut rig = Rig::new();
    let computed = rig::computed("e1", rig::policy(""), 4, ron_calculus::allocate);
    let prepared = rig::prepared(&computed);
    assert_eq!(schedule(&rig.engine, prepared.clone()).await, Ok(Begun::Started));
    assert_eq!(schedule(&rig.engine, prepared.clone()).await.expect_err("in flight").kind, Kind::Conflict);
    let taken = rig.engine.next_ticket(&mut rig.receivers.jobs).await.expect("a run");
    drop(taken);
    let again = rig.engine.next_ticket(&mut rig.receivers.jobs).await.expect("it came back");
    assert_eq!(again.flight.job.epoch.as_str(), "e1");
    let (written, _) = tokio::sync::oneshot::channel();
    let outcome = Ok(Box::new(computed));
    let row = settle_down(&rig.engine, super::engine::Computation { ticket: again, outcome, written });
    assert_eq!(row.expect("sealed").epoch, "e1");
    assert!(rig.engine.flights().is_empty());
    assert_eq!(schedule(&rig.engine, prepared.clone()).await, Ok(Begun::Exists));
    let other = super::request::Prepared { hash: [8; 32], ..prepared };
    assert_eq!(schedule(&rig.engine, other).await.expect_err("other inputs").kind, Kind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn leftovers_are_carried_once() {
    let rig = Rig::new();
    let capped =
        r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"100","cap":"10","weights":{"usage":"1"}}]}"#;
    let policy = ron_calculus::Policy::parse(capped.as_bytes()).expect("a policy");
    let first = rig::computed("first", policy, 4, ron_calculus::allocate);
    settle_down(&rig.engine, rig::computation(&rig.engine, first)).expect("sealed");
    let second = rig::computed("second", rig::policy(""), 4, ron_calculus::allocate);
    let carrying = |epoch: &str| super::request::Prepared {
        epoch: epoch.parse().expect("a name"),
        carry_from: Some("first".parse().expect("a name")),
        ..rig::prepared(&second)
    };
    assert_eq!(schedule(&rig.engine, carrying("second")).await, Ok(Begun::Started));
    let carried = rig.engine.flights()["second"].job.carry.clone();
    assert_eq!(carried.get("RON").map(|units| units.0), Some(60));
    assert_eq!(schedule(&rig.engine, carrying("third")).await.expect_err("taken").kind, Kind::Conflict);
    let unknown = super::request::Prepared { carry_from: Some("none".parse().expect("a name")), ..carrying("fourth") };
    assert_eq!(schedule(&rig.engine, unknown).await.expect_err("unknown").kind, Kind::NotFound);
}
