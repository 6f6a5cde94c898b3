//! Lag is not expressible to a bus user: a slow receiver gets the picture, then goes on from there.

use ron_kernel::bus::{BusItem, KernelEvent};
use ron_kernel::{Builder, KernelOptions, Metrics};

#[tokio::test]
async fn a_receiver_that_lagged_is_handed_the_snapshot_and_then_only_newer_events() {
    let metrics = Metrics::new();
    let options = KernelOptions { bus_capacity: 4, ..KernelOptions::default() };
    let handle = Builder::new(options, metrics.clone()).handle();
    let mut receiver = handle.bus().subscribe("slow", &metrics);
    for version in 1..=10 {
        handle.bus().publish(KernelEvent::ConfigUpdated { version });
    }
    let first = receiver.recv().await.expect("the bus lives");
    assert!(matches!(first, BusItem::Resync(_)), "{first:?}");
    assert_eq!(metrics.bus_lagged.at("slow").get(), 6);
    handle.bus().publish(KernelEvent::ConfigUpdated { version: 11 });
    let next = receiver.recv().await.expect("the bus lives");
    assert!(matches!(next, BusItem::Event(KernelEvent::ConfigUpdated { version: 11 })), "{next:?}");
}
