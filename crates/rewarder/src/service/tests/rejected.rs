//! A held epoch has a way out: it is rejected, and the right run is made under its name.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::{Rig, reason};
use crate::service::emitter::settle_all;
use crate::service::engine::{Begun, Computation};
use crate::service::request::Prepared;
use crate::service::scheduler::schedule;
use crate::service::writer::{recover, settle_down};
use crate::service::{EpochState, Rewarder, rig};
use crate::store::{EpochRow, EpochStatus, QuarantineReason};

const BY_HAND: &str = r#","release":{"by_hand":true}"#;

/// Actors of each run who did nothing.
const IDLE: u64 = 1;

impl Rig {
    async fn reject(&self, epoch: &str) -> Result<Arc<EpochRow>, Error> {
        let rewarder = Rewarder { engine: Arc::clone(&self.engine) };
        let deadline = Deadline::after(Duration::from_secs(60));
        rewarder.reject(&epoch.parse().expect("a name"), "ann", "usage of another month", deadline).await
    }

    /// Has an epoch computed as a node does: scheduled, taken by a worker, written.
    async fn compute(&mut self, epoch: &str, policy: &str, actors: u128) -> Result<Arc<EpochRow>, Error> {
        let computed = rig::computed(epoch, rig::policy(policy), actors, ron_calculus::allocate);
        let prepared = Prepared { hash: [actors as u8; 32], ..rig::prepared(&computed) };
        assert_eq!(schedule(&self.engine, prepared).await?, Begun::Started);
        let ticket = self.engine.next_ticket(&mut self.receivers.jobs).await.expect("a run");
        let (written, _) = tokio::sync::oneshot::channel();
        Ok(settle_down(&self.engine, Computation { ticket, outcome: Ok(Box::new(computed)), written }).expect("sealed"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_epoch_is_rejected_and_the_right_run_is_made_and_paid() {
    let mut rig = Rig::new();
    let held = rig.compute("e1", BY_HAND, 4).await.expect("computed");
    assert_eq!(held.status, EpochStatus::Held);
    let again = rig.compute("e1", BY_HAND, 5).await.expect_err("other inputs, while it is held");
    assert_eq!(again.kind, Kind::Conflict);

    let rejected = rig.reject("e1").await.expect("rejected");
    assert_eq!((rejected.status, reason(&rejected)), (EpochStatus::Quarantined, Some(QuarantineReason::Rejected)));
    assert!(rejected.quarantine.as_ref().is_some_and(|why| why.detail == "ann rejected it: usage of another month"));
    assert_eq!(rig.reject("e1").await.expect("again is fine"), rejected);
    let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
    let deadline = Deadline::after(Duration::from_secs(60));
    for lifts in [false, true] {
        let released = rewarder.release(&"e1".parse().expect("a name"), "bob", lifts, deadline).await;
        assert_eq!(released.expect_err("it is dead").kind, Kind::Quarantine);
    }
    settle_all(&rig.engine).await.expect("nothing to do");
    assert_eq!(rig.booked(), 0);

    // A policy that would let it go by itself has not the last word.
    let right = rig.compute("e1", "", 6).await.expect("computed anew");
    assert_eq!((right.status, right.actors), (EpochStatus::Held, 6 + IDLE));
    assert!(right.held_because.as_ref().is_some_and(|why| why.contains("rejected")), "{right:?}");
    rewarder.release(&"e1".parse().expect("a name"), "ann", false, deadline).await.expect("released");
    settle_all(&rig.engine).await.expect("paid");
    assert_eq!((rig.row("e1").status, rig.booked()), (EpochStatus::Settled, 6));
    assert_eq!(rig.reject("e1").await.expect_err("it is paid").kind, Kind::Conflict);

    // The next start finds the run that was paid, and its files.
    let found = rig.disk.restart();
    let (engine, _receivers) = rig::engine(&found, &rig.ledger);
    recover(&engine).expect("recovered");
    let row = engine.store().expect("open").get("e1").expect("there");
    assert_eq!((row.status, row.actors, row.removed_by.as_ref()), (EpochStatus::Settled, 6 + IDLE, None));
    crate::service::reads::open_run(&engine, &row).and_then(|run| run.load()).expect("its artifacts are there");
}

#[tokio::test(start_paused = true)]
async fn what_was_carried_into_a_rejected_epoch_is_free_and_what_was_carried_out_keeps_it_alive() {
    let mut rig = Rig::new();
    let capped =
        r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"100","cap":"10","weights":{"usage":"1"}}]}"#;
    let policy = ron_calculus::Policy::parse(capped.as_bytes()).expect("a policy");
    let first = rig::computed("first", policy, 4, ron_calculus::allocate);
    settle_down(&rig.engine, rig::computation(&rig.engine, first)).expect("sealed");
    let base = rig.row("first");
    let carries = |epoch: &str, from: &str| EpochRow {
        epoch: epoch.to_owned(),
        carried_from: Some(from.to_owned()),
        ..(*base).clone()
    };
    let store = rig.engine.store().expect("open");
    store.seal(EpochRow { status: EpochStatus::Held, ..carries("second", "first") }).expect("sealed");
    assert_eq!(store.carried_into("first").as_deref(), Some("second"));
    rig.reject("second").await.expect("rejected");
    let store = rig.engine.store().expect("open");
    assert_eq!(store.carried_into("first"), None);
    store.seal(carries("third", "first")).expect("the units are there for another");

    // The units of a held epoch that others have cannot become units that never were.
    rig.compute("held", BY_HAND, 4).await.expect("computed");
    let store = rig.engine.store().expect("open");
    store.seal(carries("next", "held")).expect("sealed");
    assert_eq!(rig.reject("held").await.expect_err("they are in another pool").kind, Kind::Conflict);
    rig.compute("other", BY_HAND, 4).await.expect("computed");
    rig.reject("other").await.expect("rejected");
    let store = rig.engine.store().expect("open");
    let late = store.seal(carries("late", "other"));
    assert!(matches!(late, Err(crate::store::StoreError::Dead(from)) if from == "other"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_on_its_way_does_not_come_back_over_a_rejection() {
    let mut rig = Rig::new();
    let computed = rig::computed("e1", rig::policy(BY_HAND), 4, ron_calculus::allocate);
    let twice = [rig::computation(&rig.engine, computed.clone()), rig::computation(&rig.engine, computed)];
    let [first, second] = twice.map(|computation| settle_down(&rig.engine, computation));
    assert_eq!(first, second, "sealed once");
    rig.reject("e1").await.expect("rejected");
    let late = rig::computed("e1", rig::policy(BY_HAND), 4, ron_calculus::allocate);
    let found = settle_down(&rig.engine, rig::computation(&rig.engine, late)).expect("it finds the row");
    assert!(found.is_rejected());
    assert!(rig.compute("e1", BY_HAND, 7).await.is_ok());
    let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
    let state = rewarder.epoch(&"e1".parse().expect("a name")).expect("known");
    assert!(matches!(state, EpochState::Sealed(row) if row.actors == 7 + IDLE));
}
