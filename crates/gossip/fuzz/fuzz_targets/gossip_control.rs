//! Any bytes give messages or errors; messages survive being written and read again; and a core that is told all of
//! them by three peers, with time passing, keeps to its bounds.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ron_gossip::wire::{Message, peek_lane};
use ron_gossip::{
    Core, CoreConfig, Delivered, DisconnectReason, LaneName, Origin, Peer, SendOutcome, Shell,
};

/// A world whose outboxes are sometimes full.
struct World {
    sends: usize,
}

impl Shell for World {
    fn send(&mut self, _peer: &Peer, _lane: &LaneName, _flow: u64, message: Bytes) -> SendOutcome {
        assert!(Message::decode(message).is_ok(), "what a core sends decodes");
        self.sends += 1;
        if self.sends % 7 == 0 { SendOutcome::Busy { retry_after_ms: 3 } } else { SendOutcome::Sent }
    }
    fn shed_oldest(&mut self, _peer: &Peer, _flow: u64, bytes: usize) -> usize {
        bytes
    }
    fn disconnect(&mut self, _peer: &Peer, _why: DisconnectReason) {}
    fn deliver(&mut self, _lane: &LaneName, _message: Delivered<'_>) {}
    fn gap(&mut self, _lane: &LaneName, _origin: &Origin, _epoch: u64, from: u64, to: u64) {
        assert!(from <= to);
    }
    fn new_epoch(&mut self, _lane: &LaneName, _origin: &Origin, _epoch: u64) {}
}

fuzz_target!(|bytes: &[u8]| {
    let config = CoreConfig { lanes_max: 4, origins_per_lane_max: 8, origins_max: 16, ..CoreConfig::default() };
    let max = config.memory_bytes_max();
    // Epochs of a few bytes are plausible, so that the fuzzer gets past the check of clocks.
    let mut core = Core::new(0, config, Origin([0; 32]), 1000, 1);
    let mut world = World { sends: 0 };
    let mut now = 0;
    for number in 1..=3 {
        core.peer_up(now, Peer([number; 32]), &mut world);
    }
    // Each message: peer and time in one byte, length in two.
    let mut rest = bytes;
    while let [who, high, low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (message, after) = tail.split_at(length);
        rest = after;
        now += 1000 << (who >> 4);
        let peer = Peer([1 + who % 3; 32]);
        match Message::decode(Bytes::copy_from_slice(message)) {
            Ok(decoded) => {
                assert_eq!(decoded.encode(), message);
                assert_eq!(peek_lane(message), Ok(decoded.lane.as_bytes()));
                let _refused = core.receive(now, &peer, decoded, &mut world);
            }
            Err(_) => {
                core.peer_down(now, &peer, &mut world);
                core.peer_up(now, peer, &mut world);
            }
        }
        core.tick(now, &mut world);
        assert!(core.memory_bytes() <= max);
    }
});
