//! Topics that go, and topics that are emptied: what their callers are promised, and what others notice.

use std::pin::pin;
use std::task::{Context, Waker};

use super::*;

/// Asks for something and leaves at the first wait, as a caller does that disconnects.
fn ask_and_leave(asked: impl Future) {
    let _ = pin!(asked).poll(&mut Context::from_waker(Waker::noop()));
}

impl RunningMailbox {
    /// Messages that all shards hold together.
    fn messages(&self) -> u64 {
        let shards = self.mailbox.node_stats().shards.into_iter().map(|shard| shard.numbers);
        shards.map(|numbers| numbers.ready + numbers.delayed + numbers.leased).sum()
    }

    fn bytes_live(&self) -> u64 {
        self.mailbox.node_stats().log.expect("open").bytes_live
    }

    async fn fill(&self, topic: &str, batches: usize) {
        for _ in 0..batches {
            let messages = vec![Outgoing { payload: vec![7; 100].into(), ..Outgoing::default() }; 1_000];
            let sent = self.mailbox.send_batch(&anybody(), &name(topic), messages, soon()).await;
            assert!(sent.iter().all(Result::is_ok), "{:?}", sent.iter().find(|sent| sent.is_err()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_deleted_is_empty_though_its_caller_has_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let wide = TopicSettings { partitions: 32, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("wide"), wide, soon()).await.expect("made");
    running.fill("wide", 2).await;
    ask_and_leave(running.mailbox.delete_topic(&name("wide"), soon()));
    eventually(|| running.messages(), |messages| *messages == 0).await;
    eventually(|| running.bytes_live(), |bytes| *bytes == 0).await;
    assert!(!running.mailbox.has_topic(&name("wide")));
    assert_eq!(running.stop().await, 0);
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let topics: Vec<_> = running.mailbox.topics(None, "", 10).into_iter().map(|topic| topic.name).collect();
    assert_eq!((topics, running.messages()), (Vec::new(), 0));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_topic_reaches_all_its_shards_though_its_caller_has_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let wide = TopicSettings { partitions: 32, paused: true, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("wide"), wide, soon()).await.expect("made");
    running.fill("wide", 1).await;
    let waiting = running.recv_as("wide", Receive { wait_ms: 20_000, ..once() });
    let resumed = async {
        eventually(
            || running.mailbox.node_stats().shards.iter().map(|shard| shard.numbers.waiters).sum(),
            |n: &u64| *n > 0,
        )
        .await;
        let resume = |settings: &mut TopicSettings| {
            settings.paused = false;
            Ok(())
        };
        ask_and_leave(running.mailbox.edit_topic(&name("wide"), resume, soon()));
    };
    let (received, _) = tokio::join!(waiting, resumed);
    assert!(!received.is_empty(), "whoever waited got something");
    assert_eq!(running.stop().await, 0);
}

/// Nobody waits for as long as it takes to let go of very many messages: that goes in steps behind the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_of_very_many_messages_is_done_in_steps_and_to_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    running.fill("many", 60).await;
    assert_eq!(running.mailbox.purge(&name("many"), soon()).await.expect("purged"), 60_000);
    assert_eq!(running.messages(), 0, "they are gone once it is answered");
    running.send("many", "after").await;
    assert_eq!(running.recv("many", 10).await.len(), 1);
    eventually(|| running.bytes_live(), |bytes| *bytes < 1_000).await;
    running.until_small().await;
    assert_eq!(running.messages(), 1);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_wide_topic_are_those_of_all_its_partitions() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let wide = TopicSettings { partitions: 64, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("wide"), wide, soon()).await.expect("made");
    running.fill("wide", 1).await;
    let stats = running.mailbox.stats(&name("wide"), soon()).await.expect("counted");
    let places: Vec<u16> = stats.partitions.iter().map(|(partition, ..)| *partition).collect();
    assert_eq!((stats.total.ready, places), (1_000, (0..64).collect()));
    assert_eq!(running.mailbox.purge(&name("wide"), soon()).await.expect("purged"), 1_000);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_goes_from_under_those_that_send_their_dead_there_or_stays_with_all_of_them() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    for source in ["a", "b"] {
        let settings = TopicSettings { dlq: Some("grave".to_owned()), max_attempts: 1, ..TopicSettings::default() };
        running.mailbox.create_topic(&name(source), settings, soon()).await.expect("made");
        running.send(source, "spent").await;
    }
    let detach = |settings: &mut TopicSettings| {
        settings.dlq = None;
        settings.labels.insert("detached".to_owned(), "yes".to_owned());
    };
    let refused = running.mailbox.delete_topic_detaching(&name("grave.dlq"), detach, soon()).await;
    assert_eq!(refused.expect_err("they go with their topic").kind, Kind::Schema);
    assert_eq!(running.mailbox.sources_of(&name("grave")), [name("a"), name("b")], "nobody was detached");
    // This one has no room for a word more.
    let full = |settings: &mut TopicSettings| {
        settings.labels.insert("long".to_owned(), "x".repeat(24 * 1024 - 4));
        Ok(())
    };
    running.mailbox.edit_topic(&name("b"), full, soon()).await.expect("it fits");
    running.mailbox.delete_topic_detaching(&name("grave"), detach, soon()).await.expect("deleted");
    let views = ["a", "b"].map(|topic| running.mailbox.topic(&name(topic)).expect("it stays"));
    assert_eq!(views.each_ref().map(|view| view.settings.dlq.as_deref()), [None, Some("grave")]);
    assert_eq!(views[1].dead_letters, None, "what it names is gone");
    // Nothing dies towards a topic that is not there: it would be lost.
    for _ in 0..3 {
        let given = running.recv_as("b", Receive { visibility_ms: Some(0), ..once() }).await;
        assert_eq!(given.len(), 1, "it is still there");
    }
    assert_eq!(running.stop().await, 0);
}
