//! What a lane holds: its last messages in the order they came, bounded by bytes and count.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::names::{self, LaneName, MsgId};
use crate::peers::Session;
use crate::seal::Seal;
use crate::wire::{self, HASH_BYTES, Key};
use crate::{CHUNK_BYTES, SHARED_BYTES_MIN};

/// Content of a message in the form it goes over links: encoded once, shared by ring, outboxes and subscribers.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// One encoded message, and the length of its head.
    Whole { message: Bytes, head: usize },
    /// A head and its chunks.
    Chunked(Arc<Chunked>),
}

/// A message in chunks.
#[derive(Debug)]
pub(crate) struct Chunked {
    /// The encoded head, with the hops of the next link.
    pub(crate) head: Bytes,
    /// Hashes of the chunks.
    pub(crate) hashes: Bytes,
    /// Encoded chunks, all of them.
    pub(crate) chunks: Vec<Bytes>,
    /// Length of the head of each encoded chunk.
    pub(crate) chunk_head: usize,
}

impl Chunked {
    /// Message `position` of those that make up this one: the head, then the chunks.
    pub(crate) fn part(&self, position: usize) -> Option<&Bytes> {
        if position == 0 { Some(&self.head) } else { self.chunks.get(position - 1) }
    }

    fn bytes(&self) -> usize {
        self.head.len() + self.hashes.len() + self.chunks.iter().map(|chunk| chunk.len() + 64).sum::<usize>()
    }

    fn payload(&self) -> Bytes {
        let mut payload = BytesMut::with_capacity(self.chunks.len() * CHUNK_BYTES);
        self.chunks.iter().for_each(|chunk| payload.put_slice(&chunk[self.chunk_head..]));
        payload.freeze()
    }
}

impl Stored {
    /// Encodes an own message: whole, or in chunks with a hash for each.
    pub(crate) fn publish(lane: &LaneName, key: &Key, seal: Option<&Seal>, payload: &[u8]) -> Stored {
        if payload.len() <= CHUNK_BYTES {
            let (message, head) = wire::encode_data(lane, key, 1, seal, payload);
            return Stored::Whole { message, head };
        }
        let mut hashes = BytesMut::with_capacity(payload.len().div_ceil(CHUNK_BYTES) * HASH_BYTES);
        let mut chunks = Vec::with_capacity(payload.len().div_ceil(CHUNK_BYTES));
        let mut chunk_head = 0;
        for (index, content) in payload.chunks(CHUNK_BYTES).enumerate() {
            hashes.put_slice(blake3::hash(content).as_bytes());
            let (chunk, head) = wire::encode_chunk(lane, key, index as u16, content);
            chunk_head = head;
            chunks.push(chunk);
        }
        let hashes = hashes.freeze();
        let (size, seal) = (payload.len() as u32, seal.cloned());
        let head = wire::ChunkHead { key: *key, hops: 1, seal, size, hashes: hashes.clone() };
        let head = wire::Message { lane: *lane, body: wire::Body::ChunkHead(head) }.encode();
        Stored::Chunked(Arc::new(Chunked { head, hashes, chunks, chunk_head }))
    }

    /// Bytes held, with what holds them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Stored::Whole { message, .. } => message.len(),
            Stored::Chunked(chunked) => chunked.bytes(),
        }
    }

    /// The content. Large ones that travelled whole share the ring's copy; chunks are put together in a new one, which
    /// the ring does not keep.
    pub(crate) fn payload(&self) -> Bytes {
        match self {
            Stored::Whole { message, head } if message.len() - head < SHARED_BYTES_MIN => {
                Bytes::copy_from_slice(&message[*head..])
            }
            Stored::Whole { message, head } => message.slice(*head..),
            Stored::Chunked(chunked) => chunked.payload(),
        }
    }

    /// Bytes of the content.
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Stored::Whole { message, head } => message.len() - head,
            Stored::Chunked(chunked) => chunked.chunks.iter().map(|chunk| chunk.len() - chunked.chunk_head).sum(),
        }
    }

    /// Hashes of the chunks of a message in chunks.
    pub(crate) fn hashes(&self) -> Option<&Bytes> {
        match self {
            Stored::Whole { .. } => None,
            Stored::Chunked(chunked) => Some(&chunked.hashes),
        }
    }

    /// The id of the message.
    pub(crate) fn msg_id(&self, lane: &LaneName, key: &Key) -> MsgId {
        let Key { origin, epoch, seq } = key;
        match self {
            Stored::Whole { message, head } => names::msg_id(origin, *epoch, lane, *seq, &message[*head..]),
            Stored::Chunked(chunked) => names::msg_id_of_chunks(origin, *epoch, lane, *seq, &chunked.hashes),
        }
    }
}

/// A message in the ring.
#[derive(Debug)]
pub(crate) struct RingEntry {
    /// Place of the origin in the lane's table; [`NO_ORIGIN`] once that is forgotten.
    pub(crate) origin: u32,
    pub(crate) hops: u8,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    /// Who brought it first.
    pub(crate) from: Session,
    /// Copies that came later.
    pub(crate) duplicates: u32,
    pub(crate) stored: Stored,
}

/// An origin that is forgotten.
pub(crate) const NO_ORIGIN: u32 = u32::MAX;

/// What a message costs beside its bytes: its entry and its place in the origin's index, in buffers that grow by
/// doubling, and the allocation of its bytes.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 2 * (std::mem::size_of::<RingEntry>() + 16) + 64;

impl RingEntry {
    pub(crate) fn bytes(&self) -> usize {
        self.stored.bytes() + ENTRY_OVERHEAD_BYTES
    }
}

/// The last messages of a lane. A message keeps the number of its arrival for as long as it is held.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    entries: VecDeque<RingEntry>,
    /// Arrival of the front.
    base: u64,
    bytes: usize,
}

impl Ring {
    /// An empty ring whose first message arrives as this number.
    pub(crate) fn starting_at(base: u64) -> Self {
        Ring { base, ..Ring::default() }
    }

    /// Arrival that the next message will have.
    pub(crate) fn tip(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// Arrival of the oldest message.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, entry: RingEntry) -> u64 {
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        self.tip() - 1
    }

    pub(crate) fn get(&self, arrival: u64) -> Option<&RingEntry> {
        self.entries.get(arrival.checked_sub(self.base)? as usize)
    }

    pub(crate) fn get_mut(&mut self, arrival: u64) -> Option<&mut RingEntry> {
        self.entries.get_mut(arrival.checked_sub(self.base)? as usize)
    }

    /// Lets the oldest message go.
    pub(crate) fn pop(&mut self) -> Option<(u64, RingEntry)> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes();
        self.base += 1;
        // A burst of small messages must not leave its buffer behind for ever.
        if self.entries.len() < self.entries.capacity() / 4 && self.entries.capacity() > 64 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        Some((self.base - 1, entry))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RingEntry> {
        self.entries.iter_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RingEntry> {
        self.entries.iter()
    }
}
