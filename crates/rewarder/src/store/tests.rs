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
        given_up_by: None,
        usage: Vec::new(),
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

/// What a lying ledger may say of sixty-four assets, and of things that are none.
fn long_comparison() -> serde_json::Value {
    let asset = |number: usize| json!({"asset": format!("{number:0>200}"), "verdict": "missing", "delta": "-1"});
    json!({"agrees": false, "assets": (0..220).map(asset).collect::<Vec<_>>()})
}

#[test]
fn nothing_stored_about_one_epoch_keeps_others_from_being_sealed() {
    let disk = Arc::new(RamDisk::new());
    let options = LogOptions {
        segment_bytes: 128 << 10,
        quota_bytes: 4 << 20,
        reserve_bytes: 512 << 10,
        gather_bytes_max: 1 << 20,
        ..small()
    };
    {
        // As a version wrote it that set no bounds: each record fits, and both together do not.
        let (log, _) = Log::open(disk.clone(), options.clone(), &mut |_, _| {}).expect("opened");
        let heavy = EpochRow { held_because: Some("x".repeat(40_000)), ..row("heavy") };
        let quarantine = Quarantine { reason: QuarantineReason::Intent, detail: "y".repeat(2_000) };
        let reconciliation = Some(long_comparison());
        let records = [
            SealRecord::Row(Box::new(heavy)),
            SealRecord::Quarantined { epoch: "heavy".to_owned(), quarantine, reconciliation },
        ];
        for record in records {
            log.appender().append(Class::Data, &serde_json::to_vec(&record).expect("JSON"), &[]).expect("appended");
        }
        log.flush().expect("flushed");
    }
    let store = Store::open_with(disk.clone(), options.clone()).expect("opened");
    store.seal(row("liar")).expect("sealed");
    store.release("liar", "ann").expect("released");
    let detail = "z".repeat(1 << 20);
    let quarantine = Quarantine { reason: QuarantineReason::Intent, detail };
    store.quarantine("liar", quarantine, Some(long_comparison())).expect("every disagreement is written down");
    for number in 0..40_u64 {
        let epoch = format!("e{number:04}");
        store.seal(row(&epoch)).unwrap_or_else(|error| panic!("{epoch}: {error}"));
        for turn in 0..500 {
            store.sent(&epoch, turn, turn).unwrap_or_else(|error| panic!("{epoch}: {error}"));
        }
    }
    let usage = store.log.usage();
    assert!(usage.records < usage.appended, "the segment with both epochs was given back: {usage:?}");
    drop(store);
    let store = Store::open_with(disk, options).expect("opened again");
    assert_eq!(store.list(None, 10_000).len(), 42);
    for epoch in ["heavy", "liar"] {
        let row = store.get(epoch).expect("there");
        assert_eq!(row.status, EpochStatus::Quarantined);
        assert!(serde_json::to_vec(&*row).expect("JSON").len() < 30_000, "{epoch} is bounded");
        assert_eq!(row.reconciliation.as_ref().expect("what was compared")["agrees"], false);
    }
}

#[test]
fn a_row_that_could_not_take_what_is_known_of_it_later_is_not_sealed() {
    let store = Store::open(Arc::new(RamDisk::new())).expect("opened");
    let total =
        |number: usize, name: usize| AssetTotal { asset: format!("{number:0>name$}"), ..row("e").totals[0].clone() };
    let of = |name: usize| EpochRow { totals: (0..64).map(|number| total(number, name)).collect(), ..row("e1") };
    assert!(matches!(store.seal(of(1_000)), Err(StoreError::TooLarge { .. })));
    assert!(store.get("e1").is_none());
    store.seal(of(256)).expect("sixty-four assets with the longest names");
    store.release("e1", "ann").expect("released");
    store.settle("e1", long_comparison()).expect("settled");
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_makes_no_artifacts_old() {
    let disk = Arc::new(RamDisk::new());
    let day = 86_400_000;
    let store = Store::open(disk.clone()).expect("opened");
    for epoch in ["e1", "e2"] {
        store.seal(row(epoch)).expect("sealed");
        store.release(epoch, "ann").expect("released");
        store.settle(epoch, json!({})).expect("settled");
    }
    let settled_ms = store.get("e1").expect("there").settled_ms;
    // The clock goes a year ahead under the running node, and then it is started anew.
    let wall_ms = settled_ms + 365 * day;
    let old = |now_ms: u64| store.settled_before(now_ms - day);
    assert!(old(store.time.at(wall_ms, clock::now())).is_empty());
    let newest_ms = store.rows().newest_ms;
    let again = WitnessedTime::begin(newest_ms, wall_ms, clock::now());
    assert!(old(again.at(wall_ms, clock::now())).is_empty());
    // Days that the node sees pass count, whatever the clock says.
    tokio::time::advance(std::time::Duration::from_millis(2 * day)).await;
    for wall_ms in [0, settled_ms, wall_ms] {
        assert_eq!(old(again.at(wall_ms, clock::now())), ["e1"], "and the last of the policy stays");
    }
    store.see_time().expect("written down");
    drop(store);
    let store = Store::open(disk).expect("opened again");
    assert!(store.now_ms() + 60_000 >= settled_ms + 2 * day, "a restart loses nothing that was seen");
}

#[test]
fn a_node_seals_epochs_for_ever_and_forgets_none_of_their_names() {
    let disk = Arc::new(RamDisk::new());
    let options = LogOptions { segment_bytes: 64 << 10, quota_bytes: 4 << 20, reserve_bytes: 256 << 10, ..small() };
    let limits = StoreLimits { kept: 8, known: 40, rows_bytes: 20 << 10, forgotten: 10_000 };
    let open = || Store { limits, ..Store::open_with(disk.clone(), options.clone()).expect("opened") };
    let epochs = 1_500;
    let name = |number: usize| format!("e{number:05}");
    let mut store = open();
    for number in 0..epochs {
        let epoch = name(number);
        assert!(store.has_room(), "{epoch}");
        store.seal(row(&epoch)).unwrap_or_else(|error| panic!("{epoch}: {error}"));
        store.release(&epoch, "ann").expect("released");
        store.settle(&epoch, json!({"agrees": true})).expect("settled");
        if let Some(old) = number.checked_sub(4) {
            store.remove(&name(old), "ann").expect("removed");
        }
        if number % 500 == 0 {
            drop(store);
            store = open();
        }
    }
    let known = store.list(None, epochs).len();
    assert!(known <= 41, "{known} rows are kept");
    assert!(store.log.usage().bytes_total < 1 << 20, "{:?}", store.log.usage());
    let store = {
        drop(store);
        open()
    };
    assert_eq!(store.list(None, epochs).len(), known);
    for number in 0..epochs {
        let epoch = name(number);
        assert!(store.is_forgotten(&epoch) != store.get(&epoch).is_some(), "{epoch} is known in one way");
    }
    assert!(!store.is_forgotten("another"));
}

#[test]
fn what_could_be_paid_again_without_a_row_keeps_the_row() {
    let limits = StoreLimits { kept: 100, known: 8, rows_bytes: u64::MAX, forgotten: 100 };
    let store = Store { limits, ..Store::open(Arc::new(RamDisk::new())).expect("opened") };
    let settled = |row: EpochRow, is_removed: bool| {
        let epoch = row.epoch.clone();
        store.seal(row).expect("sealed");
        store.release(&epoch, "ann").expect("released");
        store.settle(&epoch, json!({"agrees": true})).expect("settled");
        if is_removed {
            store.remove(&epoch, "ann").expect("removed");
        }
    };
    settled(row("kept"), false);
    settled(EpochRow { corrects: Some("kept".to_owned()), ..row("fix") }, true);
    settled(EpochRow { carried_from: Some("kept".to_owned()), ..row("next") }, true);
    settled(row("wrong"), true);
    store.seal(EpochRow { corrects: Some("wrong".to_owned()), ..row("unpaid") }).expect("sealed");
    for number in 0..20 {
        settled(row(&format!("e{number}")), true);
    }
    for epoch in ["kept", "fix", "next", "wrong", "unpaid", "e19"] {
        assert!(store.get(epoch).is_some(), "{epoch}");
    }
    assert!(store.is_forgotten("e0") && store.corrected_by("kept").is_some() && store.carried_into("kept").is_some());
}

#[test]
fn a_run_in_the_place_of_one_that_was_rejected_stays_however_many_rows_there_are() {
    let limits = StoreLimits { kept: 100, known: 4, rows_bytes: u64::MAX, forgotten: 100 };
    for goes_before in [false, true] {
        let disk = Arc::new(RamDisk::new());
        let store = Store { limits, ..Store::open(disk.clone()).expect("opened") };
        for epoch in ["e1", "e2", "held", "too"] {
            store.seal(row(epoch)).expect("sealed");
        }
        for epoch in ["e1", "e2"] {
            store.reject(epoch, "wrong".to_owned()).expect("rejected");
            store.remove(epoch, "ann").expect("removed");
        }
        if goes_before {
            // While the right run is on its way.
            store.seal(row("other")).expect("sealed");
            assert!(store.is_forgotten("e1"));
        }
        store.seal(row("e1")).expect("the right run");
        drop(store);
        let store = Store::open(disk).expect("opened again");
        assert!(store.get("e1").is_some_and(|row| !row.is_rejected()), "{goes_before}");
        assert_eq!((store.is_forgotten("e1"), store.is_forgotten("e2")), (false, true), "{goes_before}");
    }
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
