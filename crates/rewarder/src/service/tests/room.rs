//! Artifacts stay within their room while they are written, and what is counted is what lies there.

use std::sync::Barrier;

use super::{Rig, rig};
use crate::service::emitter::settle_all;
use crate::service::engine::LiveOptions;
use crate::service::retention::remove;
use crate::service::scheduler::schedule;
use crate::service::writer::settle_down;
use crate::store::EpochStatus;

impl Rig {
    /// Bytes of all artifacts, measured.
    fn measured(&self) -> u64 {
        let folders = &self.engine.options.folders;
        folders.names().expect("listed").iter().map(|name| folders.bytes(name).expect("measured")).sum()
    }

    fn allow(&self, epochs_bytes_max: u64) {
        let live = self.engine.live.get().value.clone();
        self.engine.live.publish(LiveOptions { epochs_bytes_max, ..live });
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_outgrows_the_room_while_it_is_written_leaves_nothing() {
    let rig = Rig::new();
    rig.seal("e1", "", 4);
    let before = rig.measured();
    assert_eq!(rig.engine.room.bytes(), before);
    rig.allow(before + 10_000);
    // A few bytes of usage, and amounts by the hundred: there was room when it began.
    let large = rig::computed("large", rig::policy(""), 900, ron_calculus::allocate);
    assert!(settle_down(&rig.engine, rig::computation(&rig.engine, large)).is_none());
    let refusal = rig.engine.refusal("large").expect("it is told why");
    assert!(refusal.reason.contains("rewarder.epochs_bytes_max"), "{refusal:?}");
    assert_eq!((rig.engine.room.bytes(), rig.measured()), (before, before));
    assert!(rig.engine.store().expect("open").get("large").is_none());
    rig.seal("small", "", 4);
    assert_eq!(rig.engine.room.bytes(), rig.measured());
}

#[tokio::test(start_paused = true)]
async fn removals_at_the_same_time_give_back_what_was_there_once() {
    let rig = Rig::new();
    for epoch in ["e1", "e2", "stays"] {
        rig.seal(epoch, "", 40);
    }
    settle_all(&rig.engine).await.expect("paid");
    for epoch in ["e1", "e2"] {
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    remove(&rig.engine, epoch, "ann").expect("removed");
                });
            }
        });
        assert_eq!(rig.engine.room.bytes(), rig.measured());
    }
    assert!(rig.measured() > 0);
    let next = rig::prepared(&rig::computed("e3", rig::policy(""), 4, ron_calculus::allocate));
    schedule(&rig.engine, next).await.expect("the node computes on");
}

#[tokio::test(start_paused = true)]
async fn whatever_is_sealed_rejected_removed_and_refused_the_count_is_what_lies_there() {
    let rig = Rig::new();
    let by_hand = r#","release":{"by_hand":true}"#;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let (epoch, actors) = (format!("e{}", seed % 7), u128::from(seed >> 8) % 60 + 1);
        let row = rig.engine.store().expect("open").get(&epoch);
        rig.allow(if seed.is_multiple_of(5) { rig.measured() + 3_000 } else { u64::MAX });
        match row.as_ref().map(|row| row.status) {
            None => {
                let policy = if seed & 64 == 0 { by_hand } else { "" };
                let computed = rig::computed(&epoch, rig::policy(policy), actors, ron_calculus::allocate);
                settle_down(&rig.engine, rig::computation(&rig.engine, computed));
            }
            Some(EpochStatus::Held) => {
                rig.engine.store().expect("open").reject(&epoch, "wrong".to_owned()).expect("rejected");
            }
            Some(EpochStatus::Released) => settle_all(&rig.engine).await.expect("paid"),
            Some(_) if row.as_ref().is_some_and(|row| row.is_rejected()) && seed & 32 == 0 => {
                let computed = rig::computed(&epoch, rig::policy(by_hand), actors, ron_calculus::allocate);
                let _ = schedule(&rig.engine, rig::prepared(&computed)).await;
                let flight = rig.engine.flights().get(&epoch).cloned();
                if let Some(flight) = flight {
                    let (written, _) = tokio::sync::oneshot::channel();
                    let ticket = rig.engine.ticket(flight);
                    let outcome = Ok(Box::new(computed));
                    settle_down(&rig.engine, crate::service::engine::Computation { ticket, outcome, written });
                }
            }
            Some(_) => drop(remove(&rig.engine, &epoch, "ann").expect("it is over")),
        }
        assert_eq!(rig.engine.room.bytes(), rig.measured());
    }
}
