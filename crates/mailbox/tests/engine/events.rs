//! What watchers are told: everything in order, from where they stopped, or how much they missed.

use svc_mailbox::{Event, EventId, EventItem, EventReader, EventsFrom, Missed};

use super::*;

/// The next event that is told.
async fn told(events: &mut EventReader) -> (u64, Event) {
    match within(events.next()).await.expect("told in time").expect("the node lives") {
        EventItem::Event(told) => (told.number, told.event.clone()),
        EventItem::Missed(missed) => panic!("{missed:?}"),
    }
}

fn made(text: &str) -> Event {
    Event::TopicMade { topic: name(text) }
}

impl RunningMailbox {
    fn watch(&self, from: EventsFrom) -> EventReader {
        self.mailbox.watch_events(from).expect("watched")
    }

    async fn make(&self, topic: &str) {
        self.mailbox.create_topic(&name(topic), TopicSettings::default(), soon()).await.expect("made");
    }

    /// Makes and removes a topic so often, which is two events each time.
    async fn make_and_remove(&self, times: usize) {
        for _ in 0..times {
            self.make("passing").await;
            self.mailbox.delete_topic(&name("passing"), soon()).await.expect("removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_life_of_a_message_is_told_in_order() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let mut events = running.watch(EventsFrom::Now);
    let settings = TopicSettings { max_attempts: 1, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("jobs"), settings, soon()).await.expect("made");
    let sent = running.send("jobs", "x").await;
    let delivery = running.recv("jobs", 1).await.remove(0);
    let nacked = running.mailbox.nack(vec![delivery.receipt], "no", None, false, soon()).await;
    assert!(nacked[0].is_ok(), "{nacked:?}");
    assert_eq!(told(&mut events).await, (1, made("jobs")));
    let mut next = told(&mut events).await;
    if matches!(&next.1, Event::TopicMade { .. }) {
        next = told(&mut events).await;
    }
    let (number, Event::Died { topic, msg_id, .. }) = next else { panic!("{next:?}") };
    assert_eq!((topic, msg_id), (name("jobs"), sent.msg_id));

    let dead = name("jobs.dlq");
    running.mailbox.start_move(MoveOrder::all_of(dead.clone()), soon()).await.expect("ordered");
    let (moved_number, moved) = told(&mut events).await;
    let Event::Moved { from, to, count: 1, .. } = moved else { panic!("{moved:?}") };
    assert_eq!((from, to, moved_number), (Some(dead), Some(name("jobs")), number + 1));

    running.mailbox.delete_topic(&name("jobs"), soon()).await.expect("removed");
    assert_eq!(told(&mut events).await.1, Event::TopicGone { topic: name("jobs") });
    let mut live = LiveOptions::clone(&running.live.get().value);
    live.ready_shards = 3;
    running.live.publish(live);
    assert_eq!(told(&mut events).await.1, Event::Rebalanced { shards: 3 });
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_goes_on_where_it_stopped() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    for topic in ["a", "b", "c"] {
        running.make(topic).await;
    }
    let mut first = running.watch(EventsFrom::Oldest);
    assert_eq!(told(&mut first).await, (1, made("a")));
    let stopped = first.position();
    drop(first);
    running.make("d").await;
    let mut again = running.watch(EventsFrom::After(stopped));
    for (number, topic) in [(2, "b"), (3, "c"), (4, "d")] {
        assert_eq!(told(&mut again).await, (number, made(topic)));
    }
    assert_eq!(again.next_remembered(), None, "that is all there is");
    running.make("e").await;
    assert_eq!(told(&mut again).await, (5, made("e")), "and it goes on by itself");

    let ahead = EventId { number: 99, ..stopped };
    let refused = running.mailbox.watch_events(EventsFrom::After(ahead)).map(drop);
    assert_eq!(refused.map_err(|error| error.kind), Err(Kind::Schema));

    let other_run = EventId { run: stopped.run ^ 1, number: 99 };
    let mut after_restart = running.watch(EventsFrom::After(other_run));
    let missed = after_restart.next_remembered();
    assert_eq!(missed, Some(EventItem::Missed(Missed { count: None })), "nobody knows what that run still told");
    assert_eq!(told(&mut after_restart).await, (1, made("a")), "all of this run is news");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_watcher_catches_up_or_is_told_how_much_it_missed() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let mut slow = running.watch(EventsFrom::Now);
    // More than the broadcast holds, less than is remembered.
    running.make_and_remove(1000).await;
    for number in 1..=2000 {
        assert_eq!(told(&mut slow).await.0, number);
    }
    // More than is remembered.
    running.make_and_remove(2500).await;
    let EventItem::Missed(Missed { count: Some(missed) }) = within(slow.next()).await.expect("told").expect("alive")
    else {
        panic!("it was told nothing of what it missed")
    };
    assert_eq!(missed, 5000 - 4096);
    for number in 2000 + missed + 1..=7000 {
        assert_eq!(told(&mut slow).await.0, number, "every event was told or counted as missed");
    }
    assert_eq!(slow.next_remembered(), None);
    assert_eq!(running.stop().await, 0);
}
