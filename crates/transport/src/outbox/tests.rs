//! Tests of what is measured at the queue.

use super::*;

#[test]
fn a_lost_pong_does_not_keep_the_time_to_the_other_side_from_being_measured() {
    let bounds = Bounds { bytes_max: 1000, frames_max: 10, control_bytes_max: 1000 };
    let (outbox, began) = (Outbox::new(bounds, oap::FRAME_BYTES_MAX), ron_kernel::clock::now());
    let after = |millis| began + Duration::from_millis(millis);
    outbox.ping(1, after(0));
    outbox.ping(2, after(1_000));
    outbox.pong(2, after(1_007));
    assert_eq!(outbox.rtt(), Some(Duration::from_millis(7)), "the first was never answered");
    outbox.pong(1, after(1_500));
    outbox.pong(9, after(1_600));
    assert_eq!(outbox.rtt(), Some(Duration::from_millis(7)), "too late, and never asked");
    outbox.ping(3, after(2_000));
    outbox.ping(4, after(3_000));
    outbox.pong(3, after(3_500));
    assert_eq!(outbox.rtt(), Some(Duration::from_millis(1_500)), "a slow way is measured as well");
    (10..100).for_each(|nonce| outbox.ping(nonce, after(4_000)));
    assert_eq!(outbox.lock().pings.len(), PINGS_MAX);
}
