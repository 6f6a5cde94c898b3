//! A consumer that fails everything: its topic pauses instead of draining into the dead letters.

use svc_mailbox::types::{BreakerSettings, BreakerState};
use svc_mailbox::{Event, EventItem, EventReader, EventsFrom};

use super::*;

const MESSAGES: usize = 200;

fn settings() -> TopicSettings {
    let breaker = BreakerSettings { deliveries_min: 10, pause_ms: 1_000, ..BreakerSettings::default() };
    TopicSettings { max_attempts: 3, breaker: Some(breaker), ..TopicSettings::default() }
}

impl RunningMailbox {
    async fn poisoned() -> RunningMailbox {
        let running = RunningMailbox::start(LogLocation::Memory).await;
        running.mailbox.create_topic(&name("jobs"), settings(), soon()).await.expect("made");
        for n in 0..MESSAGES {
            running.send("jobs", &n.to_string()).await;
        }
        running
    }

    async fn fail(&self, deliveries: &[Delivery]) {
        let receipts = deliveries.iter().map(|delivery| delivery.receipt).collect();
        let failed = self.mailbox.nack(receipts, "boom", Some(0), false, soon()).await;
        assert!(failed.iter().all(Result::is_ok), "{failed:?}");
    }

    /// Fails whatever there is until nothing more comes.
    async fn fail_all(&self) {
        loop {
            match &self.recv("jobs", 5).await[..] {
                [] => return,
                deliveries => self.fail(deliveries).await,
            }
        }
    }

    /// Whoever waits while deliveries pause.
    async fn next(&self) -> Vec<Delivery> {
        self.recv_as("jobs", Receive { max_messages: 100, wait_ms: 15_000, ..once() }).await
    }

    async fn holding(&self, topic: &str) -> (usize, BreakerState) {
        let total = self.mailbox.stats(&name(topic), soon()).await.expect("counted").total;
        (total.held() as usize, total.breaker.state)
    }

    fn metric(&self, line: &str) -> bool {
        self.kernel.metrics().render().lines().any(|other| other == line)
    }
}

/// The next news of a breaker.
async fn next_turn(events: &mut EventReader) -> Event {
    loop {
        let item = within(events.next()).await.expect("told in time").expect("the node lives");
        let EventItem::Event(told) = item else { panic!("{item:?}") };
        if let news @ (Event::BreakerOpened { .. } | Event::BreakerClosed { .. }) = &told.event {
            return news.clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_fails_everything_leaves_the_messages_where_they_are() {
    let running = RunningMailbox::poisoned().await;
    let mut events = running.mailbox.watch_events(EventsFrom::Now).expect("watched");
    running.fail_all().await;
    let (left, state) = running.holding("jobs").await;
    let (dead, _) = running.holding("jobs.dlq").await;
    assert_eq!((left + dead, state), (MESSAGES, BreakerState::Open));
    assert!(dead <= 10, "{dead} died before it opened");
    let news = next_turn(&mut events).await;
    assert!(matches!(news, Event::BreakerOpened { partition: 0, failing: 10.., .. }), "{news:?}");
    assert!(running.metric(r#"mailbox_breaker_open_total{topic="jobs"} 1"#));
    let page = running.mailbox.browse(&name("jobs"), Filter::default(), None, 1, soon()).await.expect("seen");
    let explained = running.mailbox.explain(page.messages[0].msg_id, soon()).await.expect("known");
    assert!(explained.verdict.contains("paused for another"), "{}", explained.verdict);

    let until = explained.breaker.until_ms.expect("it is open");
    let probe = running.next().await;
    assert!(probe.len() == 1 && running.mailbox.now() >= until, "one message, after the pause");
    assert_eq!(running.holding("jobs").await.1, BreakerState::HalfOpen);
    running.fail(&probe).await;
    assert_eq!(running.holding("jobs").await.1, BreakerState::Open, "it was no better");
    let probe = running.next().await;
    running.ack(&probe[0]).await;
    assert_eq!(running.holding("jobs").await.1, BreakerState::Closed);
    assert_eq!(running.next().await.len(), 100, "everything goes on");
    assert!(matches!(next_turn(&mut events).await, Event::BreakerOpened { failing: 1, deliveries: 1, .. }));
    assert_eq!(next_turn(&mut events).await, Event::BreakerClosed { topic: name("jobs"), partition: 0 });
    assert!(running.metric(r#"mailbox_breaker_open_total{topic="jobs"} 2"#));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_who_turns_it_off_sets_waiting_receivers_free() {
    let running = RunningMailbox::poisoned().await;
    let breaker = settings().breaker.map(|breaker| BreakerSettings { pause_ms: 3_600_000, ..breaker });
    let topic = name("jobs");
    let set = |breaker| {
        let change = move |settings: &mut TopicSettings| {
            settings.breaker = breaker;
            Ok(())
        };
        running.mailbox.edit_topic(&topic, change, soon())
    };
    set(breaker).await.expect("changed");
    running.fail_all().await;
    assert_eq!(running.holding("jobs").await.1, BreakerState::Open);
    let (received, changed) = tokio::join!(running.next(), set(None));
    assert_eq!((received.len(), changed.expect("changed").settings.breaker), (100, None));
    assert_eq!(running.holding("jobs").await.1, BreakerState::Closed);
    assert_eq!(running.stop().await, 0);
}
