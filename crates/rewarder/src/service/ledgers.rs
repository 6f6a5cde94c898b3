//! What becomes of payouts where the ledger knows other runs, comes back older or empty, refuses, or is away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ron_kernel::Deadline;
use ron_log::SimDisk;

use super::emitter::settle_all;
use super::engine::{Engine, lock};
use super::rig::{self, ACTORS, Fault, SimBook, SimLedger};
use super::writer::{recover, settle_down};
use super::{Receivers, Rewarder};
use crate::job::Computed;
use crate::store::{EpochRow, EpochStatus};

/// A node with a disk of its own, on a ledger that others may use too.
struct Node {
    disk: SimDisk,
    engine: Arc<Engine>,
    receivers: Receivers,
}

impl Node {
    fn new(ledger: &SimLedger) -> Node {
        Node::on(SimDisk::new(1), ledger)
    }

    fn on(disk: SimDisk, ledger: &SimLedger) -> Node {
        let (engine, receivers) = rig::engine(&disk, ledger);
        recover(&engine).expect("a log");
        Node { disk, engine, receivers }
    }

    /// The next process on the same disk.
    fn restarted(self, ledger: &SimLedger) -> Node {
        let disk = self.disk.restart();
        drop(self);
        Node::on(disk, ledger)
    }

    fn seal(&self, computed: &Computed) -> Arc<EpochRow> {
        settle_down(&self.engine, rig::computation(&self.engine, computed.clone())).expect("sealed")
    }

    fn seal_epoch(&self, epoch: &str, actors: u128) -> Arc<EpochRow> {
        self.seal(&computed(epoch, actors))
    }

    fn row(&self, epoch: &str) -> Arc<EpochRow> {
        self.engine.store().expect("open").get(epoch).expect("sealed")
    }

    fn status(&self, epoch: &str) -> EpochStatus {
        self.row(epoch).status
    }

    fn rewarder(&self) -> Rewarder {
        Rewarder { engine: Arc::clone(&self.engine) }
    }
}

fn computed(epoch: &str, actors: u128) -> Computed {
    rig::computed(epoch, rig::policy(""), actors, ron_calculus::allocate)
}

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn why(row: &EpochRow) -> String {
    row.quarantine.as_ref().map(|quarantine| quarantine.detail.clone()).unwrap_or_default()
}

/// Payouts of these runs, by key.
fn payouts(runs: &[&Computed]) -> BTreeMap<[u8; 32], u128> {
    runs.iter().flat_map(|run| rig::payouts(run)).collect()
}

fn booked(ledger: &SimLedger) -> BTreeMap<[u8; 32], u128> {
    ledger.book().booked.iter().map(|(key, content)| (*key, content.3)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_pot_of_an_epoch_is_paid_from_by_one_run_whatever_node_asks() {
    let ledger = SimLedger::default();
    let (first, second) = (Node::new(&ledger), Node::new(&ledger));
    first.seal_epoch("e1", 5);
    settle_all(&first.engine).await.expect("paid");
    // Another node, or this one with an older seal log: the same epoch from other usage.
    second.seal_epoch("e1", 7);
    settle_all(&second.engine).await.expect("it ends");
    let row = second.row("e1");
    assert_eq!((row.status, row.sent), (EpochStatus::Quarantined, 0));
    assert!(why(&row).contains("taken"), "{}", why(&row));
    assert_eq!(booked(&ledger), payouts(&[&computed("e1", 5)]), "the first run and nothing else");
    // The same run on another node is no other run.
    let third = Node::new(&ledger);
    third.seal_epoch("e1", 5);
    settle_all(&third.engine).await.expect("paid");
    assert_eq!(third.status("e1"), EpochStatus::Settled);
    assert_eq!(booked(&ledger), payouts(&[&computed("e1", 5)]));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_corrected_once_whatever_node_asks() {
    let ledger = SimLedger::default();
    let (first, second) = (Node::new(&ledger), Node::new(&ledger));
    let paid = computed("e1", 5);
    for node in [&first, &second] {
        node.seal(&paid);
        settle_all(&node.engine).await.expect("paid");
    }
    let fixes = ["fix-a", "fix-b"].map(|name| rig::corrected(name, &paid, 12));
    for (node, fix, end) in [(&first, &fixes[0], EpochStatus::Settled), (&second, &fixes[1], EpochStatus::Quarantined)]
    {
        // A correction names the commitment of what it corrects, so that only its own row can be made here.
        let epoch = node.seal(fix).epoch.clone();
        node.engine.store().expect("open").release(&epoch, "ann").expect("released");
        settle_all(&node.engine).await.expect("it ends");
        assert_eq!(node.status(&epoch), end, "{epoch}");
    }
    assert!(why(&second.row("fix-b")).contains("corrected already"));
    assert_eq!(booked(&ledger), payouts(&[&paid, &fixes[0]]));
}

#[tokio::test(start_paused = true)]
async fn two_nodes_die_at_every_call_and_no_pot_is_paid_from_twice() {
    let runs = [computed("e1", 5), computed("e1", 7)];
    let expected = runs.each_ref().map(|run| payouts(&[run]));
    let faults =
        [Fault::Unavailable, Fault::LostAnswer, Fault::Dies { is_booked: false }, Fault::Dies { is_booked: true }];
    for call in 1..=6 {
        for fault in faults {
            let ledger = SimLedger::default();
            ledger.book().faults.insert(call, fault);
            let mut nodes = runs.each_ref().map(|run| {
                let node = Node::new(&ledger);
                node.seal(run);
                node
            });
            for round in 0..4 {
                // One after the other, each a new process where the last one died.
                let node = &mut nodes[round % 2];
                let disk = node.disk.restart();
                *node = Node::on(disk, &ledger);
                let _ = settle_all(&node.engine).await;
                ledger.revive();
            }
            let ends = nodes.each_ref().map(|node| node.status("e1"));
            let what = format!("call {call}, {fault:?}: {ends:?}");
            let paid = ends.iter().position(|end| *end == EpochStatus::Settled).unwrap_or_else(|| panic!("{what}"));
            assert_eq!(ends[1 - paid], EpochStatus::Quarantined, "{what}");
            assert_eq!(booked(&ledger), expected[paid], "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_ledger_knows_no_pots_the_node_says_that_it_holds_the_rule() {
    let ledger = SimLedger::default();
    ledger.book().forgets_pots = true;
    let node = Node::new(&ledger);
    assert_eq!(node.rewarder().stats().expect("open").one_run_per_pot, None);
    node.seal_epoch("e1", 5);
    settle_all(&node.engine).await.expect("paid");
    assert_eq!(node.rewarder().stats().expect("open").one_run_per_pot, Some(false));
    ledger.book().forgets_pots = false;
    node.seal_epoch("e2", 5);
    settle_all(&node.engine).await.expect("paid");
    assert_eq!(node.rewarder().stats().expect("open").one_run_per_pot, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_comes_back_with_a_refusal_leaves_nobody_waiting() {
    let ledger = SimLedger::default();
    let node = Node::new(&ledger);
    for epoch in ["e1", "e2", "e3"] {
        node.seal_epoch(epoch, 4);
    }
    ledger.book().is_dead = true;
    assert!(settle_all(&node.engine).await.is_err() && node.engine.counts.ledger_waits());
    ledger.revive();
    ledger.book().refuses_pot = Some("epoch/e1".to_owned());
    settle_all(&node.engine).await.expect("everything ends");
    let ends = ["e1", "e2", "e3"].map(|epoch| node.status(epoch));
    assert_eq!(ends, [EpochStatus::Quarantined, EpochStatus::Settled, EpochStatus::Settled]);
    assert!(!node.engine.counts.ledger_waits(), "a refusal is an answer");
}

#[tokio::test(start_paused = true)]
async fn every_release_wakes_the_emitter_also_when_nobody_waits_for_it() {
    let ledger = SimLedger::default();
    let mut node = Node::new(&ledger);
    node.seal_epoch("e1", 4);
    assert!(node.receivers.payable.try_recv().is_some(), "the thread that seals wakes it");
    let by_hand = rig::policy(r#","release":{"by_hand":true}"#);
    node.seal(&rig::computed("e2", by_hand, 4, ron_calculus::allocate));
    assert!(node.receivers.payable.try_recv().is_none(), "it is held");
    let epoch = "e2".parse().expect("a name");
    let rewarder = node.rewarder();
    let mut releasing = Box::pin(rewarder.release(&epoch, "ann", false, deadline()));
    // The word is given, on a thread that may be done already; the caller leaves.
    let _ = futures_util::poll!(&mut releasing);
    drop(releasing);
    let woken = deadline().run("wake", node.receivers.payable.recv()).await;
    assert!(woken.is_ok_and(|wake| wake.is_some()), "nobody woke it");
    assert_eq!(node.status("e2"), EpochStatus::Released);
}

#[tokio::test(start_paused = true)]
async fn while_a_ledger_is_away_nothing_is_divided_again() {
    let ledger = SimLedger::default();
    let node = Node::new(&ledger);
    node.seal_epoch("e1", 4);
    ledger.book().is_dead = true;
    assert!(settle_all(&node.engine).await.is_err());
    // Read again it would be found out, and quarantine the epoch.
    node.disk.flip_bit("epoch~e1~usage.parquet", 20, 0);
    for _ in 0..3 {
        assert!(settle_all(&node.engine).await.is_err());
        assert_eq!(node.status("e1"), EpochStatus::Released);
    }
    ledger.revive();
    settle_all(&node.engine).await.expect("it ends");
    assert_eq!(node.status("e1"), EpochStatus::Quarantined);
}

/// Seals and settles one run after the other; gives the ledger as it was before the first, in the middle of each and
/// after it.
async fn history(node: &Node, ledger: &SimLedger, runs: &[Computed]) -> Vec<SimBook> {
    let mut copies = vec![ledger.book().clone()];
    for run in runs {
        let epoch = node.seal(run).epoch.clone();
        if node.status(&epoch) == EpochStatus::Held {
            node.engine.store().expect("open").release(&epoch, "ann").expect("released");
        }
        settle_all(&node.engine).await.expect("paid");
        assert_eq!(node.status(&epoch), EpochStatus::Settled);
        // Copies made in the middle of an epoch: some of its payouts are there.
        let whole = ledger.book().clone();
        let mine: Vec<[u8; 32]> = rig::payouts(run).into_keys().collect();
        let mut half = whole.clone();
        half.booked.retain(|key, _| !mine[..mine.len() / 2].contains(key));
        copies.extend([half, whole]);
    }
    copies
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_older_than_the_seals_is_noticed_and_is_sent_what_it_lacks_once() {
    let paid = computed("e1", ACTORS);
    let runs = [paid.clone(), computed("e2", 5), rig::corrected("fix", &paid, 12), computed("e3", 7)];
    let next = computed("next", 3);
    let all: Vec<&Computed> = runs.iter().chain([&next]).collect();
    for number in 0..2 * runs.len() {
        let ledger = SimLedger::default();
        let mut node = Node::new(&ledger);
        let copy = history(&node, &ledger, &runs).await[number].clone();
        node.seal(&next);
        ledger.restore(&copy);
        node = node.restarted(&ledger);
        let told = settle_all(&node.engine).await.expect_err("it is noticed");
        assert!(told.0.contains("lacks") && told.0.contains("ledger resend"), "{}", told.0);
        assert_eq!(node.status("next"), EpochStatus::Released);
        assert_eq!(ledger.book().booked.len(), copy.booked.len(), "copy {number}: nothing is booked");
        assert!(lock(&node.engine.settled).words().is_some_and(|words| words.contains("e3")), "for /readyz");
        let missing = node.rewarder().resend("ann", false, deadline()).await.expect("begun");
        assert_eq!(missing.len(), runs.len() - number / 2, "copy {number}");
        // It dies in the middle of that, and is asked again.
        let call = ledger.book().calls + 12;
        ledger.book().faults.insert(call, Fault::Dies { is_booked: true });
        assert!(settle_all(&node.engine).await.is_err());
        ledger.revive();
        node = node.restarted(&ledger);
        if settle_all(&node.engine).await.is_err() {
            node.rewarder().resend("ann", false, deadline()).await.expect("begun");
            settle_all(&node.engine).await.expect("sent again");
        }
        assert_eq!(node.rewarder().missing().len(), 0);
        assert_eq!(booked(&ledger), payouts(&all), "copy {number}: each payout once, and no other");
        assert_eq!(node.status("next"), EpochStatus::Settled);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_ledger_lost_and_nothing_is_left_of_is_given_up_by_a_person() {
    let ledger = SimLedger::default();
    let node = Node::new(&ledger);
    for epoch in ["e1", "e2"] {
        node.seal_epoch(epoch, 4);
    }
    settle_all(&node.engine).await.expect("paid");
    node.rewarder().remove_artifacts(&"e1".parse().expect("a name"), "ann", deadline()).await.expect("removed");
    ledger.restore(&SimBook::default());
    let node = node.restarted(&ledger);
    assert!(settle_all(&node.engine).await.is_err());
    node.rewarder().resend("ann", false, deadline()).await.expect("begun");
    let told = settle_all(&node.engine).await.expect_err("e1 cannot be sent");
    assert!(told.0.contains("e1") && !told.0.contains("e2"), "{}", told.0);
    assert_eq!(booked(&ledger), payouts(&[&computed("e2", 4)]));
    node.rewarder().resend("ann", true, deadline()).await.expect("given up");
    settle_all(&node.engine).await.expect("nothing waits");
    assert_eq!(node.row("e1").given_up_by.as_deref(), Some("ann"));
    let node = node.restarted(&ledger);
    settle_all(&node.engine).await.expect("nor after the next start");
}

#[tokio::test(start_paused = true)]
async fn usage_that_was_paid_under_another_name_is_held_with_that_name() {
    let ledger = SimLedger::default();
    let node = Node::new(&ledger);
    let paid = computed("e1", 5);
    node.seal(&paid);
    settle_all(&node.engine).await.expect("paid");
    let renamed = |epoch: &str, policy: ron_calculus::Policy| {
        let basis = crate::job::Basis {
            epoch: epoch.parse().expect("a name"),
            document: crate::policy_document::PolicyDocument::unsigned(policy.clone()),
            policy,
            ..paid.basis.clone()
        };
        crate::job::settle(basis, 1, &crate::job::Unwatched, ron_calculus::allocate).expect("computed")
    };
    let held = node.seal(&renamed("e1-again", rig::policy("")));
    let because = held.held_because.clone().unwrap_or_default();
    assert!(held.status == EpochStatus::Held && because.contains("epoch e1, which is settled"), "{because}");
    // Another asset is another programme: its payees are paid for the same usage as their policy says.
    let other = r#"{"id":"other","ruleset":1,"assets":[{"asset":"EUR","pool":"100","weights":{"usage":"1"}}]}"#;
    let other = renamed("e1-eur", ron_calculus::Policy::parse(other.as_bytes()).expect("a policy"));
    assert_eq!(node.seal(&other).status, EpochStatus::Released);
    // A correction pays by usage of its own.
    let fix = rig::corrected("fix", &paid, 6);
    node.seal(&fix);
    let policy = rig::policy("");
    let basis = crate::job::Basis {
        epoch: "next".parse().expect("a name"),
        document: crate::policy_document::PolicyDocument::unsigned(policy.clone()),
        policy,
        correction: None,
        ..fix.basis
    };
    let next = crate::job::settle(basis, 1, &crate::job::Unwatched, ron_calculus::allocate).expect("computed");
    let held = node.seal(&next);
    assert!(held.held_because.as_ref().is_some_and(|because| because.contains("epoch fix,")), "{held:?}");
    // A row of before this rule says it by its manifest.
    let store = node.engine.store().expect("open");
    let row = node.row("e1");
    store.replace(&row, EpochRow { usage: Vec::new(), ..(*row).clone() }).expect("as it was");
    let held = node.seal(&renamed("e1-third", rig::policy("")));
    assert!(held.held_because.as_ref().is_some_and(|because| because.contains("epoch e1,")), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn one_payee_that_cannot_be_paid_keeps_nobody_else_from_it() {
    let ledger = SimLedger::default();
    let node = Node::new(&ledger);
    let run = computed("e1", ACTORS);
    ledger.book().refuses_account = Some("a007".to_owned());
    node.seal(&run);
    settle_all(&node.engine).await.expect("it ends");
    let row = node.row("e1");
    assert_eq!((row.status, row.is_liftable()), (EpochStatus::Quarantined, true));
    assert!(why(&row).contains("1 payouts, of \"a007\"; all others are booked"), "{}", why(&row));
    assert_eq!(booked(&ledger).len(), ACTORS as usize - 1);
    // The account is opened again, and the epoch goes on.
    ledger.book().refuses_account = None;
    let epoch = "e1".parse().expect("a name");
    node.rewarder().release(&epoch, "ann", true, deadline()).await.expect("lifted");
    settle_all(&node.engine).await.expect("paid");
    assert_eq!((node.status("e1"), booked(&ledger)), (EpochStatus::Settled, payouts(&[&run])));
    // A ledger that refuses everything is not asked payee by payee.
    let before = ledger.book().calls;
    ledger.book().refuses_pot = Some("epoch/e2".to_owned());
    node.seal_epoch("e2", ACTORS);
    settle_all(&node.engine).await.expect("it ends");
    let calls = ledger.book().calls - before;
    assert!(node.status("e2") == EpochStatus::Quarantined && calls < 30, "{calls} calls");
}
