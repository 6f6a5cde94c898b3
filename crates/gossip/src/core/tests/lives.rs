//! Lives of origins: clocks that differ, clocks that were set back, and peers that make lives up.

use super::*;

const HOUR_MS: u64 = 3600 * 1000;
const HOUR: Micros = HOUR_MS * MS;

fn message(of: u8, epoch: u64, seq: u64) -> Body {
    Body::Data(Data { key: Key { origin: origin(of), epoch, seq }, hops: 1, payload: Bytes::new() })
}

#[test]
fn time_passes_before_the_first_event_too() {
    let (mut core, mut world) = core_with(CoreConfig::default(), 0);
    let now = 25 * HOUR;
    core.peer_up(now, peer(1), &mut world);
    let taken = core.hear(now, peer(1), message(1, EPOCH + 25 * HOUR_MS, 1), &mut world);
    assert_eq!((taken, world.seqs()), (Ok(()), vec![1]), "a life that began just now");
    let published = core.publish(now, &LaneName::new("own").unwrap(), &Bytes::new(), &mut world).unwrap();
    assert_eq!(published.epoch, EPOCH + 25 * HOUR_MS);
}
