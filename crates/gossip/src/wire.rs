//! Messages between nodes as bytes: big-endian, a kind, the lane, the rest. Nothing is reserved for a number that a
//! peer sent: lists are read where they lie.
//!
//! | kind | after the lane (one byte of length, then the name) |
//! |---|---|
//! | 1 data | origin 32, epoch 8, seq 8, hops 1, content (at most 64 KiB) |
//! | 2 chunk head | origin 32, epoch 8, seq 8, hops 1, size 4, a BLAKE3 of 32 for each chunk |
//! | 3 chunk | origin 32, epoch 8, seq 8, index 2, content (64 KiB but for the last) |
//! | 4 digest | flags 1 (1: no push follows), then up to 256 times origin 32, epoch 8, first 8, last 8 |
//! | 5 graft, 6 pull | origin 32, epoch 8, from 8, to 8, first chunk wanted of `from` 2 |
//! | 7 prune | why 1 (0: pushes come from elsewhere, 1: the fan-out is full) |
//! | 8 summary | flags 1 (1: answer with yours), then entries as in a digest |
//! | 9 credit | bytes consumed, a running total 8 |
//! | 10 answer | origin 32, epoch 8, from 8, through 8, not held up to 8 |
//! | 11 join, 12 leave | |
//! | 13 sealed data, 14 sealed chunk head | as 1 and 2, with a seal after the hops |
//!
//! A seal: height of the tree 1, place among its leaves 1, the hash beside each step up 32, signature 64.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::names::{LaneName, Origin};
use crate::seal::{SEAL_BYTES_MAX, Seal};
use crate::{CHUNK_BYTES, CHUNKS_MAX, LANE_NAME_BYTES_MAX, MESSAGE_BYTES_MAX, SEQ_MAX};

/// Most entries of one digest or summary.
pub const ENTRIES_MAX: usize = 256;
/// Largest encoded message: sealed data with the longest lane name.
pub const ENCODED_BYTES_MAX: usize = 2 + LANE_NAME_BYTES_MAX + DATA_FIXED + SEAL_BYTES_MAX + CHUNK_BYTES;
const _: () = assert!(DATA_FIXED + SEAL_BYTES_MAX >= CHUNK_FIXED);
const _: () = assert!(CHUNK_BYTES > ENTRIES_MAX * ENTRY_BYTES);

/// Bytes of a chunk's hash.
pub const HASH_BYTES: usize = 32;
const DATA_FIXED: usize = 32 + 8 + 8 + 1;
const CHUNK_FIXED: usize = 32 + 8 + 8 + 2;
const ENTRY_BYTES: usize = 32 + 8 + 8 + 8;

/// A message with the lane it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Lane that the message is about.
    pub lane: LaneName,
    /// Kind of message and its fields.
    pub body: Body,
}

/// Kinds of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A whole message of an origin.
    Data(Data),
    /// The head of a message in chunks.
    ChunkHead(ChunkHead),
    /// One chunk of it.
    Chunk(Chunk),
    /// What is new here, to lazy links.
    Digest {
        /// The sender got these by asking: no push follows, so there is nothing to wait for.
        no_push: bool,
        /// Ranges, at least one.
        entries: Entries,
    },
    /// Asks for a range, and for pushes from now on.
    Graft(Want),
    /// Asks for a range alone.
    Pull(Want),
    /// Asks for no more pushes, since they come from elsewhere already; or says that no pushes will come.
    Prune {
        /// The sender was asked to push, and pushes to as many as it may.
        is_full: bool,
    },
    /// All that is held of the lane.
    Summary {
        /// The sender wants the receiver's in return.
        reply: bool,
        /// Ranges; none if nothing is held.
        entries: Entries,
    },
    /// Bytes of data consumed in this lane.
    Credit {
        /// A running total: what it grew by since the last one was consumed. One that fell began anew.
        consumed: u64,
    },
    /// The end of what was sent for a graft or pull.
    Answer(Answer),
    /// Asks for pushes: the receiver is the sender's way to the rest, whatever it said before.
    Join,
    /// The receiver is no longer the sender's way to the rest.
    Leave,
}

/// A whole message of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Which message.
    pub key: Key,
    /// Links it came over, this one included.
    pub hops: u8,
    /// Proof that the origin published it, if it signs what it publishes.
    pub seal: Option<Seal>,
    /// Content.
    pub payload: Bytes,
}

/// Which message of which origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Publisher.
    pub origin: Origin,
    /// Life of the publisher.
    pub epoch: u64,
    /// Number in the epoch and lane, from 1.
    pub seq: u64,
}

/// The head of a message in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// Which message.
    pub key: Key,
    /// Links it came over, this one included.
    pub hops: u8,
    /// Proof that the origin published it, if it signs what it publishes.
    pub seal: Option<Seal>,
    /// Bytes of the message.
    pub size: u32,
    /// BLAKE3 of each chunk, one after the other.
    pub hashes: Bytes,
}

impl ChunkHead {
    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.hashes.len() / HASH_BYTES
    }

    /// Bytes of one chunk.
    pub fn chunk_bytes(&self, index: usize) -> usize {
        (self.size as usize).saturating_sub(index * CHUNK_BYTES).min(CHUNK_BYTES)
    }
}

/// One chunk of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Which message.
    pub key: Key,
    /// Which of its chunks, from 0.
    pub index: u16,
    /// Content.
    pub bytes: Bytes,
}

/// A range asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Publisher.
    pub origin: Origin,
    /// Life of the publisher.
    pub epoch: u64,
    /// First number wanted.
    pub from: u64,
    /// Last number wanted.
    pub to: u64,
    /// First chunk wanted of message `from`, if it travels in chunks.
    pub chunk: u16,
}

/// What an answer covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Publisher.
    pub origin: Origin,
    /// Life of the publisher.
    pub epoch: u64,
    /// First number that was asked for.
    pub from: u64,
    /// Last number that was sent or is not held; below `from` if the sender was busy.
    pub through: u64,
    /// `from` up to here is not held; below `from` if all was.
    pub missing_to: u64,
}

/// A range of messages of one origin that a peer says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Publisher.
    pub origin: Origin,
    /// Life of the publisher.
    pub epoch: u64,
    /// First number held.
    pub first: u64,
    /// Last number held.
    pub last: u64,
}

/// A list of ranges, checked when decoded and read where it lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries(Bytes);

impl Entries {
    /// Packs the first [`ENTRIES_MAX`] ranges.
    pub fn pack(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut packed = BytesMut::new();
        for entry in entries.into_iter().take(ENTRIES_MAX) {
            packed.put_slice(&entry.origin.0);
            packed.put_u64(entry.epoch);
            packed.put_u64(entry.first);
            packed.put_u64(entry.last);
        }
        Entries(packed.freeze())
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.0.chunks_exact(ENTRY_BYTES).map(|mut bytes| Entry {
            origin: get_origin(&mut bytes),
            epoch: bytes.get_u64(),
            first: bytes.get_u64(),
            last: bytes.get_u64(),
        })
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.0.len() / ENTRY_BYTES
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the kind needs.
    #[error("too short")]
    TooShort,
    /// Bytes after the end.
    #[error("bytes after the end")]
    TooLong,
    /// A kind this version does not know.
    #[error("kind {0} is unknown")]
    UnknownKind(u8),
    /// Not a lane name.
    #[error("not the name of a lane")]
    Lane,
    /// A number beyond its bounds.
    #[error("{0} is out of bounds")]
    OutOfBounds(&'static str),
}

/// The lane of an encoded message: what a reader needs to route it to an engine, before the rest is looked at.
pub fn peek_lane(message: &[u8]) -> Result<&[u8], WireError> {
    let length = usize::from(*message.get(1).ok_or(WireError::TooShort)?);
    if length == 0 || length > LANE_NAME_BYTES_MAX {
        return Err(WireError::Lane);
    }
    message.get(2..2 + length).ok_or(WireError::TooShort)
}

/// The number of a lane's flow and engine, from the bytes of its name.
pub fn flow_of(lane: &[u8]) -> Result<u64, WireError> {
    LaneName::from_bytes(lane).map(|lane| lane.flow()).map_err(|_| WireError::Lane)
}

impl Message {
    /// Reads one message. Payloads are slices of `bytes`: what keeps one for long copies it.
    pub fn decode(mut bytes: Bytes) -> Result<Message, WireError> {
        let lane = LaneName::from_bytes(peek_lane(&bytes)?).map_err(|_| WireError::Lane)?;
        let kind = bytes[0];
        bytes.advance(2 + lane.as_bytes().len());
        let body = match kind {
            1 | 13 => Body::Data(decode_data(bytes, kind == 13)?),
            2 | 14 => Body::ChunkHead(decode_chunk_head(bytes, kind == 14)?),
            3 => Body::Chunk(decode_chunk(bytes)?),
            4 => decode_digest(bytes)?,
            5 => Body::Graft(decode_want(bytes)?),
            6 => Body::Pull(decode_want(bytes)?),
            7 => Body::Prune { is_full: decode_flag(exactly(bytes, 1)?.get_u8())? },
            8 => {
                let (reply, entries) = decode_entries(bytes)?;
                Body::Summary { reply, entries }
            }
            9 => Body::Credit { consumed: exactly(bytes, 8)?.get_u64() },
            10 => Body::Answer(decode_answer(bytes)?),
            11 if bytes.is_empty() => Body::Join,
            12 if bytes.is_empty() => Body::Leave,
            11 | 12 => return Err(WireError::TooLong),
            unknown => return Err(WireError::UnknownKind(unknown)),
        };
        Ok(Message { lane, body })
    }

    /// The message as bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        out.put_u8(self.body.kind());
        put_lane(&mut out, &self.lane);
        self.body.put(&mut out);
        out.freeze()
    }

    /// Bytes of the encoded message.
    pub fn encoded_len(&self) -> usize {
        let body = match &self.body {
            Body::Data(data) => DATA_FIXED + seal_len(data.seal.as_ref()) + data.payload.len(),
            Body::ChunkHead(head) => DATA_FIXED + seal_len(head.seal.as_ref()) + 4 + head.hashes.len(),
            Body::Chunk(chunk) => CHUNK_FIXED + chunk.bytes.len(),
            Body::Digest { entries, .. } | Body::Summary { entries, .. } => 1 + entries.0.len(),
            Body::Graft(_) | Body::Pull(_) => 32 + 8 + 8 + 8 + 2,
            Body::Join | Body::Leave => 0,
            Body::Prune { .. } => 1,
            Body::Credit { .. } => 8,
            Body::Answer(_) => 32 + 8 + 8 + 8 + 8,
        };
        2 + self.lane.as_bytes().len() + body
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Data(data) => data_kind(data.seal.as_ref()),
            Body::ChunkHead(head) if head.seal.is_some() => 14,
            Body::ChunkHead(_) => 2,
            Body::Chunk(_) => 3,
            Body::Digest { .. } => 4,
            Body::Graft(_) => 5,
            Body::Pull(_) => 6,
            Body::Prune { .. } => 7,
            Body::Summary { .. } => 8,
            Body::Credit { .. } => 9,
            Body::Answer(_) => 10,
            Body::Join => 11,
            Body::Leave => 12,
        }
    }

    fn put(&self, out: &mut BytesMut) {
        match self {
            Body::Data(data) => {
                put_key(out, &data.key);
                out.put_u8(data.hops);
                put_seal(out, data.seal.as_ref());
                out.put_slice(&data.payload);
            }
            Body::ChunkHead(head) => {
                put_key(out, &head.key);
                out.put_u8(head.hops);
                put_seal(out, head.seal.as_ref());
                out.put_u32(head.size);
                out.put_slice(&head.hashes);
            }
            Body::Chunk(chunk) => {
                put_key(out, &chunk.key);
                out.put_u16(chunk.index);
                out.put_slice(&chunk.bytes);
            }
            Body::Digest { no_push: flag, entries } | Body::Summary { reply: flag, entries } => {
                out.put_u8(u8::from(*flag));
                out.put_slice(&entries.0);
            }
            Body::Graft(want) | Body::Pull(want) => {
                put_key(out, &Key { origin: want.origin, epoch: want.epoch, seq: want.from });
                out.put_u64(want.to);
                out.put_u16(want.chunk);
            }
            Body::Prune { is_full } => out.put_u8(u8::from(*is_full)),
            Body::Join | Body::Leave => {}
            Body::Credit { consumed } => out.put_u64(*consumed),
            Body::Answer(answer) => {
                put_key(out, &Key { origin: answer.origin, epoch: answer.epoch, seq: answer.from });
                out.put_u64(answer.through);
                out.put_u64(answer.missing_to);
            }
        }
    }
}

/// Encodes whole data in one buffer and gives it with the length of its head: the ring keeps this one copy, hands its
/// tail to subscribers and shares all of it with every peer.
pub(crate) fn encode_data(lane: &LaneName, key: &Key, hops: u8, seal: Option<&Seal>, payload: &[u8]) -> (Bytes, usize) {
    let head = 2 + lane.as_bytes().len() + DATA_FIXED + seal_len(seal);
    let mut out = BytesMut::with_capacity(head + payload.len());
    out.put_u8(data_kind(seal));
    put_lane(&mut out, lane);
    put_key(&mut out, key);
    out.put_u8(hops);
    put_seal(&mut out, seal);
    put_content(&mut out, payload);
    (out.freeze(), head)
}

/// Encodes one chunk and gives it with the length of its head.
pub(crate) fn encode_chunk(lane: &LaneName, key: &Key, index: u16, content: &[u8]) -> (Bytes, usize) {
    let head = 2 + lane.as_bytes().len() + CHUNK_FIXED;
    let mut out = BytesMut::with_capacity(head + content.len());
    out.put_u8(3);
    put_lane(&mut out, lane);
    put_key(&mut out, key);
    out.put_u16(index);
    put_content(&mut out, content);
    (out.freeze(), head)
}

/// In steps below the size from which on glibc hands a copy to the processor's own instruction (ADR 18).
fn put_content(out: &mut BytesMut, content: &[u8]) {
    content.chunks(2048).for_each(|step| out.put_slice(step));
}

fn data_kind(seal: Option<&Seal>) -> u8 {
    if seal.is_some() { 13 } else { 1 }
}

fn seal_len(seal: Option<&Seal>) -> usize {
    seal.map_or(0, |seal| seal.as_bytes().len())
}

fn put_seal(out: &mut BytesMut, seal: Option<&Seal>) {
    if let Some(seal) = seal {
        out.put_slice(seal.as_bytes());
    }
}

fn get_seal(bytes: &mut Bytes, is_sealed: bool) -> Result<Option<Seal>, WireError> {
    if is_sealed { Seal::decode(bytes).map(Some) } else { Ok(None) }
}

fn put_lane(out: &mut BytesMut, lane: &LaneName) {
    out.put_u8(lane.as_bytes().len() as u8);
    out.put_slice(lane.as_bytes());
}

fn put_key(out: &mut BytesMut, key: &Key) {
    out.put_slice(&key.origin.0);
    out.put_u64(key.epoch);
    out.put_u64(key.seq);
}

fn get_origin(bytes: &mut impl Buf) -> Origin {
    let mut origin = [0; 32];
    bytes.copy_to_slice(&mut origin);
    Origin(origin)
}

fn get_key(bytes: &mut Bytes) -> Result<Key, WireError> {
    let key = Key { origin: get_origin(bytes), epoch: bytes.get_u64(), seq: bytes.get_u64() };
    if key.seq == 0 || key.seq > SEQ_MAX { Err(WireError::OutOfBounds("seq")) } else { Ok(key) }
}

fn at_least(bytes: Bytes, length: usize) -> Result<Bytes, WireError> {
    if bytes.len() < length { Err(WireError::TooShort) } else { Ok(bytes) }
}

fn exactly(bytes: Bytes, length: usize) -> Result<Bytes, WireError> {
    if bytes.len() > length { Err(WireError::TooLong) } else { at_least(bytes, length) }
}

fn decode_data(bytes: Bytes, is_sealed: bool) -> Result<Data, WireError> {
    let mut bytes = at_least(bytes, DATA_FIXED)?;
    let key = get_key(&mut bytes)?;
    let hops = bytes.get_u8();
    let seal = get_seal(&mut bytes, is_sealed)?;
    if bytes.len() > CHUNK_BYTES {
        return Err(WireError::OutOfBounds("content"));
    }
    Ok(Data { key, hops, seal, payload: bytes })
}

fn decode_chunk_head(bytes: Bytes, is_sealed: bool) -> Result<ChunkHead, WireError> {
    let mut bytes = at_least(bytes, DATA_FIXED)?;
    let key = get_key(&mut bytes)?;
    let hops = bytes.get_u8();
    let seal = get_seal(&mut bytes, is_sealed)?;
    let size = at_least(bytes.clone(), 4)?.get_u32();
    bytes.advance(4);
    let length = size as usize;
    if length <= CHUNK_BYTES || length > MESSAGE_BYTES_MAX {
        return Err(WireError::OutOfBounds("size"));
    }
    let hashes = exactly(bytes, length.div_ceil(CHUNK_BYTES) * HASH_BYTES)?;
    Ok(ChunkHead { key, hops, seal, size, hashes })
}

fn decode_chunk(bytes: Bytes) -> Result<Chunk, WireError> {
    let mut bytes = at_least(bytes, CHUNK_FIXED)?;
    let key = get_key(&mut bytes)?;
    let index = bytes.get_u16();
    if usize::from(index) >= CHUNKS_MAX {
        return Err(WireError::OutOfBounds("index"));
    }
    if bytes.is_empty() || bytes.len() > CHUNK_BYTES {
        return Err(WireError::OutOfBounds("content"));
    }
    Ok(Chunk { key, index, bytes })
}

fn decode_digest(bytes: Bytes) -> Result<Body, WireError> {
    let (no_push, entries) = decode_entries(bytes)?;
    if entries.is_empty() {
        return Err(WireError::TooShort);
    }
    Ok(Body::Digest { no_push, entries })
}

fn decode_flag(byte: u8) -> Result<bool, WireError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::OutOfBounds("flags")),
    }
}

fn decode_entries(bytes: Bytes) -> Result<(bool, Entries), WireError> {
    let mut bytes = at_least(bytes, 1)?;
    let flag = decode_flag(bytes.get_u8())?;
    if !bytes.len().is_multiple_of(ENTRY_BYTES) {
        return Err(WireError::TooShort);
    }
    let entries = Entries(bytes);
    if entries.len() > ENTRIES_MAX {
        return Err(WireError::OutOfBounds("entries"));
    }
    if entries.iter().any(|entry| entry.first == 0 || entry.first > entry.last || entry.last > SEQ_MAX) {
        return Err(WireError::OutOfBounds("range"));
    }
    Ok((flag, entries))
}

fn decode_want(bytes: Bytes) -> Result<Want, WireError> {
    let mut bytes = exactly(bytes, 32 + 8 + 8 + 8 + 2)?;
    let Key { origin, epoch, seq: from } = get_key(&mut bytes)?;
    let (to, chunk) = (bytes.get_u64(), bytes.get_u16());
    if to < from || to > SEQ_MAX {
        return Err(WireError::OutOfBounds("range"));
    }
    if usize::from(chunk) >= CHUNKS_MAX {
        return Err(WireError::OutOfBounds("chunk"));
    }
    Ok(Want { origin, epoch, from, to, chunk })
}

fn decode_answer(bytes: Bytes) -> Result<Answer, WireError> {
    let mut bytes = exactly(bytes, 32 + 8 + 8 + 8 + 8)?;
    let Key { origin, epoch, seq: from } = get_key(&mut bytes)?;
    let (through, missing_to) = (bytes.get_u64(), bytes.get_u64());
    if through > SEQ_MAX || missing_to > SEQ_MAX {
        return Err(WireError::OutOfBounds("range"));
    }
    Ok(Answer { origin, epoch, from, through, missing_to })
}

#[cfg(test)]
mod tests;
