//! Nodes that do not keep to the protocol. Each runs the real core, so that it is a neighbour like any other, and adds
//! or leaves out frames.

use bytes::Bytes;
use ron_gossip::wire::{Answer, Body, Data, Entries, Entry, Key, Message, Want};
use ron_gossip::{LaneName, Micros, Origin, SEQ_MAX};

use super::node_id;
use crate::rng::Rng;

/// Time between two bursts of an attacker.
const BURST_EVERY: Micros = 20_000;
/// Epochs may be this far ahead of a node's clock.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Frames of others that a replaying node keeps.
const OVERHEARD_MAX: usize = 2000;
/// Kinds of messages that carry payload or say that it was sent.
const DATA_KINDS: [u8; 4] = [1, 2, 3, 10];

/// What a node does beside, or instead of, keeping to the protocol.
#[derive(Clone, Debug, Default)]
pub enum Behaviour {
    /// Nothing.
    #[default]
    Honest,
    /// Announces everything and passes nothing on.
    Censor,
    /// Claims messages that do not exist and passes nothing on.
    LyingDigests {
        /// Lane the lies are about.
        lane: LaneName,
        /// Nodes the lies are about.
        origins: Vec<usize>,
    },
    /// Publishes as fast as it can.
    Flood {
        /// Lane that is flooded.
        lane: LaneName,
        /// Number of the last message.
        seq: u64,
        /// Messages for each neighbour in a burst.
        burst: usize,
        /// The flooder's life.
        epoch: u64,
    },
    /// Opens new lanes and makes up new origins.
    Openings,
    /// Sends what it heard again and again.
    Replay {
        /// Frames with data that came by.
        heard: Vec<Bytes>,
    },
    /// Makes up origins whose lives begin about as far ahead as clocks allow.
    EdgeOfTime {
        /// Lane the messages are in.
        lane: LaneName,
        /// Milliseconds before and after the edge that the lives are spread over.
        around_ms: u64,
    },
    /// Says that it knows later lives of another node than its current one.
    FalsePast {
        /// Lane the lives are in.
        lane: LaneName,
        /// Node the lives are of.
        about: usize,
    },
    /// Sends the largest numbers and lists that decode, and some that do not.
    Huge {
        /// Lane the numbers are about.
        lane: LaneName,
        /// Node the numbers are about.
        about: usize,
    },
}

impl Behaviour {
    /// A flood of a lane.
    pub fn flood(lane: LaneName, burst: usize) -> Self {
        Behaviour::Flood { lane, seq: 0, burst, epoch: 0 }
    }

    /// Whether a frame of the core leaves the node.
    pub(super) fn lets_out(&self, message: &[u8]) -> bool {
        let hides_data = matches!(self, Behaviour::Censor | Behaviour::LyingDigests { .. });
        !(hides_data && message.first().is_some_and(|kind| DATA_KINDS.contains(kind)))
    }

    pub(super) fn overhear(&mut self, _from: usize, message: &Bytes) {
        if let Behaviour::Replay { heard } = self
            && heard.len() < OVERHEARD_MAX
            && message.first() == Some(&1)
        {
            heard.push(message.clone());
        }
    }

    /// The next burst: frames by receiver, and the time until the one after.
    pub(super) fn attack(
        &mut self,
        node: usize,
        neighbours: &[usize],
        wall_ms: u64,
        rng: &mut Rng,
    ) -> Option<(Vec<(usize, Bytes)>, Micros)> {
        let burst: Vec<Bytes> = match self {
            Behaviour::Honest | Behaviour::Censor => return None,
            Behaviour::LyingDigests { lane, origins } => {
                let about = Origin(node_id(rng.pick(origins)));
                let last = rng.pick(&[1, 100, 1_000_000, SEQ_MAX]);
                let epochs = [wall_ms - 1000, wall_ms, wall_ms + 60_000];
                let entry = Entry { origin: about, epoch: rng.pick(&epochs), first: 1, last };
                let no_push = rng.percent(50);
                vec![encode(lane, Body::Digest { no_push, entries: Entries::pack([entry]) })]
            }
            Behaviour::Flood { lane, seq, burst, epoch } => {
                *epoch = (*epoch).max(wall_ms.min(*epoch + wall_ms));
                let key = |seq| Key { origin: Origin(node_id(node)), epoch: *epoch, seq };
                let first = *seq + 1;
                *seq += *burst as u64;
                (first..=*seq).map(|seq| data(lane, key(seq), &[7; 1000])).collect()
            }
            Behaviour::Openings => (0..100).map(|_| opening(wall_ms, rng)).collect(),
            Behaviour::Replay { heard } => {
                let picks = if heard.is_empty() { 0 } else { 50 };
                (0..picks).map(|_| heard[rng.between(0, heard.len() as u64 - 1) as usize].clone()).collect()
            }
            Behaviour::EdgeOfTime { lane, around_ms } => {
                let epoch = wall_ms + DAY_MS - *around_ms + rng.between(0, 2 * *around_ms);
                vec![data(lane, Key { origin: made_up_origin(rng), epoch, seq: 1 }, b"made up")]
            }
            Behaviour::FalsePast { lane, about } => {
                let ahead_ms = rng.pick(&[1000, 60_000, DAY_MS / 2, DAY_MS - 1000]);
                let entry = Entry { origin: Origin(node_id(*about)), epoch: wall_ms + ahead_ms, first: 1, last: 9 };
                vec![encode(lane, Body::Summary { reply: false, entries: Entries::pack([entry]) })]
            }
            Behaviour::Huge { lane, about } => huge(lane, *about, wall_ms),
        };
        let to_all = |to: &usize| burst.iter().map(|message| (*to, message.clone())).collect::<Vec<_>>();
        Some((neighbours.iter().flat_map(to_all).collect(), BURST_EVERY))
    }
}

fn encode(lane: &LaneName, body: Body) -> Bytes {
    Message { lane: *lane, body }.encode()
}

fn data(lane: &LaneName, key: Key, payload: &[u8]) -> Bytes {
    encode(lane, Body::Data(Data { key, hops: 1, seal: None, payload: Bytes::copy_from_slice(payload) }))
}

fn opening(wall_ms: u64, rng: &mut Rng) -> Bytes {
    let name = if rng.percent(50) { "news".to_owned() } else { format!("made-up-{}", rng.draw()) };
    let lane = LaneName::new(&name).unwrap_or_else(|_| unreachable!("letters, digits and hyphens"));
    data(&lane, Key { origin: made_up_origin(rng), epoch: wall_ms, seq: 1 }, b"made up")
}

fn made_up_origin(rng: &mut Rng) -> Origin {
    let mut origin = [0; 32];
    origin[..8].copy_from_slice(&rng.draw().to_be_bytes());
    Origin(origin)
}

/// Every field at its end, for an honest origin.
fn huge(lane: &LaneName, about: usize, wall_ms: u64) -> Vec<Bytes> {
    let origin = Origin(node_id(about));
    let entry = |epoch, first, last| Entry { origin, epoch, first, last };
    let full = |epoch| Entries::pack(std::iter::repeat_n(entry(epoch, SEQ_MAX, SEQ_MAX), 256));
    let want = |epoch, from, to| Want { origin, epoch, from, to, chunk: 63 };
    let answer = Answer { origin, epoch: wall_ms, from: 1, through: SEQ_MAX, missing_to: SEQ_MAX };
    let bodies = [
        Body::Data(Data {
            key: Key { origin, epoch: u64::MAX, seq: SEQ_MAX },
            hops: 255,
            seal: None,
            payload: Bytes::new(),
        }),
        Body::Digest { no_push: true, entries: full(u64::MAX) },
        Body::Digest { no_push: true, entries: full(wall_ms) },
        Body::Summary { reply: true, entries: full(wall_ms) },
        Body::Pull(want(u64::MAX, 1, SEQ_MAX)),
        Body::Graft(want(wall_ms, 1, SEQ_MAX)),
        Body::Credit { consumed: u64::MAX },
        Body::Answer(answer),
    ];
    let mut frames: Vec<Bytes> = bodies.into_iter().map(|body| encode(lane, body)).collect();
    frames.push(Bytes::from_static(&[1, 80, 255]));
    frames
}
