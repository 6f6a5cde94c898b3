//! One caller at a time, then many, then one again: whoever syncs the records, every answer comes and survives.

use std::sync::Arc;

use super::{LogLocation, Outgoing, RunningMailbox, anybody, name, on_disk, soon};

const ALONE: usize = 40;
const CROWD: usize = 8;
const EACH: usize = 25;

/// Sends, receives and acknowledges one after the other: each is a record that is alone.
async fn alone(running: &RunningMailbox, topic: &str) {
    for number in 0..ALONE {
        let sent = running.send(topic, &number.to_string()).await;
        let received = running.recv(topic, 1).await;
        assert_eq!(received.iter().map(|delivery| delivery.msg_id).collect::<Vec<_>>(), [sent.msg_id]);
        running.ack(&received[0]).await;
    }
}

/// Callers that give up at once now and then: what they began is done by others.
async fn crowd(running: &Arc<RunningMailbox>) -> usize {
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CROWD {
        let running = Arc::clone(running);
        callers.spawn(async move {
            for number in 0..EACH {
                let message = Outgoing { payload: format!("{caller} {number}").into(), ..Outgoing::default() };
                let (by, topic) = (anybody(), name("crowd"));
                let mut sending = Box::pin(running.mailbox.send(&by, &topic, message, soon()));
                if number % 5 == 0 {
                    let _ = futures_util::poll!(&mut sending);
                } else {
                    sending.await.expect("sent");
                }
            }
        });
    }
    callers.join_all().await.len()
}

async fn check(location: impl Fn() -> LogLocation) {
    let running = Arc::new(RunningMailbox::start(location()).await);
    alone(&running, "before").await;
    assert_eq!(crowd(&running).await, CROWD);
    alone(&running, "after").await;
    let last = running.send("last", "still here").await;
    let running = Arc::into_inner(running).expect("nobody else is left");
    assert_eq!(running.stop().await, 0);
    let running = RunningMailbox::start(location()).await;
    assert_eq!(running.recv("last", 1).await[0].msg_id, last.msg_id);
    assert_eq!(running.recv("before", 1).await.len() + running.recv("after", 1).await.len(), 0, "all acknowledged");
    let (mut held, mut taken) = (0, running.recv("crowd", 64).await);
    while !taken.is_empty() {
        held += taken.len();
        taken = running.recv("crowd", 64).await;
    }
    assert!((CROWD * (EACH - EACH / 5)..=CROWD * EACH).contains(&held), "{held}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_caller_and_a_crowd_on_many_threads() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    check(|| on_disk(folder.path())).await;
}

#[tokio::test]
async fn a_lone_caller_and_a_crowd_on_one_thread() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    check(|| on_disk(folder.path())).await;
}
