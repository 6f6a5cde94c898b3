//! Nobody is paid twice and nobody is forgotten: the power goes at every operation of the disk and at every call to the
//! ledger, and each time the next node brings every epoch to its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use ron_log::SimDisk;
use ron_log::sim::Survival;

use super::emitter::settle_all;
use super::engine::Engine;
use super::reads::open_run;
use super::rig::{self, ACTORS, Fault, SimLedger};
use super::writer::{recover, settle_down};
use crate::job::Computed;
use crate::store::{EpochStatus, QuarantineReason};
use crate::verify::check_hashes;

/// More of everything with `MACRO_SOAK=1`.
fn is_soak() -> bool {
    std::env::var_os("MACRO_SOAK").is_some_and(|value| value == "1")
}

/// The epochs of the script: one that is paid by itself, one that breaks conservation, one that a person releases, and
/// a correction of the first, which pays some and takes back from others.
fn epochs() -> [Computed; 4] {
    let by_hand = r#","release":{"by_hand":true}"#;
    let paid = rig::computed("paid", rig::policy(""), ACTORS, ron_calculus::allocate);
    let fix = rig::corrected("fix", &paid, 12);
    [
        paid,
        rig::computed("broken", rig::policy(""), 3, rig::divide_wrongly),
        rig::computed("by-hand", rig::policy(by_hand), 5, ron_calculus::allocate),
        fix,
    ]
}

/// What the node told somebody before it died.
#[derive(Default)]
struct Told {
    sealed: Vec<String>,
    settled: Vec<String>,
}

/// One life of a node: it recovers, computes what is missing, releases, pays. Ends early if its disk or ledger is gone.
async fn live(disk: &SimDisk, ledger: &SimLedger, epochs: &[Computed], told: &mut Told) -> Option<Arc<Engine>> {
    let (engine, _receivers) = rig::engine(disk, ledger);
    recover(&engine).ok()?;
    for computed in epochs {
        let epoch = computed.basis.epoch.as_str();
        if engine.store().ok()?.get(epoch).is_none() {
            let row = settle_down(&engine, rig::computation(&engine, computed.clone()))?;
            told.sealed.push(row.epoch.clone());
        }
        let store = engine.store().ok()?;
        if store.get(epoch).is_some_and(|row| row.status == EpochStatus::Held) {
            store.release(epoch, "ann").ok()?;
        }
    }
    let paid = settle_all(&engine).await;
    let settled = engine.store().ok()?.with_status(EpochStatus::Settled);
    told.settled.extend(settled.into_iter().filter(|_| !disk.has_crashed()));
    paid.ok().map(|()| engine)
}

/// Everything that must hold once a node has lived to the end.
fn check(engine: &Engine, ledger: &SimLedger, epochs: &[Computed], what: &str) {
    let store = engine.store().expect("open");
    let mut expected = BTreeMap::new();
    for computed in epochs {
        let epoch = computed.basis.epoch.as_str();
        let row = store.get(epoch).unwrap_or_else(|| panic!("{what}: {epoch} is not sealed"));
        let run = open_run(engine, &row).unwrap_or_else(|error| panic!("{what}: {epoch}: {error}"));
        check_hashes(&run).unwrap_or_else(|error| panic!("{what}: {epoch}: {error}"));
        if computed.outcome.is_ok() {
            assert_eq!(row.status, EpochStatus::Settled, "{what}: {epoch}: {row:?}");
            assert_eq!(row.sent, row.intents, "{what}: {epoch}");
            expected.extend(rig::payouts(computed));
        } else {
            let reason = row.quarantine.as_ref().map(|quarantine| quarantine.reason);
            assert_eq!(
                (row.status, reason),
                (EpochStatus::Quarantined, Some(QuarantineReason::Conservation)),
                "{what}"
            );
        }
    }
    let booked: BTreeMap<[u8; 32], u128> =
        ledger.book().booked.iter().map(|(key, content)| (*key, content.3)).collect();
    assert_eq!(booked, expected, "{what}: each payout once, and no other");
    let mut folders = engine.options.folders.names().expect("listed");
    folders.retain(|name| store.get(name).is_none());
    assert!(folders.is_empty(), "{what}: {folders:?} belong to nobody");
}

/// The next node finds what the power cut left, and everything it told before still holds.
async fn recovered(
    disk: &SimDisk,
    survival: Survival,
    ledger: &SimLedger,
    epochs: &[Computed],
    told: &Told,
    what: &str,
) {
    let found = disk.crash_with(survival);
    {
        let (engine, _receivers) = rig::engine(&found, ledger);
        recover(&engine).unwrap_or_else(|error| panic!("{what}: {error}"));
        let store = engine.store().expect("open");
        for epoch in &told.sealed {
            assert!(store.get(epoch).is_some(), "{what}: {epoch} was told to be sealed");
        }
        for epoch in &told.settled {
            let status = store.get(epoch).map(|row| row.status);
            assert_eq!(status, Some(EpochStatus::Settled), "{what}: {epoch} was told to be settled");
        }
    }
    let mut again = Told::default();
    let engine = live(&found, ledger, epochs, &mut again).await.unwrap_or_else(|| panic!("{what}: it does not end"));
    check(&engine, ledger, epochs, what);
}

/// What may survive a power cut at one moment: all of it in the soak, else one after the other.
fn survivals(seed: u64, all_of_them: bool) -> Vec<Survival> {
    let all = [
        Survival::Nothing,
        Survival::Everything,
        Survival::Sectors(seed * 2 + 3),
        Survival::Pages(seed * 2 + 3),
        Survival::Sectors(seed * 2 + 4),
    ];
    if all_of_them { all.to_vec() } else { vec![all[seed as usize % all.len()]] }
}

#[tokio::test(start_paused = true)]
async fn the_power_goes_at_every_operation_of_the_disk() {
    let epochs = epochs();
    let (disk, ledger) = (SimDisk::new(5), SimLedger::default());
    let engine = live(&disk, &ledger, &epochs, &mut Told::default()).await.expect("it lives to the end");
    check(&engine, &ledger, &epochs, "without a fault");
    let operations = disk.operations();
    assert!(operations > 80, "the script does little: {operations} operations");
    for operation in 0..operations {
        let (disk, ledger) = (SimDisk::new(5), SimLedger::default());
        disk.crash_at(operation);
        let mut told = Told::default();
        live(&disk, &ledger, &epochs, &mut told).await;
        assert!(disk.has_crashed());
        let what = format!("operation {operation} ({})", disk.operation(operation));
        let booked = ledger.book().booked.clone();
        for survival in survivals(operation, is_soak()) {
            ledger.book().booked.clone_from(&booked);
            recovered(&disk, survival, &ledger, &epochs, &told, &format!("{what}, {survival:?}")).await;
        }
    }
    println!("{operations} operations");
}

#[tokio::test(start_paused = true)]
async fn the_node_dies_or_hears_nothing_at_every_call_to_the_ledger() {
    let epochs = epochs();
    let (disk, ledger) = (SimDisk::new(5), SimLedger::default());
    live(&disk, &ledger, &epochs, &mut Told::default()).await.expect("it lives to the end");
    let calls = ledger.book().calls;
    assert!(calls > 20, "{calls} calls");
    let faults =
        [Fault::Unavailable, Fault::LostAnswer, Fault::Dies { is_booked: false }, Fault::Dies { is_booked: true }];
    for call in 1..=calls {
        for fault in faults {
            let (disk, ledger) = (SimDisk::new(5), SimLedger::default());
            // An answer that fails once is asked for again; a node that dies is followed by another.
            ledger.book().faults.insert(call, fault);
            let mut told = Told::default();
            let ended = live(&disk, &ledger, &epochs, &mut told).await;
            let what = format!("call {call}, {fault:?}");
            assert_eq!(ended.is_some(), !matches!(fault, Fault::Dies { .. }), "{what}");
            match ended {
                Some(engine) => check(&engine, &ledger, &epochs, &what),
                None => {
                    ledger.revive();
                    let survival = survivals(call, false)[0];
                    recovered(&disk, survival, &ledger, &epochs, &told, &format!("{what}, {survival:?}")).await;
                }
            }
        }
    }
}
