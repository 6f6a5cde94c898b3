//! One core under a recording world.

mod bounds;
mod chunks;
mod lives;
mod order;
mod property;
mod shares;
mod signed;
mod slow;

use bytes::Bytes;

use super::*;
use crate::CHUNK_BYTES;
use crate::seal::{SIGNATURE_BYTES, SignedText};
use crate::shell::{Delivered, DisconnectReason, SendOutcome};
use crate::wire::{Chunk, ChunkHead, Data, Entries, Entry, Key};

const EPOCH: u64 = 1_700_000_000_000;
const MS: Micros = 1000;

/// A world that records.
#[derive(Default)]
struct World {
    sent: Vec<(Peer, u64, Message)>,
    delivered: Vec<(Origin, u64, u64, u8, MsgId, Bytes)>,
    gaps: Vec<(u64, u64, u64)>,
    epochs: Vec<u64>,
    disconnected: Vec<(Peer, DisconnectReason)>,
    /// Peer whose outbox is full.
    full: Option<Peer>,
    shed: usize,
    /// Lanes that somebody here hears.
    heard: Vec<LaneName>,
    /// Whose key this world signs with.
    signer: Option<Origin>,
    /// Signatures that were made, and that were looked at.
    signed: usize,
    verified: usize,
}

/// A signature of tests: whoever knows the origin can make it, and nobody in a test cheats that way.
fn signature(origin: &Origin, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut out = [0; SIGNATURE_BYTES];
    out[..32].copy_from_slice(blake3::keyed_hash(&origin.0, text).as_bytes());
    out
}

impl Shell for World {
    fn send(&mut self, peer: &Peer, _lane: &LaneName, flow: u64, message: Bytes) -> SendOutcome {
        if self.full == Some(*peer) {
            return SendOutcome::Busy { retry_after_ms: 7 };
        }
        self.sent.push((*peer, flow, Message::decode(message).expect("a core sends what decodes")));
        SendOutcome::Sent
    }

    fn sign(&mut self, text: &SignedText) -> Option<[u8; SIGNATURE_BYTES]> {
        self.signed += 1;
        self.signer.map(|origin| signature(&origin, text))
    }

    fn verify(&mut self, origin: &Origin, text: &SignedText, given: &[u8]) -> bool {
        self.verified += 1;
        signature(origin, text) == given
    }

    fn is_heard(&self, lane: &LaneName) -> bool {
        self.heard.contains(lane)
    }

    fn shed_oldest(&mut self, _peer: &Peer, _flow: u64, bytes: usize) -> usize {
        self.shed += bytes;
        self.full = None;
        bytes
    }

    fn disconnect(&mut self, peer: &Peer, why: DisconnectReason) {
        self.disconnected.push((*peer, why));
    }

    fn deliver(&mut self, lane: &LaneName, message: Delivered<'_>) {
        assert_eq!(lane, message.lane);
        let Delivered { origin, epoch, seq, hops, .. } = message;
        assert_eq!(message.payload().len(), message.payload_bytes());
        self.delivered.push((*origin, epoch, seq, hops, message.msg_id(), message.payload()));
    }

    fn gap(&mut self, _lane: &LaneName, _origin: &Origin, epoch: u64, from: u64, to: u64) {
        self.gaps.push((epoch, from, to));
    }

    fn new_epoch(&mut self, _lane: &LaneName, _origin: &Origin, epoch: u64) {
        self.epochs.push(epoch);
    }
}

impl World {
    /// What was sent to a peer since the last look.
    fn take(&mut self, peer: Peer) -> Vec<Body> {
        let (to_peer, others) = std::mem::take(&mut self.sent).into_iter().partition(|(to, ..)| *to == peer);
        self.sent = others;
        to_peer.into_iter().map(|(_, _, message): (Peer, u64, Message)| message.body).collect()
    }

    fn seqs(&self) -> Vec<u64> {
        self.delivered.iter().map(|(_, _, seq, ..)| *seq).collect()
    }
}

fn lane() -> LaneName {
    LaneName::new("lane").unwrap()
}

fn peer(number: u8) -> Peer {
    Peer([number; 32])
}

fn origin(number: u8) -> Origin {
    Origin([number; 32])
}

fn core(config: CoreConfig) -> Core {
    Core::new(0, config, origin(0xee), EPOCH, 1)
}

/// A core with so many peers, and what it said to them at once forgotten.
fn core_with(config: CoreConfig, peers: u8) -> (Core, World) {
    let (mut core, mut world) = (core(config), World::default());
    for number in 1..=peers {
        assert!(core.peer_up(0, peer(number), &mut world));
    }
    (core, world)
}

fn key(of: u8, seq: u64) -> Key {
    Key { origin: origin(of), epoch: EPOCH + 1, seq }
}

fn data(of: u8, seq: u64) -> Body {
    Body::Data(Data { key: key(of, seq), hops: 1, seal: None, payload: Bytes::from(format!("{seq}")) })
}

fn digest(of: u8, first: u64, last: u64) -> Body {
    let entry = Entry { origin: origin(of), epoch: EPOCH + 1, first, last };
    Body::Digest { no_push: false, entries: Entries::pack([entry]) }
}

/// The parts of a large message, as a peer would send them.
fn parts(key: Key, payload: &[u8]) -> (ChunkHead, Vec<Chunk>) {
    let hashes: Vec<u8> = payload.chunks(CHUNK_BYTES).flat_map(|chunk| *blake3::hash(chunk).as_bytes()).collect();
    let head = ChunkHead { key, hops: 1, seal: None, size: payload.len() as u32, hashes: Bytes::from(hashes) };
    let chunk =
        |(index, content): (usize, &[u8])| Chunk { key, index: index as u16, bytes: Bytes::copy_from_slice(content) };
    (head, payload.chunks(CHUNK_BYTES).enumerate().map(chunk).collect())
}

impl Core {
    fn hear(&mut self, now: Micros, from: Peer, body: Body, world: &mut World) -> Result<(), Misbehaviour> {
        self.receive(now, &from, Message { lane: lane(), body }, world)
    }

    /// Lets time pass up to a moment.
    fn wait_until(&mut self, until: Micros, world: &mut World) {
        while self.next_at() <= until {
            let now = self.next_at();
            self.tick(now, world);
        }
    }
}
