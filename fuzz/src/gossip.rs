//! Messages of gossip: they survive being written and read again, and a core that receives them keeps to its bounds.

use bytes::Bytes;
use ron_gossip::wire::{Answer, Body, ChunkHead, Data, Entries, Entry, Key, Message, Want, peek_lane};
use ron_gossip::{
    CHUNK_BYTES, Core, CoreConfig, Delivered, DisconnectReason, LaneName, Origin, Peer, SendOutcome, Shell,
};

use crate::{Seed, Target};

/// Targets of the crate.
pub const TARGETS: [Target; 1] =
    [Target { name: "gossip_control", body: control, is_read: begins_with_message, seeds: control_seeds }];

/// Epochs of a few bytes are plausible to a core of this one, so that inputs get past the check of clocks.
const EPOCH: u64 = 1000;

/// A world whose outboxes are sometimes full.
struct World {
    sends: usize,
}

impl Shell for World {
    fn send(&mut self, _peer: &Peer, _lane: &LaneName, _flow: u64, message: Bytes) -> SendOutcome {
        assert!(Message::decode(message).is_ok(), "what a core sends decodes");
        self.sends += 1;
        if self.sends.is_multiple_of(7) { SendOutcome::Busy { retry_after_ms: 3 } } else { SendOutcome::Sent }
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

/// Any bytes as messages of three peers, with time passing.
pub fn control(bytes: &[u8]) {
    let config = CoreConfig { lanes_max: 4, origins_per_lane_max: 8, origins_max: 16, ..CoreConfig::default() };
    let max = config.memory_bytes_max();
    let mut core = Core::new(0, config, Origin([0; 32]), EPOCH, 1);
    let mut world = World { sends: 0 };
    let mut now = 0;
    for number in 1..=3 {
        core.peer_up(now, Peer([number; 32]), &mut world);
    }
    let mut rest = bytes;
    while let Some((who, message, after)) = split(rest) {
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
}

/// The first message, before it the byte of its peer and time, behind it what follows. Its length stands in two bytes.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [who, high, low, tail @ ..] = bytes else { return None };
    let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
    let (message, after) = tail.split_at(length);
    Some((*who, message, after))
}

fn begins_with_message(bytes: &[u8]) -> bool {
    split(bytes).is_some_and(|(_, message, _)| Message::decode(Bytes::copy_from_slice(message)).is_ok())
}

fn joined(messages: &[(u8, Bytes)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (who, message) in messages {
        out.push(*who);
        out.extend_from_slice(&(message.len() as u16).to_be_bytes());
        out.extend_from_slice(message);
    }
    out
}

fn control_seeds() -> Vec<Seed> {
    let lane = LaneName::new("news").expect("the name of a lane");
    let written = |body| Message { lane, body }.encode();
    let origin = Origin([9; 32]);
    let data = |seq, payload: &'static [u8]| {
        let key = Key { origin, epoch: EPOCH, seq };
        written(Body::Data(Data { key, hops: 1, seal: None, payload: Bytes::from_static(payload) }))
    };
    let entries = |first, last| Entries::pack([Entry { origin, epoch: EPOCH, first, last }]);
    let want = Want { origin, epoch: EPOCH, from: 1, to: 3, chunk: 0 };
    let answer = Answer { origin, epoch: EPOCH, from: 1, through: 3, missing_to: 0 };
    let key = Key { origin, epoch: EPOCH, seq: 4 };
    let size = CHUNK_BYTES as u32 + 1;
    let head = ChunkHead { key, hops: 2, seal: None, size, hashes: Bytes::from_static(&[3; 64]) };
    let pushed = [(1, written(Body::Join)), (1, data(1, b"one")), (2, data(2, b"two")), (17, data(4, b"four"))];
    let repaired = [
        (2, written(Body::Digest { no_push: false, entries: entries(1, 3) })),
        (0, written(Body::Graft(want))),
        (1, written(Body::Pull(want))),
        (1, data(1, b"one")),
        (2, written(Body::Answer(answer))),
        (33, written(Body::Summary { reply: true, entries: entries(1, 4) })),
    ];
    let links = [
        (0, written(Body::Prune { is_full: false })),
        (1, written(Body::Prune { is_full: true })),
        (2, written(Body::Credit { consumed: 1 << 20 })),
        (0, written(Body::Leave)),
        (1, written(Body::ChunkHead(head))),
    ];
    vec![
        ("pushed.seed", joined(&pushed)),
        ("repaired.seed", joined(&repaired)),
        ("links.seed", joined(&links)),
        ("sealed.seed", joined(&[(1, sealed(&data(1, b"one"))), (2, sealed(&data(2, b"two")))])),
    ]
}

/// The message as one with a seal whose signature is none: how seals are made only an origin knows.
fn sealed(data: &Bytes) -> Bytes {
    const KIND: u8 = 13;
    /// Height of the tree, place among its leaves, signature.
    const SEAL: [u8; 66] = [0; 66];
    /// Origin, epoch, number and hops stand between the lane and the seal.
    const BEFORE_SEAL: usize = 49;
    let seal_at = 2 + usize::from(data[1]) + BEFORE_SEAL;
    [&[KIND], &data[1..seal_at], &SEAL, &data[seal_at..]].concat().into()
}
