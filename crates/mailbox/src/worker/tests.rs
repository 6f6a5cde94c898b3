//! What the worker of a shard does whoever else keeps it busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use crate::MailboxOptions;
use crate::job::{Job, Turn, Work};
use crate::running::{RunningMailbox, anybody, name, receive, soon};
use crate::types::TopicSettings;

/// Work that asks for itself again, so that its shard's queue is never empty.
struct Endless(Arc<AtomicBool>);

impl Work for Endless {
    fn run(&mut self, turn: &mut Turn<'_>) {
        if !self.0.load(Ordering::Relaxed) {
            let again = Job::Do(Box::new(Endless(Arc::clone(&self.0))));
            turn.engine.shards[turn.index].jobs.offer(again).expect("there is room");
        }
    }

    fn reply(self: Box<Self>) {}

    fn bytes(&self) -> usize {
        0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_is_done_although_the_queue_of_its_shard_is_never_empty() {
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    running.create("t", TopicSettings::default()).await;
    let index = running.engine().routing.get().value.shard_of(running.part("t", 0));
    let stop = Arc::new(AtomicBool::new(false));
    running.engine().shards[index].jobs.offer(Job::Do(Box::new(Endless(Arc::clone(&stop))))).expect("there is room");
    running.send("t", 300).await;
    let received = running.recv("t", 15_000).await;
    stop.store(true, Ordering::Relaxed);
    assert_eq!(received.len(), 1, "it was delivered when it became due");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_of_a_wide_topic_asks_all_shards_before_it_waits() {
    const RECEIVES: usize = 10;
    let running = RunningMailbox::start(MailboxOptions::default()).await;
    running.create("wide", TopicSettings { partitions: 64, ..TopicSettings::default() }).await;
    let (by, topic) = (anybody(), name("wide"));
    let mut receiving: Vec<_> =
        (0..RECEIVES).map(|_| Box::pin(running.mailbox.recv(&by, &topic, receive(0), soon()))).collect();
    {
        // Whoever finds a shard locked queues its job there; the worker may have taken one of them.
        let _held: Vec<_> = running.engine().shards.iter().map(|shard| shard.shared.slot.lock().unwrap()).collect();
        assert!(receiving.iter_mut().all(|receiving| receiving.now_or_never().is_none()), "they wait");
        let queues = running.kernel.topology().queues;
        for index in 0..running.engine().routing.get().value.shards {
            let name = format!("work_tx[{index}]");
            let asked = queues.iter().find(|queue| queue.spec.name == name).expect("declared").high_water;
            assert!((RECEIVES - 1..=RECEIVES).contains(&asked), "one job for each receive, whatever the partitions");
        }
    }
    for received in futures_util::future::join_all(receiving).await {
        assert!(received.expect("answered").is_empty());
    }
    running.stop().await;
}
