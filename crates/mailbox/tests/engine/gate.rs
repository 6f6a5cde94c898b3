//! The gate `mailbox_ops`: it bounds callers that use a core, not callers that wait.

use std::sync::mpsc;

use futures_util::future::join_all;

use super::*;

impl RunningMailbox {
    async fn with_permits(ops_permits: usize) -> RunningMailbox {
        RunningMailbox::with(MailboxOptions { ops_permits, segment_bytes: 2 << 20, ..MailboxOptions::default() }).await
    }

    /// Permits in use and refusals, as the topology shows them, and refusals as the metrics count them.
    fn gate(&self) -> (usize, u64, u64) {
        let topology = self.kernel.topology();
        let gate = topology.gates.iter().find(|gate| gate.name == "mailbox_ops").expect("declared");
        (gate.in_flight, gate.busy, self.kernel.metrics().facet_busy.at("mailbox").get())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_caller_is_refused_while_the_only_permit_is_in_use() {
    let running = RunningMailbox::with_permits(1).await;
    running.send("jobs", "before").await;
    let (mailbox, runtime) = (running.mailbox.clone(), tokio::runtime::Handle::current());
    // The change of the settings runs inside the operation, so here a caller is inside for as long as the test wants.
    let inside = move |_: &mut TopicSettings| {
        let (answers, answered) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let message = Outgoing { payload: "meanwhile".into(), ..Outgoing::default() };
            let _ = answers.send(runtime.block_on(mailbox.send(&anybody(), &name("jobs"), message, soon())));
        });
        let refused = answered.recv_timeout(Duration::from_secs(10)).expect("refused without waiting");
        assert_eq!(refused.expect_err("the permit is in use").kind, Kind::Busy);
        Ok(())
    };
    running.mailbox.edit_topic(&name("jobs"), inside, soon()).await.expect("edited");
    assert_eq!(running.gate(), (0, 1, 1));
    running.send("jobs", "after").await;
    assert_eq!(running.recv("jobs", 10).await.len(), 2, "what was refused was not taken in");
    assert_eq!(running.stop().await, 0);
}

#[tokio::test]
async fn nothing_is_refused_while_callers_only_wait() {
    const CALLERS: usize = 512;
    const PAYLOADS: [&str; 3] = ["one", "two", "three"];
    let folder = tempfile::tempdir().expect("a folder");
    let options = MailboxOptions { location: on_disk(folder.path()), ops_permits: 1, ..MailboxOptions::default() };
    let running = RunningMailbox::with(options).await;
    let defaults = TopicSettings::default();
    running.mailbox.create_topic(&name("jobs"), defaults, soon()).await.expect("made");
    // All on one thread: each uses the core in its turn, and then waits for a message or for the disk.
    let receive = || running.recv_as("jobs", Receive { wait_ms: 20_000, ..once() });
    let send = |n: usize| running.send("jobs", PAYLOADS[n % PAYLOADS.len()]);
    let (received, _) = tokio::join!(join_all((0..CALLERS).map(|_| receive())), join_all((0..CALLERS).map(send)));
    let received: Vec<Delivery> = received.into_iter().flatten().collect();
    assert_eq!(received.len(), CALLERS);
    for batch in received.chunks(100) {
        let receipts = batch.iter().map(|delivery| delivery.receipt).collect();
        assert!(running.mailbox.ack(receipts, soon()).await.iter().all(Result::is_ok));
    }
    assert_eq!(running.gate(), (0, 0, 0));
    assert_eq!(running.stop().await, 0);
}
