//! What the core itself costs for a message of 64 bytes: published with and without peers, received and relayed.
//! `cargo run --release -p ron-gossip --example gossip_speed`.

use std::time::Instant;

use bytes::Bytes;
use ron_gossip::wire::{Body, Data, Key, Message};
use ron_gossip::{
    Core, CoreConfig, Delivered, DisconnectReason, LaneName, Origin, Peer, SendOutcome, Shell, budget::Rate,
};

const MESSAGES: u64 = 1_000_000;

/// A world that counts.
#[derive(Default)]
struct World {
    sent: u64,
    delivered: u64,
}

impl Shell for World {
    fn send(&mut self, _peer: &Peer, _lane: &LaneName, _flow: u64, _message: Bytes) -> SendOutcome {
        self.sent += 1;
        SendOutcome::Sent
    }
    fn shed_oldest(&mut self, _peer: &Peer, _flow: u64, _bytes: usize) -> usize {
        0
    }
    fn disconnect(&mut self, _peer: &Peer, _why: DisconnectReason) {}
    fn deliver(&mut self, _lane: &LaneName, message: Delivered<'_>) {
        self.delivered += message.payload_bytes() as u64 / 64;
    }
    fn gap(&mut self, _lane: &LaneName, _origin: &Origin, _epoch: u64, _from: u64, _to: u64) {}
    fn new_epoch(&mut self, _lane: &LaneName, _origin: &Origin, _epoch: u64) {}
}

fn core_with(peers: u8) -> (Core, World) {
    let config = CoreConfig {
        credit_bytes: u64::MAX / 2,
        lane_frames: Rate { per_second: 0, burst: 0 },
        ..CoreConfig::default()
    };
    let (mut core, mut world) = (Core::new(0, config, Origin([0; 32]), 1000, 1), World::default());
    for number in 1..=peers {
        core.peer_up(0, Peer([number; 32]), &mut world);
    }
    (core, world)
}

#[expect(clippy::disallowed_methods, reason = "a measurement, outside the node")]
fn measure(what: &str, mut each: impl FnMut(u64)) {
    let begun = Instant::now();
    (1..=MESSAGES).for_each(&mut each);
    println!("{what}: {} ns", begun.elapsed().as_nanos() / u128::from(MESSAGES));
}

fn main() {
    let lane = LaneName::new("lane").expect("a name");
    let payload = Bytes::from_static(&[7; 64]);
    for peers in [0, 1, 8] {
        let (mut core, mut world) = core_with(peers);
        measure(&format!("publish to {peers} peers, with its id"), |number| {
            core.publish(number, &lane, &payload, &mut world).expect("room");
            core.tick(number, &mut world);
        });
        assert_eq!(world.delivered, MESSAGES);
    }
    for peers in [1, 8] {
        let (mut core, mut world) = core_with(peers);
        measure(&format!("decode and receive, relayed to {} peers", peers - 1), |seq| {
            let key = Key { origin: Origin([9; 32]), epoch: 1000, seq };
            let data = Data { key, hops: 1, seal: None, payload: payload.clone() };
            let bytes = Message { lane, body: Body::Data(data) }.encode();
            let message = Message::decode(bytes).expect("a message");
            core.receive(seq, &Peer([1; 32]), message, &mut world).expect("taken");
            core.tick(seq, &mut world);
        });
        assert_eq!(world.delivered, MESSAGES);
    }
}
