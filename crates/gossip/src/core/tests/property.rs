//! Whatever peers send in whatever order: once, in order, and nothing sent that the other side refuses.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::wire::{Answer, Want};

/// How far each origin of each lane had got at the last look: its epoch and its next number.
type Progress = HashMap<(LaneName, Origin), (u64, u64)>;

impl Core {
    /// What holds between any two events.
    pub(super) fn check(&self) -> Progress {
        let (mut waiting_bytes, mut partial_bytes, mut origins) = (0, 0, 0);
        let mut progress = Progress::new();
        for lane in self.lanes.iter().flatten() {
            for (at, origin) in lane.origins_for_test() {
                let waiting: Vec<u64> = origin.waiting.keys().copied().collect();
                assert!(waiting.iter().all(|seq| *seq > origin.next), "{waiting:?} wait for {}", origin.next);
                let partials = lane.partials_for_test().iter().filter(|partial| partial.origin == at);
                for partial in partials {
                    assert_eq!(partial.epoch, origin.epoch);
                    assert!(partial.seq >= origin.next, "{} is not whole, and {} is next", partial.seq, origin.next);
                }
                waiting_bytes += origin.waiting.values().map(crate::origin::Waiting::bytes).sum::<usize>();
                origins += 1;
                progress.insert((lane.name, origin.id), (origin.epoch, origin.next));
            }
            partial_bytes += lane.partials_for_test().iter().map(|partial| partial.reserved_bytes()).sum::<usize>();
        }
        let totals = self.shared.totals;
        assert_eq!(
            (totals.waiting_bytes, totals.partial_bytes, totals.origins),
            (waiting_bytes, partial_bytes, origins)
        );
        progress
    }
}

/// One event: who, after how many milliseconds, and what.
#[derive(Clone, Debug)]
enum Event {
    Says(u8, u64, Body),
    Reconnects(u8, u64),
}

/// Contents of one number differ by `version`: peers may lie about what a message says.
fn body() -> impl Strategy<Value = Body> {
    let key = (1..3u8, 0..3u64, 1..12u64);
    let key = key.prop_map(|(of, life, seq)| Key { origin: origin(of), epoch: EPOCH - 1 + life, seq });
    let large = |version: bool| vec![u8::from(version); CHUNK_BYTES + 1];
    (key, 0..10u8, 0..4u64, any::<bool>()).prop_map(move |(key, kind, more, version)| {
        let entry = Entry { origin: key.origin, epoch: key.epoch, first: key.seq, last: key.seq + more };
        let want = Want { origin: key.origin, epoch: key.epoch, from: key.seq, to: key.seq + more, chunk: 0 };
        let (head, chunks) = parts(key, &large(version));
        match kind {
            0..3 => Body::Data(Data { key, hops: 1, seal: None, payload: Bytes::from(format!("{version}")) }),
            3 => Body::ChunkHead(head),
            4..7 => Body::Chunk(chunks[(more % 2) as usize].clone()),
            7 => Body::Summary { reply: version, entries: Entries::pack([entry]) },
            8 => Body::Pull(want),
            _ => {
                let (through, missing_to) = (key.seq + more, if version { key.seq + more } else { key.seq - 1 });
                Body::Answer(Answer { origin: key.origin, epoch: key.epoch, from: key.seq, through, missing_to })
            }
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (1..4u8, 0..300u64, body()).prop_map(|(who, after, body)| Event::Says(who, after, body)),
        1 => (1..4u8, 0..300u64).prop_map(|(who, after)| Event::Reconnects(who, after)),
    ]
}

proptest! {
    #[test]
    fn once_and_in_order_whatever_peers_send(events in proptest::collection::vec(event(), 1..200)) {
        let config = CoreConfig { waiting_per_origin_max: 4, strikes_disconnect: u32::MAX, ..CoreConfig::default() };
        let (mut core, mut world) = core_with(config, 3);
        let (mut now, mut before) = (0, Progress::new());
        for event in events {
            match event {
                Event::Says(who, after, body) => {
                    now += after * MS;
                    core.wait_until(now, &mut world);
                    let _refused = core.hear(now, peer(who), body, &mut world);
                }
                Event::Reconnects(who, after) => {
                    now += after * MS;
                    core.wait_until(now, &mut world);
                    core.peer_down(now, &peer(who), &mut world);
                    core.peer_up(now, peer(who), &mut world);
                }
            }
            let after = core.check();
            for (place, reached) in &before {
                prop_assert!(after[place] >= *reached, "{place:?} went back from {reached:?} to {:?}", after[place]);
            }
            before = after;
        }
        for of in [1, 2] {
            let order = world.delivered.iter().filter(|(who, ..)| *who == origin(of));
            let order: Vec<(u64, u64)> = order.map(|(_, epoch, seq, ..)| (*epoch, *seq)).collect();
            prop_assert!(order.is_sorted_by(|before, after| before < after), "{order:?}");
        }
    }
}
