//! Moves: to where each message was for or to a named topic, all or some, across restarts, paused, ended and failed.

use std::collections::BTreeSet;

use svc_mailbox::{IfBusy, MoveControl, MoveFailure, MoveView, OnFailure};

use super::*;

/// An order as SQS gives it.
fn order(from: &str, to: Option<&str>, rate_per_second: Option<u32>) -> MoveOrder {
    let (if_busy, on_failure) = (IfBusy::Refuse, OnFailure::Stop);
    MoveOrder { to: to.map(name), rate_per_second, if_busy, on_failure, ..MoveOrder::all_of(name(from)) }
}

impl RunningMailbox {
    async fn start_move(&self, order: MoveOrder) -> MoveView {
        self.mailbox.start_move(order, soon()).await.expect("started")
    }

    async fn control(&self, view: &MoveView, control: MoveControl) -> MoveView {
        self.mailbox.control_move(&view.from, view.task.id, control, soon()).await.expect("it has not ended")
    }

    /// A move once it is in this state.
    async fn until_move(&self, id: u64, state: MoveState) -> MoveView {
        eventually(|| self.mailbox.find_move(id).expect("known"), |view| view.task.state == state).await
    }

    /// The newest move of a topic once it is as wanted.
    async fn until(&self, from: &str, is_so: impl Fn(&MoveView) -> bool) -> MoveView {
        let mut moves = eventually(|| self.mailbox.moves(&name(from)), |moves| moves.first().is_some_and(&is_so)).await;
        moves.remove(0)
    }

    async fn until_state(&self, from: &str, state: MoveState) -> MoveView {
        self.until(from, |view| view.task.state == state).await
    }

    /// A topic whose dead go to `grave`, with so many dead.
    async fn bury(&self, topic: &str, grave: &str, count: usize) {
        let settings = TopicSettings { dlq: Some(grave.to_owned()), partitions: 2, ..TopicSettings::default() };
        self.mailbox.create_topic(&name(topic), settings, soon()).await.expect("made");
        for n in 0..count {
            let group = Some(format!("g{}", n % 5));
            self.send_as(topic, Outgoing { group, payload: n.to_string().into(), ..Outgoing::default() }).await;
        }
        let mut buried = 0;
        while buried < count {
            let receipts: Vec<_> = self.recv(topic, 100).await.iter().map(|delivery| delivery.receipt).collect();
            buried += receipts.len();
            let nacked = self.mailbox.nack(receipts, "no", None, true, soon()).await;
            assert!(nacked.iter().all(Result::is_ok), "{nacked:?}");
        }
    }

    async fn held(&self, topic: &str) -> u64 {
        self.mailbox.stats(&name(topic), soon()).await.expect("counted").total.held()
    }

    /// Everything in a topic, each message once.
    async fn drain(&self, topic: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        while self.held(topic).await > 0 {
            for delivery in self.recv(topic, 100).await {
                assert_eq!(delivery.attempt, 1, "its deliveries are counted anew");
                assert!(all.insert(String::from_utf8_lossy(&delivery.payload).into_owned()), "{delivery:?}");
                self.ack(&delivery).await;
            }
        }
        all
    }
}

fn numbers(count: usize) -> BTreeSet<String> {
    (0..count).map(|n| n.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_go_back_to_where_they_were_for_several_topics_at_once() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("orders", "grave", 250).await;
    running.bury("bills", "grave", 50).await;
    running.bury("mails", "mails.grave", 120).await;
    let slow = running.start_move(order("mails.grave", Some("orders"), Some(10))).await;
    let view = running.start_move(order("grave", None, None)).await;
    assert_eq!(
        (view.task.state, view.task.to_move, view.task.moved, view.task.failure),
        (MoveState::Running, 300, 0, None)
    );
    let done = running.until_state("grave", MoveState::Completed).await;
    assert_eq!((done.task.id, done.task.moved, done.task.to_move), (view.task.id, 300, 300));
    assert_eq!(
        running.mailbox.moves(&name("mails.grave"))[0].task.state,
        MoveState::Running,
        "the slow one goes on beside it"
    );
    let again = running.mailbox.start_move(order("mails.grave", None, None), soon()).await.expect_err("one runs");
    assert_eq!(again.kind, Kind::Conflict);
    assert_eq!(running.drain("bills").await, numbers(50));

    let canceled = running.control(&slow, MoveControl::Cancel).await;
    assert_eq!((canceled.task.id, canceled.task.state), (slow.task.id, MoveState::Canceling));
    let ended = running.until_state("mails.grave", MoveState::Canceled).await;
    assert_eq!(running.held("mails.grave").await, 120 - ended.task.moved, "what was moved stays moved");
    assert_eq!(running.held("orders").await, 250 + ended.task.moved);
    for (from, id, kind) in [
        ("mails.grave", slow.task.id, Kind::Conflict),
        ("mails.grave", slow.task.id + 1_000_000, Kind::NotFound),
        ("grave", slow.task.id, Kind::NotFound),
        ("nowhere", slow.task.id, Kind::NotFound),
    ] {
        let refused = running.mailbox.control_move(&name(from), id, MoveControl::Cancel, soon()).await;
        let refused = refused.expect_err("nothing to cancel");
        assert_eq!(refused.kind, kind, "{from}: {refused}");
    }
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_goes_on_after_a_lost_task_and_after_a_restart_and_moves_each_message_once() {
    const COUNT: usize = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    running.bury("jobs", "grave", COUNT).await;
    let view = running.start_move(order("grave", None, Some(100))).await;
    running.until("grave", |view| view.task.moved >= 5).await;
    running.kernel.chaos("dlq_reprocessor", 1.0, ChaosOrder::Kill).await.expect("killed");
    let before = running.until("grave", |view| view.task.moved >= 25).await;
    assert_eq!((before.task.id, before.task.state), (view.task.id, MoveState::Running));
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let after = running.mailbox.moves(&name("grave")).remove(0);
    assert!(after.task.moved >= before.task.moved, "{after:?} after {before:?}");
    let done = running.until_state("grave", MoveState::Completed).await;
    assert_eq!(
        (done.task.moved, done.task.to_move, done.task.started_ms),
        (COUNT as u64, COUNT as u64, view.task.started_ms)
    );
    assert_eq!(running.held("grave").await, 0);
    assert_eq!(running.drain("jobs").await, numbers(COUNT));
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    assert_eq!(running.mailbox.moves(&name("grave")), [done], "how it ended is remembered");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_are_remembered_when_the_log_has_made_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    running.bury("jobs", "grave", 3).await;
    running.start_move(order("grave", None, None)).await;
    running.until_state("grave", MoveState::Completed).await;
    running.bury("others", "jobs", 3).await;
    let waiting = running.start_move(order("jobs", Some("grave"), Some(1))).await;
    let rest = running.until("jobs", |view| view.task.moved > 0).await;
    let known = running.mailbox.moves(&name("grave"));
    let body = "x".repeat(100_000);
    for _ in 0..100 {
        running.send("fast", &body).await;
        let delivery = running.recv("fast", 1).await.remove(0);
        running.ack(&delivery).await;
    }
    running.until_small().await;
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    assert_eq!(running.mailbox.moves(&name("grave")), known);
    let found = running.mailbox.moves(&name("jobs")).remove(0);
    assert!(
        found.task.moved >= rest.task.moved && (found.task.id, found.task.to_move) == (waiting.task.id, 6),
        "{found:?}"
    );
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_wanted_to_end_ends_after_a_restart_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    running.bury("jobs", "grave", 20).await;
    let view = running.start_move(order("grave", None, Some(1))).await;
    running.until("grave", |view| view.task.moved > 0).await;
    running.control(&view, MoveControl::Cancel).await;
    assert_eq!(running.stop().await, 0);
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let ended = running.until_state("grave", MoveState::Canceled).await;
    assert_eq!((ended.task.id, running.held("grave").await), (view.task.id, 20 - ended.task.moved));
    assert!(ended.task.moved < 20, "{ended:?}");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_fails_where_a_message_cannot_go_and_the_message_stays() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("jobs", "grave", 20).await;
    running.mailbox.delete_topic(&name("jobs"), soon()).await.expect("deleted");
    running.start_move(order("grave", None, None)).await;
    let failed = running.until_state("grave", MoveState::Failed).await;
    assert_eq!((failed.task.failure, failed.task.moved), (Some(MoveFailure::NoDestination), 0));

    running.mailbox.create_topic(&name("there"), TopicSettings::default(), soon()).await.expect("made");
    running.start_move(order("grave", Some("there"), Some(1))).await;
    running.until("grave", |view| view.task.moved > 0).await;
    running.mailbox.delete_topic(&name("there"), soon()).await.expect("deleted");
    let failed = running.until_state("grave", MoveState::Failed).await;
    assert_eq!(failed.task.failure, Some(MoveFailure::NoDestination));
    assert_eq!(running.held("grave").await, 20 - failed.task.moved);

    for (from, to, kind) in [
        ("grave", Some("there"), Kind::NotFound),
        ("nowhere", None, Kind::NotFound),
        ("grave", Some("grave"), Kind::Schema),
    ] {
        let refused = running.mailbox.start_move(order(from, to, None), soon()).await.expect_err("it cannot be");
        assert_eq!(refused.kind, kind, "{from} to {to:?}: {refused}");
    }
    running.send("plain", "never dead").await;
    running.start_move(order("plain", None, None)).await;
    let failed = running.until_state("plain", MoveState::Failed).await;
    assert_eq!(failed.task.failure, Some(MoveFailure::NoOrigin));
    assert!(running.mailbox.moves(&name("nowhere")).is_empty());
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_leaves_what_is_with_a_consumer_and_only_the_last_ones_are_remembered() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("jobs", "jobs.grave", 5).await;
    let leased = running.recv("jobs.grave", 1).await.remove(0);
    running.start_move(order("jobs.grave", None, None)).await;
    let done = running.until_state("jobs.grave", MoveState::Completed).await;
    assert_eq!((done.task.moved, done.task.to_move), (4, 5));
    running.ack(&leased).await;
    for round in 0..12 {
        let view = running.start_move(order("jobs.grave", Some("jobs"), None)).await;
        let ended = running.until_state("jobs.grave", MoveState::Completed).await;
        assert_eq!((ended.task.id, ended.task.to_move), (view.task.id, 0), "{round}");
    }
    let all = running.mailbox.moves(&name("jobs.grave"));
    assert_eq!(all.len(), 10);
    assert!(all.is_sorted_by(|one, next| one.task.id > next.task.id), "the newest first: {all:?}");
    // The dead letters that a topic has of its own are a topic like any other.
    let moved = running.start_move(order("jobs", Some("jobs.dlq"), None)).await;
    running.until_state("jobs", MoveState::Completed).await;
    assert_eq!((moved.task.to_move, running.held("jobs.dlq").await), (4, 4));
    running.start_move(order("jobs.dlq", Some("jobs"), None)).await;
    running.until_state("jobs.dlq", MoveState::Completed).await;
    assert_eq!(running.held("jobs").await, 4);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_with_a_filter_and_a_limit_moves_just_these() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("jobs", "grave", 250).await;
    let filter = Filter { group: Some("g1".to_owned()), ..Filter::default() };
    let some = MoveOrder { filter: filter.clone(), limit: Some(30), ..MoveOrder::all_of(name("grave")) };
    assert_eq!(running.mailbox.count_move(&some, soon()).await.expect("counted"), 30);
    let view = running.start_move(some).await;
    let done = running.until_move(view.task.id, MoveState::Completed).await;
    assert_eq!((done.task.moved, done.task.failed, done.task.to_move), (30, 0, 250));
    let rest = running.start_move(MoveOrder { filter, ..MoveOrder::all_of(name("grave")) }).await;
    let done = running.until_move(rest.task.id, MoveState::Completed).await;
    assert_eq!((done.task.moved, done.task.looked_at), (20, 220), "everything was looked at, the group was moved");
    let of_group: BTreeSet<String> = (0..250).filter(|n| n % 5 == 1).map(|n| n.to_string()).collect();
    assert_eq!(running.drain("jobs").await, of_group);
    assert_eq!(running.held("grave").await, 200);
    let payload = Filter { payload_contains: Some("24".to_owned()), ..Filter::default() };
    let view = running.start_move(MoveOrder { filter: payload, ..MoveOrder::all_of(name("grave")) }).await;
    // 24, 124, 224 and 240 to 249 without those of the group.
    let done = running.until_move(view.task.id, MoveState::Completed).await;
    assert_eq!(done.task.moved, 3 + 8);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_orders_outlive_a_restart() {
    const COUNT: usize = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    running.bury("jobs", "grave", COUNT).await;
    let slow = MoveOrder { rate_per_second: Some(20), limit: Some(30), ..MoveOrder::all_of(name("grave")) };
    let first = running.start_move(slow).await;
    let second = running.start_move(MoveOrder::all_of(name("grave"))).await;
    assert_eq!((first.task.state, second.task.state), (MoveState::Running, MoveState::Waiting));
    running.until("grave", |_| running.mailbox.find_move(first.task.id).is_ok_and(|view| view.task.moved > 0)).await;
    for view in [&second, &first] {
        assert_eq!(running.control(view, MoveControl::Pause).await.task.state, MoveState::Paused);
    }
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let found = running.mailbox.find_move(first.task.id).expect("remembered");
    assert_eq!((&found.task.state, found.task.limit), (&MoveState::Paused, Some(30)));
    assert_eq!(found.task.moved, COUNT as u64 - running.held("grave").await, "nothing moves while it is paused");
    assert_eq!(running.mailbox.find_move(second.task.id).expect("remembered").task.state, MoveState::Paused);
    running.control(&found, MoveControl::Resume).await;
    let second = running.control(&second, MoveControl::Resume).await;
    assert_eq!(second.task.state, MoveState::Waiting, "the first runs again");
    assert_eq!(running.until_move(first.task.id, MoveState::Completed).await.task.moved, 30);
    let done = running.until_move(second.task.id, MoveState::Completed).await;
    assert_eq!((done.task.moved, done.task.to_move), (COUNT as u64 - 30, COUNT as u64 - 30), "counted at its turn");
    assert_eq!(running.drain("jobs").await, numbers(COUNT));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canceled_order_moves_nothing_more_and_lets_the_next_go() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("jobs", "grave", 30).await;
    let slow = || MoveOrder { rate_per_second: Some(1), ..MoveOrder::all_of(name("grave")) };
    let first = running.start_move(slow()).await;
    let (never, last) = (running.start_move(slow()).await, running.start_move(MoveOrder::all_of(name("grave"))).await);
    assert_eq!(running.control(&never, MoveControl::Cancel).await.task.state, MoveState::Canceled, "it had not begun");
    running.control(&first, MoveControl::Cancel).await;
    let moved = running.until_move(first.task.id, MoveState::Canceled).await.task.moved;
    let done = running.until_move(last.task.id, MoveState::Completed).await;
    assert_eq!((done.task.moved + moved, running.held("grave").await), (30, 0));
    assert_eq!(running.mailbox.find_move(never.task.id).expect("remembered").task.moved, 0);
    let ids: Vec<u64> = running.mailbox.page_of_moves(None, 9, |_| true).0.iter().map(|view| view.task.id).collect();
    assert_eq!(ids, [last.task.id, never.task.id, first.task.id], "the newest first");
    for (before, limit, expected, next) in
        [(None, 2, &ids[..2], Some(ids[1])), (Some(ids[1]), 1, &ids[2..], None), (Some(ids[2]), 1, &[], None)]
    {
        let (page, found) = running.mailbox.page_of_moves(before, limit, |_| true);
        let page: Vec<u64> = page.iter().map(|view| view.task.id).collect();
        assert_eq!((&page[..], found), (expected, next));
    }
    assert!(running.mailbox.page_of_moves(None, 9, |topic| topic.as_str() == "jobs").0.is_empty());
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_go_is_counted_and_the_order_goes_on() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("gone", "grave", 3).await;
    running.bury("jobs", "grave", 5).await;
    running.mailbox.delete_topic(&name("gone"), soon()).await.expect("deleted");
    let view = running.start_move(MoveOrder::all_of(name("grave"))).await;
    let done = running.until_move(view.task.id, MoveState::Completed).await.task;
    assert_eq!((done.moved, done.failed, done.looked_at, running.held("grave").await), (5, 3, 8, 3));
    assert!(done.last_error.is_some_and(|error| error.contains("does not exist")));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_order_holds_up_neither_its_topic_nor_the_node() {
    const OF_TOPIC: usize = 32;
    let running = RunningMailbox::start(LogLocation::Memory).await;
    // More than one a second moves before it is paused, however long that takes: an order that ends is not paused.
    running.bury("jobs", "grave", 90).await;
    running.bury("mails", "other", 5).await;
    let paused = || MoveOrder { rate_per_second: Some(1), ..MoveOrder::all_of(name("grave")) };
    let mut first = None;
    for _ in 0..OF_TOPIC - 1 {
        let view = running.start_move(paused()).await;
        first.get_or_insert(running.control(&view, MoveControl::Pause).await);
    }
    let last = running.start_move(MoveOrder::all_of(name("grave"))).await;
    assert_eq!(last.task.state, MoveState::Running, "a paused one does not go first");
    running.until_move(last.task.id, MoveState::Completed).await;
    running.bury("letters", "grave", 20).await;
    let one_more = running.start_move(paused()).await;
    running.control(&one_more, MoveControl::Pause).await;
    let refused = running.mailbox.start_move(paused(), soon()).await.expect_err("as many as a topic may have");
    assert_eq!(refused.kind, Kind::Busy);
    let elsewhere = running.start_move(order("other", None, None)).await;
    running.until_move(elsewhere.task.id, MoveState::Completed).await;
    assert_eq!(running.held("mails").await, 5, "another topic has its own");
    let first = first.expect("some are paused");
    running.control(&first, MoveControl::Cancel).await;
    running.until_move(first.task.id, MoveState::Canceled).await;
    running.start_move(paused()).await;
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_for_the_letters_of_different_topics_run_beside_each_other_and_count_their_own_over_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    running.bury("jobs", "grave", 30).await;
    running.bury("mails", "grave", 40).await;
    let letters_of = |topic: &str| MoveOrder { origins: Some(vec![name(topic)]), ..MoveOrder::all_of(name("grave")) };
    assert_eq!(running.mailbox.count_move(&letters_of("mails"), soon()).await.expect("counted"), 40);
    let slow = running.start_move(MoveOrder { rate_per_second: Some(10), ..letters_of("jobs") }).await;
    running.until("grave", |view| view.task.moved > 0).await;
    let quick = running.start_move(letters_of("mails")).await;
    assert_eq!(quick.task.state, MoveState::Running, "it wants other messages");
    let behind = running.start_move(letters_of("jobs")).await;
    assert_eq!(behind.task.state, MoveState::Waiting, "it wants the same");
    let quick = running.until_move(quick.task.id, MoveState::Completed).await;
    assert_eq!((quick.task.moved, running.drain("mails").await), (40, numbers(40)));
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    assert_eq!(running.mailbox.find_move(quick.task.id).expect("remembered").task.moved, 40);
    let slow = running.until_move(slow.task.id, MoveState::Completed).await;
    let behind = running.until_move(behind.task.id, MoveState::Completed).await;
    assert_eq!(slow.task.moved + behind.task.moved, 30);
    assert_eq!((running.held("grave").await, running.drain("jobs").await), (0, numbers(30)));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_anew_with_the_name_of_a_destination_gets_nothing() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.bury("jobs", "grave", 5).await;
    running.mailbox.create_topic(&name("there"), TopicSettings::default(), soon()).await.expect("made");
    let view = running.start_move(order("grave", Some("there"), Some(1))).await;
    running.control(&view, MoveControl::Pause).await;
    running.mailbox.delete_topic(&name("there"), soon()).await.expect("deleted");
    running.mailbox.create_topic(&name("there"), TopicSettings::default(), soon()).await.expect("made anew");
    running.control(&view, MoveControl::Resume).await;
    let failed = running.until_move(view.task.id, MoveState::Failed).await;
    assert_eq!(failed.task.failure, Some(MoveFailure::NoDestination));
    assert_eq!(running.held("there").await, 0);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_leaves_most_moves_of_the_node_to_others() {
    const OF_SUBJECT: usize = 256;
    const OF_TOPIC: usize = 32;
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let order_of = |subject: &str, nth: usize| MoveOrder {
        ordered_by: Some(subject.to_owned()),
        rate_per_second: Some(1),
        ..MoveOrder::all_of(name(&format!("grave{}", nth / OF_TOPIC)))
    };
    for topic in 0..=OF_SUBJECT / OF_TOPIC {
        running.bury(&format!("jobs{topic}"), &format!("grave{topic}"), 2 * OF_TOPIC).await;
    }
    for nth in 0..OF_SUBJECT {
        let view = running.start_move(order_of("greedy", nth)).await;
        running.control(&view, MoveControl::Pause).await;
    }
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let refused = running.mailbox.start_move(order_of("greedy", OF_SUBJECT), soon()).await;
    let refused = refused.expect_err("as many as one subject may have, after a restart too");
    assert!(refused.kind == Kind::Busy && refused.detail.contains("share"), "{refused}");
    running.start_move(order_of("honest", OF_SUBJECT)).await;
    assert_eq!(running.stop().await, 0);
}
