//! Idempotency keys have a bound in bytes of their own, shares of it, and answers where there is no room for new ones.

use super::*;

fn keyed(key: String) -> Outgoing {
    Outgoing { idem_key: Some(key), payload: "x".into(), ..Outgoing::default() }
}

impl RunningMailbox {
    async fn outcome(&self, by: &Subject, topic: &str, message: Outgoing) -> Result<bool, (Kind, String)> {
        let sent = self.mailbox.send(by, &name(topic), message, soon()).await;
        sent.map(|sent| sent.duplicate).map_err(|error| (error.kind, error.detail.into_owned()))
    }

    /// Sends messages with new keys until one is refused; how many, and why.
    async fn fill_with_keys(&self, by: &Subject, topic: &str) -> (usize, String) {
        for number in 0..100_000 {
            if let Err((kind, detail)) = self.outcome(by, topic, keyed(number.to_string())).await {
                assert_eq!(kind, Kind::Busy, "{detail}");
                return (number, detail);
            }
        }
        panic!("nothing bounds the keys of {topic}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_key_is_answered_where_memory_is_used_up() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let (by, known) = (anybody(), || keyed("known".to_owned()));
    assert_eq!(running.outcome(&by, "t", known()).await, Ok(false));
    for live in [
        LiveOptions { memory_bytes_max: 1, ..LiveOptions::default() },
        LiveOptions { key_bytes_max: 1, ..LiveOptions::default() },
    ] {
        let messages_are_refused = live.memory_bytes_max == 1;
        running.live.publish(live);
        assert_eq!(running.outcome(&by, "t", known()).await, Ok(true));
        let refused = running.outcome(&by, "t", keyed("new".to_owned())).await.expect_err("no room for it");
        assert_eq!(refused.0, Kind::Busy, "{refused:?}");
        let plain = Outgoing { payload: "x".into(), ..Outgoing::default() };
        assert_eq!(running.outcome(&by, "t", plain.clone()).await.is_err(), messages_are_refused);
        let batch = vec![keyed("new".to_owned()), known(), plain];
        let sent = running.mailbox.send_batch(&by, &name("t"), batch, soon()).await;
        assert!(sent[1].as_ref().is_ok_and(|sent| sent.duplicate), "{sent:?}");
        assert_eq!((sent[0].is_err(), sent[2].is_err()), (true, messages_are_refused), "{sent:?}");
    }
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_have_as_many_bytes_as_is_configured_and_leave_messages_alone() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let with = |key_bytes_max| LiveOptions { key_bytes_max, ..LiveOptions::default() };
    running.live.publish(with(40_000));
    let (first, detail) = running.fill_with_keys(&anybody(), "t").await;
    assert!(detail.contains("mailbox.key_bytes_max"), "{detail}");
    assert!((200..400).contains(&first), "half of 40,000 bytes are {first} keys");
    running.send("t", "without a key").await;
    // Another topic finds as much as is left to each.
    assert!(running.fill_with_keys(&anybody(), "late").await.0 * 3 > first);
    running.live.publish(with(160_000));
    assert_eq!(running.outcome(&anybody(), "t", keyed("more".to_owned())).await, Ok(false));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_one_sender_leave_room_for_those_of_others() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.live.publish(LiveOptions { key_bytes_max: 40_000, ..LiveOptions::default() });
    let (greedy, honest) = (Subject::named("greedy"), Subject::named("honest"));
    // By many topics, each of which has what is left to all.
    let mut sent = 0;
    for topic in 0..20 {
        sent += running.fill_with_keys(&greedy, &format!("greedy.{topic}")).await.0;
    }
    let (_, detail) = running.fill_with_keys(&greedy, "greedy.0").await;
    assert!(detail.contains("greedy"), "{detail}");
    assert!(running.fill_with_keys(&honest, "honest").await.0 * 4 > sent, "{sent} keys of the other");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_senders_together_leave_room_for_the_keys_of_a_third() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.live.publish(LiveOptions { key_bytes_max: 40_000, ..LiveOptions::default() });
    let mut sent = 0;
    for sender in ["one", "two"] {
        for topic in 0..20 {
            let by = Subject::named(sender);
            sent += running.fill_with_keys(&by, &format!("{sender}.{topic}")).await.0;
        }
    }
    let (honest, _) = running.fill_with_keys(&Subject::named("honest"), "honest").await;
    assert!(honest * 8 > sent, "{honest} keys beside {sent} of two others");
    assert_eq!(running.stop().await, 0);
}
