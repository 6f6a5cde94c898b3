//! What the live rewarder does when the ledger, the policy or a task says no.

mod corrections;
mod lying;
mod panics;
mod rejected;
mod requests;
mod room;
mod signed;
mod strays;

use std::sync::Arc;

use ron_kernel::Deadline;
use ron_log::SimDisk;
use ron_types::Kind;

use super::Receivers;
use super::emitter::settle_all;
use super::engine::{Begun, Engine};
use super::retention::prune;
use super::rig::{self, ACTORS, SimLedger};
use super::scheduler::schedule;
use super::writer::{recover, settle_down};
use crate::folders::Folders as _;
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
async fn an_epoch_quarantined_in_the_middle_of_its_payouts_is_lifted_and_pays_nobody_twice() {
    let rig = Rig::new();
    let computed = rig::computed("e1", rig::policy(""), ACTORS, ron_calculus::allocate);
    let rewarder = super::Rewarder { engine: Arc::clone(&rig.engine) };
    let deadline = Deadline::after(std::time::Duration::from_secs(60));
    let release = async |lifts| rewarder.release(&computed.basis.epoch, "ann", lifts, deadline).await;
    // Half of the payouts are booked when the ledger begins to refuse.
    rig.ledger.book().refuses_from = Some(ACTORS as u64 / 4);
    rig.seal("e1", "", ACTORS);
    settle_all(&rig.engine).await.expect("it ends");
    let booked = rig.booked();
    assert!(booked > 0 && booked < ACTORS as usize, "{booked} are booked");
    assert_eq!(reason(&rig.row("e1")), Some(QuarantineReason::Intent));

    let told = release(false).await.expect_err("only with a word about the quarantine");
    assert_eq!(told.kind, Kind::Quarantine);
    assert!(told.detail.contains("lifted") && !told.detail.contains("another id"), "{told}");
    assert_eq!(rig.row("e1").status, EpochStatus::Quarantined);
    rig.ledger.book().refuses_from = None;
    assert_eq!(release(true).await.expect("lifted").status, EpochStatus::Released);
    settle_all(&rig.engine).await.expect("paid");
    let row = rig.row("e1");
    assert_eq!((row.status, row.sent, row.quarantine.as_ref()), (EpochStatus::Settled, ACTORS as u64, None));
    let amounts: std::collections::BTreeMap<[u8; 32], u128> =
        rig.ledger.book().booked.iter().map(|(key, content)| (*key, content.3)).collect();
    assert_eq!(amounts, rig::payouts(&computed), "each payout once, and no other");

    let broken = rig::computed("e2", rig::policy(""), ACTORS, rig::divide_wrongly);
    settle_down(&rig.engine, rig::computation(&rig.engine, broken)).expect("sealed");
    let told = rewarder.release(&"e2".parse().expect("a name"), "ann", true, deadline).await.expect_err("no amounts");
    assert!(told.detail.contains("another id"), "{told}");
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

/// Policy that pays these assets to whoever used something, with limits on what leaves by itself.
fn paying(assets: &[&str], release: &str) -> ron_calculus::Policy {
    let asset = |asset: &&str| format!(r#"{{"asset":"{asset}","pool":"1000","weights":{{"usage":"1"}}}}"#);
    let assets: Vec<String> = assets.iter().map(asset).collect();
    let text = format!(r#"{{"id":"demo","ruleset":1,"release":{release},"assets":[{}]}}"#, assets.join(","));
    ron_calculus::Policy::parse(text.as_bytes()).expect("a policy")
}

#[tokio::test(start_paused = true)]
async fn the_gate_looks_at_each_asset_by_itself() {
    let (change, new) = (r#"{"change_percent_max":10}"#, r#"{"new_payees_max":3}"#);
    for (before, now, release, expected) in [
        (&["RON"][..], &["RON"][..], change, ""),
        (&["RON"], &["COIN", "RON"], change, "COIN: 1000 units, and none before"),
        (&["COIN", "RON"], &["RON"], change, "COIN: \"a000\" had"),
        (&["COIN", "RON"], &["RON"], new, ""),
        (&["RON"], &["RON"], new, ""),
        // Everybody had units of another asset.
        (&["RON"], &["COIN", "RON"], new, "4 payees were not paid before"),
    ] {
        let rig = Rig::new();
        let seal = |epoch: &str, assets: &[&str], release: &str| {
            let computed = rig::computed(epoch, paying(assets, release), 4, ron_calculus::allocate);
            settle_down(&rig.engine, rig::computation(&rig.engine, computed)).expect("sealed")
        };
        assert_eq!(seal("before", before, "{}").status, EpochStatus::Released);
        settle_all(&rig.engine).await.expect("paid");
        let row = seal("now", now, release);
        let held = row.held_because.clone().unwrap_or_default();
        assert_eq!(held.is_empty(), expected.is_empty(), "{before:?} to {now:?} by {release}: {held}");
        assert!(held.contains(expected), "{before:?} to {now:?} by {release}: {held}");
    }
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
async fn a_crowd_of_readers_shares_one_load_and_what_does_not_fit_is_refused() {
    let rig = Rig::new();
    let rows = ["e1", "e2", "e3"].map(|epoch| rig.seal(epoch, "", ACTORS));
    // Room for two runs of this size, and not for three.
    let bytes_max = 5 * 256 * ACTORS as u64;
    let get = |row: &EpochRow| rig.engine.loaded_runs.get(&rig.engine, row, bytes_max, &[]);
    let kind = |row: &EpochRow| get(row).err().map(|error| error.kind);
    let (first, second) = (get(&rows[0]).expect("room"), get(&rows[1]).expect("room"));
    let again = get(&rows[0]).expect("it is here");
    assert!(Arc::ptr_eq(&first, &again), "one run for all who ask");
    assert!(Arc::ptr_eq(&first.load().expect("whole"), &again.load().expect("whole")), "loaded once");
    assert_eq!(kind(&rows[2]), Some(Kind::Busy), "both are in use");
    drop((first, again));
    get(&rows[2]).expect("what nobody uses makes room");
    assert_eq!(kind(&rows[0]), None, "and is read again");
    assert!(Arc::ptr_eq(&second, &get(&rows[1]).expect("it was in use")));
    drop(second);
    // One that is larger than the bound is read alone.
    let huge = rig.seal("huge", "", ACTORS * 20);
    let held = get(&huge).expect("alone");
    assert_eq!(kind(&rows[0]), Some(Kind::Busy));
    let both = rig.engine.loaded_runs.get(&rig.engine, &rows[0], bytes_max, std::slice::from_ref(&held));
    drop(both.expect("compared with what the same caller has"));
    drop(held);
    assert_eq!(kind(&rows[0]), None);
}

#[tokio::test(start_paused = true)]
async fn artifacts_have_a_quota_and_make_room_while_the_money_records_stay() {
    let rig = Rig::new();
    let rewarder = super::Rewarder { engine: Arc::clone(&rig.engine) };
    let deadline = Deadline::after(std::time::Duration::from_secs(60));
    let by_hand = r#","release":{"by_hand":true}"#;
    rig.seal("e1", "", ACTORS);
    rig.seal("e2", "", ACTORS);
    rig.seal("held", by_hand, ACTORS);
    settle_all(&rig.engine).await.expect("paid");
    let (bytes, booked) = (rig.engine.room.bytes(), rig.booked());
    assert!(bytes > 0);
    let next = rig::prepared(&rig::computed("e3", rig::policy(""), 4, ron_calculus::allocate));
    let live = super::engine::LiveOptions { epochs_bytes_max: bytes, ..rig.engine.live.get().value.clone() };
    rig.engine.live.publish(live);
    let full = schedule(&rig.engine, next.clone()).await.expect_err("full");
    assert!(full.detail.contains("rewarder.epochs_bytes_max") && full.detail.contains("reward prune"), "{full}");

    let remove = async |epoch: &str| rewarder.remove_artifacts(&epoch.parse().expect("a name"), "ann", deadline).await;
    assert_eq!(remove("held").await.expect_err("it is not paid").kind, Kind::Conflict);
    assert_eq!(remove("none").await.expect_err("unknown").kind, Kind::NotFound);
    let removed = remove("e1").await.expect("removed");
    assert_eq!((removed.status, removed.removed_by.as_deref()), (EpochStatus::Settled, Some("ann")));
    assert_eq!(remove("e1").await.expect("again is fine").removed_by.as_deref(), Some("ann"));
    assert!(rig.engine.room.bytes() < bytes);
    assert_eq!(schedule(&rig.engine, next).await, Ok(Begun::Started), "there is room again");
    let gone = rewarder.manifest(&"e1".parse().expect("a name"), deadline).await.expect_err("gone");
    assert!(gone.kind == Kind::NotFound && gone.detail.contains("ann"), "{gone}");
    let same = super::request::Prepared {
        hash: [8; 32],
        ..rig::prepared(&rig::computed("e1", rig::policy(""), 4, ron_calculus::allocate))
    };
    assert_eq!(schedule(&rig.engine, same).await.expect_err("still known").kind, Kind::Conflict);

    // The next start finds it so, and a crash between the record and the files is finished by it.
    let found = rig.disk.restart();
    rig::PartFolders(found.clone()).make("e1").expect("made").create("run.json").expect("made");
    let (engine, _receivers) = rig::engine(&found, &rig.ledger);
    recover(&engine).expect("recovered");
    let row = engine.store().expect("open").get("e1").expect("the record stays");
    assert_eq!((row.status, row.removed_by.as_deref()), (EpochStatus::Settled, Some("ann")));
    assert!(!engine.options.folders.names().expect("listed").contains(&"e1".to_owned()));
    settle_all(&engine).await.expect("nothing to do");
    assert_eq!(rig.booked(), booked, "nobody is paid again");
}

#[tokio::test(start_paused = true)]
async fn artifacts_of_settled_epochs_go_after_their_time_but_for_the_last() {
    let rig = Rig::new();
    for epoch in ["e1", "e2"] {
        rig.seal(epoch, "", 4);
    }
    rig.seal("held", r#","release":{"by_hand":true}"#, 4);
    settle_all(&rig.engine).await.expect("paid");
    let day = std::time::Duration::from_secs(24 * 3600);
    let settled_ms = rig.row("e2").settled_ms;
    assert!(settled_ms > 0);
    let after = |time: std::time::Duration| settled_ms + time.as_millis() as u64 + 1000;
    assert_eq!(prune(&rig.engine, std::time::Duration::ZERO, after(day)).expect("looked"), 0, "kept for ever");
    assert_eq!(prune(&rig.engine, day, after(day / 2)).expect("looked"), 0, "too young");
    assert_eq!(prune(&rig.engine, day, after(day)).expect("looked"), 1);
    assert_eq!(rig.row("e1").removed_by.as_deref(), Some("rewarder.artifacts_kept_for"));
    assert_eq!(rig.row("e2").removed_by, None, "the next epoch is compared with it");
    assert_eq!(rig.row("held").removed_by, None);
}

#[tokio::test(start_paused = true)]
async fn an_input_is_not_removed_under_a_run_that_waits_for_it() {
    let mut rig = Rig::new();
    let scratch = tempfile::tempdir().expect("a folder");
    let inputs = Arc::new(crate::inputs::Inputs::open(scratch.path().to_owned()).expect("opened"));
    let content = b"actor,quantity\nann,1\n";
    let hash = *blake3::hash(content).as_bytes();
    let mut upload = inputs.begin(hash, content.len() as u64, 1 << 20).expect("begun");
    upload.write(content).expect("room");
    upload.finish().expect("as said");
    let grounds = super::request::Grounds {
        inputs: &inputs,
        inputs_dir: None,
        trusted: None,
        allows_unsigned: true,
        is_amnesia: false,
        memory_bytes: 64 << 20,
        threads: 1,
        deadline: Deadline::after(std::time::Duration::from_secs(60)),
    };
    let request = super::request::ComputeRequest {
        epoch: "e1".parse().expect("a name"),
        inputs: vec![super::request::InputRef::Upload(hash)],
        policy: serde_json::to_vec(&rig::policy("")).expect("JSON"),
        pools: std::collections::BTreeMap::new(),
        carry_from: None,
        unsigned: true,
        deadline: None,
    };
    let prepared = request.prepare(&grounds).expect("fine");
    assert_eq!(schedule(&rig.engine, prepared).await, Ok(Begun::Started));
    assert_eq!(inputs.remove(&hash).expect_err("a run waits for it").kind, Kind::Conflict);
    let ticket = rig.engine.next_ticket(&mut rig.receivers.jobs).await.expect("a run");
    let job = ticket.flight.job.clone();
    crate::job::compute(&job, &crate::job::Unwatched).expect("its file is there");
    ticket.land(None);
    assert!(inputs.remove(&hash).expect("nobody needs it now"));
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
