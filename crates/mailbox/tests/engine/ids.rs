//! A message is found by its id alone, wherever it is by then.

use svc_mailbox::types::MessageId;

use super::*;

impl RunningMailbox {
    /// The topic that holds a message.
    async fn home(&self, id: MessageId) -> Result<String, Kind> {
        let found = self.mailbox.locate(id, soon()).await;
        found.map(|topic| topic.as_str().to_owned()).map_err(|error| error.kind)
    }

    /// Everything that can be received of a topic of several partitions.
    async fn recv_all(&self, topic: &str) -> Vec<Delivery> {
        let mut all = Vec::new();
        loop {
            let some = self.recv(topic, 100).await;
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_found_where_it_was_sent_or_where_it_went_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let settings = TopicSettings { partitions: 8, dlq: Some("grave".to_owned()), ..TopicSettings::default() };
    running.mailbox.create_topic(&name("wide"), settings, soon()).await.expect("made");
    let mut ids = Vec::new();
    for number in 0..64 {
        let topic = ["wide", "other"][number % 2];
        ids.push((running.send(topic, &number.to_string()).await.msg_id, topic));
    }
    let (dead, gone) = (running.send("wide", "dies").await.msg_id, running.send("wide", "ends").await.msg_id);
    let leased = running.recv_all("wide").await;
    let receipt = |id| leased.iter().find(|delivery| delivery.msg_id == id).expect("it was leased").receipt;
    let nacked = running.mailbox.nack(vec![receipt(dead)], "no", None, true, soon()).await;
    assert!(nacked[0].is_ok(), "{nacked:?}");
    // Whoever knows only its id can acknowledge it, too.
    let (topic, current) = running.mailbox.current_receipt(gone, soon()).await.expect("it is leased");
    assert_eq!((topic, current.seq, current.fence), (name("wide"), receipt(gone).seq, receipt(gone).fence));
    assert!(running.mailbox.ack(vec![current], soon()).await[0].is_ok());

    let check = async |running: &RunningMailbox, when: &str| {
        for (id, topic) in &ids {
            assert_eq!(running.home(*id).await.as_deref(), Ok(*topic), "{when}");
        }
        assert_eq!(running.home(dead).await.as_deref(), Ok("grave"), "{when}");
        assert_eq!(running.home(gone).await, Err(Kind::NotFound), "{when}");
    };
    check(&running, "before the restart").await;
    assert_eq!(running.stop().await, 0);
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    check(&running, "after the restart").await;
    // The dead letter outlives the topic it was sent to.
    running.mailbox.delete_topic(&name("wide"), soon()).await.expect("nobody names it");
    assert_eq!(running.home(dead).await.as_deref(), Ok("grave"));
    assert_eq!(running.home(ids[0].0).await, Err(Kind::NotFound));
    assert_eq!(running.stop().await, 0);
}
