//! Bytes are counted as they lie and as they leave: attributes as well as payloads, before and after a restart.

use ron_types::Error;
use ron_types::limits::mailbox::{ANSWER_BYTES_MAX, RECV_BYTES_MAX};

use super::*;

/// A message of next to no payload and attributes of so many bytes.
fn heavy(attribute_bytes: usize) -> Outgoing {
    heavy_with('v', attribute_bytes)
}

fn heavy_with(character: char, attribute_bytes: usize) -> Outgoing {
    let value: String = std::iter::repeat_n(character, attribute_bytes).collect();
    Outgoing { payload: "5 byt".into(), attrs: vec![("a".to_owned(), value)], ..Outgoing::default() }
}

fn many(max_bytes: usize) -> Receive {
    Receive { max_messages: 100, max_bytes, ..once() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_no_more_than_was_asked_for_beyond_its_first_message_attributes_included() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    for _ in 0..17 {
        running.send_as("t", heavy(1 << 20)).await;
    }
    assert_eq!(running.recv_as("t", many(100)).await.len(), 1);
    let mut received = 1;
    // As SQS asks, which gives no bound.
    loop {
        let deliveries = running.recv_as("t", many(usize::MAX)).await;
        if deliveries.is_empty() {
            break;
        }
        let bytes: usize = deliveries.iter().map(Delivery::bytes).sum();
        assert!(bytes <= RECV_BYTES_MAX, "{bytes} bytes in {} messages", deliveries.len());
        received += deliveries.len();
    }
    assert_eq!(received, 17);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_of_earlier_deliveries_counts_in_an_answer() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let reason = "r".repeat(1000);
    for _ in 0..10 {
        running.send("t", "small").await;
    }
    for _ in 0..4 {
        let receipts: Vec<_> = running.recv("t", 10).await.iter().map(|delivery| delivery.receipt).collect();
        let nacked = running.mailbox.nack(receipts, &reason, Some(0), false, soon()).await;
        assert!(nacked.iter().all(Result::is_ok), "{nacked:?}");
    }
    let deliveries = running.recv_as("t", many(2500)).await;
    assert!((1..=3).contains(&deliveries.len()), "{} messages with 4 failures each", deliveries.len());
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_grows_when_it_is_written_is_left_for_the_next_answer_and_costs_no_delivery() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let each = 60_000;
    for _ in 0..40 {
        // Each byte is written as six.
        running.send_as("t", heavy_with('\u{1}', each)).await;
    }
    let first = running.recv_as("t", many(RECV_BYTES_MAX)).await;
    assert!(first.len() * each * 6 <= ANSWER_BYTES_MAX && first.len() > 1, "{} messages", first.len());
    let second = running.recv_as("t", many(RECV_BYTES_MAX)).await;
    assert_eq!(second.iter().map(|delivery| delivery.attempt).max(), Some(1), "what did not fit was not delivered");
    assert_eq!(first.len() + second.len(), 40.min(2 * first.len()));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_room_for_messages_is_told_before_they_are_read_and_they_come_again() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    for _ in 0..3 {
        running.send_as("t", heavy(1 << 20)).await;
    }
    let (by, topic, mut asked) = (anybody(), name("t"), 0);
    let find_room = |bytes| {
        asked = bytes;
        Err(Error::busy("the memory of this caller"))
    };
    let refused = running.mailbox.recv_within(&by, &topic, many(usize::MAX), soon(), find_room).await;
    assert_eq!(refused.map(drop).map_err(|error| error.kind), Err(Kind::Busy));
    assert!((3 << 20..(3 << 20) + 1024).contains(&asked), "{asked}");
    let deliveries = running.recv_as("t", many(usize::MAX)).await;
    assert_eq!(deliveries.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1; 3]);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_a_topic_count_attributes_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let settings = TopicSettings { bytes_max: 100_000, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("t"), settings, soon()).await.expect("made");
    let send = async |running: &RunningMailbox| {
        let sent = running.mailbox.send(&anybody(), &name("t"), heavy(40_000), soon()).await;
        sent.map(drop).map_err(|error| error.kind)
    };
    let bytes =
        async |running: &RunningMailbox| running.mailbox.stats(&name("t"), soon()).await.expect("there").total.bytes;
    assert_eq!((send(&running).await, send(&running).await), (Ok(()), Ok(())));
    assert_eq!(send(&running).await, Err(Kind::Busy));
    let before = bytes(&running).await;
    assert!((80_000..81_000).contains(&before), "{before}");
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    assert_eq!(bytes(&running).await, before);
    assert_eq!(send(&running).await, Err(Kind::Busy));
    let [delivery] = &running.recv("t", 1).await[..] else { panic!("one message") };
    running.ack(delivery).await;
    assert_eq!(bytes(&running).await, before / 2);
    assert_eq!(send(&running).await, Ok(()));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_message_of_a_capability_is_with_its_attributes() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    let limits = [(capabilities::PAYLOAD_BYTES_MAX.to_owned(), 1024)].into();
    let by = Subject { limits, ..Subject::named("small") };
    let refusal = async |message: Outgoing| {
        let sent = running.mailbox.send(&by, &name("t"), message, soon()).await;
        sent.err().map(|error| (error.kind, error.detail.contains("attributes included")))
    };
    assert_eq!(refusal(heavy(1024 - 6)).await, None, "5 bytes of payload and one of a name");
    assert_eq!(refusal(heavy(1024 - 5)).await, Some((Kind::FrameTooLarge, true)));
    // What the node notes itself is not held against the sender.
    let noted = vec![("$sender".to_owned(), "s".repeat(64))];
    let full = Outgoing { payload: vec![7; 1024].into(), attrs: noted, ..Outgoing::default() };
    assert_eq!(refusal(full).await, None);
    assert_eq!(running.stop().await, 0);
}
