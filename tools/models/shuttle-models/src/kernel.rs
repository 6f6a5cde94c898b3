//! The kernel's channel protocols: queues, bus, snapshots.

use std::sync::Arc;

use crate::{SCHEDULES, check};
use ron_cells::DrainGuard;
use ron_kernel::bus::{BusItem, KernelEvent};
use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::spec::{Fate, Overflow, QueueKind, QueueSpec};
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::sync::atomic::{AtomicUsize, Ordering};

static WORK: QueueSpec = QueueSpec {
    owner: "model",
    service: "model",
    name: "work",
    kind: QueueKind::Mpmc,
    capacity: 2,
    bytes_max: Some(16),
    from: "N",
    to: "M",
    overflow: Overflow::RejectNew,
    holds_up_writers: false,
    answer: "Busy",
    on_restart: Fate::Kept,
    on_drain: Fate::Drained,
};

struct Job(Arc<AtomicUsize>);

impl Payload for Job {
    fn bytes(&self) -> usize {
        4
    }
}

/// Worker: takes jobs until the queue is closed and empty.
async fn work_off(mut receiver: QueueReceiver<Job>) {
    while let Some(job) = receiver.recv().await {
        yield_now().await;
        job.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Intake: admitted jobs are counted; a closed guard or a full queue refuses them.
async fn take_in(entrance: DrainGuard, sender: QueueSender<Job>, answered: Arc<AtomicUsize>) -> usize {
    let mut admitted = 0;
    for _ in 0..3 {
        let Some(_pass) = entrance.enter() else { return admitted };
        yield_now().await;
        admitted += usize::from(sender.offer(Job(Arc::clone(&answered))).is_ok());
    }
    admitted
}

/// Drain racing enqueue: every admitted job is answered exactly once, and everybody comes to an end.
#[test]
fn a_drain_answers_every_admitted_job_exactly_once() {
    check(SCHEDULES, || {
        block_on(async {
            let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
            let (sender, receiver) = builder.queue::<Job>(&WORK);
            let entrance = DrainGuard::default();
            let answered = Arc::new(AtomicUsize::new(0));
            let workers: Vec<_> = (0..2).map(|_| spawn(work_off(receiver.clone()))).collect();
            let intakes: Vec<_> =
                (0..2).map(|_| spawn(take_in(entrance.clone(), sender.clone(), Arc::clone(&answered)))).collect();
            yield_now().await;
            entrance.close();
            while !entrance.is_drained() {
                yield_now().await;
            }
            sender.close();
            for worker in workers {
                worker.await.expect("no worker is stuck");
            }
            let mut admitted = 0;
            for intake in intakes {
                admitted += intake.await.expect("no intake is stuck");
            }
            assert_eq!(answered.load(Ordering::SeqCst), admitted);
        });
    });
}

/// Reconcile racing publish: a receiver, however slow, ends with the newest state and never goes back behind it.
#[test]
fn a_bus_receiver_ends_with_the_newest_state() {
    check(SCHEDULES, || {
        block_on(async {
            let metrics = Metrics::new();
            let options = KernelOptions { bus_capacity: 2, ..KernelOptions::default() };
            let handle = Builder::new(options, Arc::clone(&metrics)).handle();
            // The snapshot a receiver falls back to is written before the event that announces it, as the kernel does.
            let truth = Snapshot::new(0_u64);
            let mut receiver = handle.bus().subscribe("model", &metrics);
            let publisher = {
                let (handle, truth) = (handle.clone(), truth.clone());
                spawn(async move {
                    for version in 1..=6 {
                        truth.publish(version);
                        yield_now().await;
                        handle.bus().publish(KernelEvent::ConfigUpdated { version });
                        yield_now().await;
                    }
                    handle.bus().publish(KernelEvent::Shutdown);
                })
            };
            let mut seen = 0;
            loop {
                match receiver.recv().await.expect("the bus lives") {
                    BusItem::Event(KernelEvent::ConfigUpdated { version }) => {
                        assert!(version >= seen, "went back from {seen} to {version}");
                        seen = seen.max(version);
                    }
                    BusItem::Event(KernelEvent::Shutdown) => break,
                    BusItem::Event(_) => {}
                    BusItem::Resync(_) => {
                        let now = truth.get().value;
                        assert!(now >= seen);
                        seen = now;
                        if now == 6 {
                            break;
                        }
                    }
                }
                yield_now().await;
            }
            publisher.await.expect("the publisher ends");
            assert_eq!(seen, 6);
        });
    });
}

/// Snapshot swap racing read: version and value always belong together, and versions only grow.
#[test]
fn a_reader_never_sees_a_torn_or_older_snapshot() {
    check(SCHEDULES, || {
        block_on(async {
            let snapshot = Snapshot::new(10_u64);
            let writer = {
                let snapshot = snapshot.clone();
                spawn(async move {
                    for value in 2..=4 {
                        assert_eq!(snapshot.publish(value * 10), value);
                        yield_now().await;
                    }
                })
            };
            let mut watcher = snapshot.watch();
            let mut last = 0;
            while last < 4 {
                let current = snapshot.get();
                assert_eq!(current.value, current.version * 10);
                assert!(current.version >= last);
                last = current.version;
                if last < 4 {
                    watcher.changed().await.expect("the snapshot lives");
                }
            }
            writer.await.expect("the writer ends");
        });
    });
}
