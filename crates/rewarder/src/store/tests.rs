//! The seal log, from sealed to settled and through its own compaction.

use std::collections::BTreeMap;

use ron_calculus::Units;
use ron_log::{RamDisk, SimDisk};
use serde_json::json;

use super::*;

pub(crate) fn row(epoch: &str) -> EpochRow {
    EpochRow {
        epoch: epoch.to_owned(),
        request: "aa".repeat(32),
        run_key: "cc".repeat(32),
        commitment: format!("b3:{}", "dd".repeat(32)),
        policy: "demo".to_owned(),
        artifacts: BTreeMap::from([("run.json".to_owned(), "b3:00".to_owned())]),
        rows: 3,
        actors: 2,
        intents: 2,
        totals: vec![AssetTotal {
            asset: "RON".to_owned(),
            pool: Units(10),
            paid: Units(10),
            payees: 2,
            freed: Units(0),
        }],
        status: EpochStatus::Held,
        held_because: None,
        is_payable: true,
        released_by: None,
        carried_from: None,
        corrects: None,
        takes_left_over: false,
        place: 0,
        sent: 0,
        settled_as: None,
        settled_ms: 0,
        removed_by: None,
        reconciliation: None,
        quarantine: None,
    }
}

fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 4 << 10,
        quota_bytes: 1 << 20,
        reserve_bytes: 16 << 10,
        gather_bytes_max: 64 << 10,
        zero_ahead: false,
        sidecars: false,
    }
}

#[test]
fn an_epoch_goes_from_sealed_to_settled_and_is_found_again() {
    let disk = SimDisk::new(1);
    {
        let store = Store::open(Arc::new(disk.clone())).expect("opened");
        store.seal(row("e1")).expect("sealed");
        store.release("e1", "ann").expect("released");
        store.sent("e1", 1, 1).expect("sent");
        store.settle("e1", json!({"ok": true})).expect("settled");
        store.seal(row("e2")).expect("sealed");
        let detail = "ann has another amount".to_owned();
        let quarantine = Quarantine { reason: QuarantineReason::Intent, detail };
        store.quarantine("e2", quarantine, None).expect("quarantined");
        // What is over stays as it is.
        assert_eq!(store.release("e2", "ann").expect("written").status, EpochStatus::Quarantined);
        assert_eq!(store.lift("e1", "ann").expect("written").status, EpochStatus::Settled);
    }
    let store = Store::open(Arc::new(disk.restart())).expect("opened again");
    let found = store.get("e1").expect("there");
    assert_eq!((found.status, found.sent, found.settled_as), (EpochStatus::Settled, 2, Some(1)));
    assert_eq!(found.released_by.as_deref(), Some("ann"));
    assert_eq!(store.last_settled("demo").map(|row| row.epoch.clone()).as_deref(), Some("e1"));
    assert!(store.last_settled("other").is_none());
    assert_eq!(store.get("e2").expect("there").quarantine.clone().expect("why").reason, QuarantineReason::Intent);
    assert_eq!(store.counts(), [0, 0, 1, 1]);
    let page: Vec<String> = store.list(Some("e1"), 10).iter().map(|row| row.epoch.clone()).collect();
    assert_eq!(page, ["e2"]);
}

#[test]
fn an_epoch_is_corrected_once_and_its_correction_again() {
    let store = Store::open(Arc::new(RamDisk::new())).expect("opened");
    let correction = |epoch: &str, corrects: &str| EpochRow { corrects: Some(corrects.to_owned()), ..row(epoch) };
    store.seal(row("e1")).expect("sealed");
    store.release("e1", "ann").expect("released");
    store.settle("e1", json!({})).expect("settled");
    for epoch in ["fix-a", "fix-b"] {
        store.seal(correction(epoch, "e1")).expect("two may wait");
    }
    assert_eq!(store.corrected_by("e1"), None);
    store.release("fix-b", "ann").expect("released");
    assert_eq!(store.corrected_by("e1").as_deref(), Some("fix-b"));
    assert!(matches!(store.release("fix-a", "ann"), Err(StoreError::Corrected { by, .. }) if by == "fix-b"));
    assert_eq!(store.get("fix-a").expect("there").status, EpochStatus::Held);
    // Halfway through its payouts it may have paid somebody, so that no other takes its place.
    let detail = "refused".to_owned();
    store.quarantine("fix-b", Quarantine { reason: QuarantineReason::Intent, detail }, None).expect("quarantined");
    assert!(store.release("fix-a", "ann").is_err());
    store.lift("fix-b", "ann").expect("lifted");
    store.settle("fix-b", json!({})).expect("settled");
    store.seal(correction("fix-c", "fix-b")).expect("sealed");
    store.release("fix-c", "ann").expect("the correction is corrected");
    assert_eq!(store.last_settled("demo").expect("settled").epoch, "e1", "no epoch is compared with a correction");
}

#[test]
fn a_quarantine_by_the_ledger_is_lifted_and_one_of_the_amounts_is_not() {
    let disk = SimDisk::new(1);
    let lifted = [QuarantineReason::Intent, QuarantineReason::Integrity];
    {
        let store = Store::open(Arc::new(disk.clone())).expect("opened");
        for reason in QuarantineReason::ALL {
            let epoch = reason.as_str();
            store.seal(row(epoch)).expect("sealed");
            store.release(epoch, "policy").expect("released");
            store.sent(epoch, 1, 1).expect("sent");
            store.quarantine(epoch, Quarantine { reason, detail: "why".to_owned() }, None).expect("quarantined");
            store.lift(epoch, "ann").expect("written");
        }
    }
    let store = Store::open(Arc::new(disk.restart())).expect("opened again");
    for reason in QuarantineReason::ALL {
        let row = store.get(reason.as_str()).expect("there");
        let expected = if lifted.contains(&reason) { EpochStatus::Released } else { EpochStatus::Quarantined };
        assert_eq!((row.status, row.quarantine.is_none()), (expected, lifted.contains(&reason)), "{row:?}");
        assert_eq!(row.sent, u64::from(!lifted.contains(&reason)), "a lifted epoch is sent from its first payout on");
    }
}

#[test]
fn old_segments_go_and_no_row_with_them() {
    let disk = Arc::new(RamDisk::new());
    let (epochs, options) = (40, small());
    {
        let store = Store::open_with(disk.clone(), options.clone()).expect("opened");
        for number in 0..epochs {
            store.seal(row(&format!("e{number:03}"))).expect("sealed");
        }
        for turn in 0..2_000_u64 {
            store.sent("e007", turn, turn).expect("written");
        }
        assert!(store.log.usage().bytes_total < 200 << 10, "{:?}", store.log.usage());
    }
    let store = Store::open_with(disk, options).expect("opened again");
    assert_eq!(store.list(None, 1000).len(), epochs);
    assert_eq!(store.get("e007").expect("there").sent, 1_999);
}

#[test]
fn a_record_that_is_not_understood_keeps_the_store_shut() {
    let disk = Arc::new(RamDisk::new());
    let (log, _) = Log::open(disk.clone(), small(), &mut |_, _| {}).expect("opened");
    log.appender().append(Class::Data, br#"{"record":"tomorrow"}"#, &[]).expect("appended");
    log.flush().expect("flushed");
    drop(log);
    assert!(matches!(Store::open_with(disk, small()), Err(StoreError::Strange(1))));
}

#[test]
fn leftovers_are_spent_once_by_an_epoch_or_by_a_correction() {
    let store = Store::open(Arc::new(RamDisk::new())).expect("opened");
    let carries = |epoch: &str, from: &str| EpochRow { carried_from: Some(from.to_owned()), ..row(epoch) };
    let takes = |epoch: &str, of: &str| EpochRow { corrects: Some(of.to_owned()), takes_left_over: true, ..row(epoch) };
    let is_spent = |result: Result<Arc<EpochRow>, StoreError>, by: &str| match result {
        Err(StoreError::LeftOverSpent { into, .. }) => into == by,
        _ => false,
    };
    for epoch in ["e1", "e2"] {
        store.seal(row(epoch)).expect("sealed");
        store.release(epoch, "ann").expect("released");
        store.settle(epoch, json!({})).expect("settled");
    }
    // Both were let in before either was sealed. A correction has the units only once it is released.
    store.seal(takes("fix-1", "e1")).expect("it may wait");
    assert_eq!(store.taken_up_by("e1"), None);
    store.seal(carries("next-1", "e1")).expect("sealed");
    assert!(is_spent(store.release("fix-1", "ann"), "next-1"));
    assert_eq!(store.get("fix-1").expect("there").status, EpochStatus::Held);
    assert!(is_spent(store.seal(carries("another", "e1")), "next-1"));
    assert!(is_spent(store.seal(takes("fix-again", "e1")), "next-1"));

    store.seal(takes("fix-2", "e2")).expect("sealed");
    store.release("fix-2", "ann").expect("released");
    assert_eq!(store.taken_up_by("e2").as_deref(), Some("fix-2"));
    assert!(is_spent(store.seal(carries("next-2", "e2")), "fix-2"));
    assert!(store.get("next-2").is_none());

    // A run that never pays anything has nothing in it: its inputs are computed anew under another name.
    store.seal(row("e3")).expect("sealed");
    let quarantine = Quarantine { reason: QuarantineReason::Conservation, detail: "wrong".to_owned() };
    let dead = EpochRow { status: EpochStatus::Quarantined, quarantine: Some(quarantine), ..carries("broken", "e3") };
    store.seal(dead).expect("sealed");
    assert_eq!(store.carried_into("e3"), None);
    store.seal(carries("mended", "e3")).expect("sealed");
    assert_eq!(store.carried_into("e3").as_deref(), Some("mended"));
}
