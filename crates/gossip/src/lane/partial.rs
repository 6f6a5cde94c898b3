//! Messages in chunks that are not whole yet: each chunk is checked and goes on at once.

use std::sync::Arc;

use bytes::Bytes;

use crate::lane::Lane;
use crate::lane::push::{retry_at, send_data};
use crate::link::Half;
use crate::names::{self, Micros, Peer};
use crate::origin::{Claim, LeftOut, Waiting};
use crate::peers::Session;
use crate::ring::{Chunked, Stored};
use crate::seal::SEAL_BYTES_MAX;
use crate::shell::{Misbehaviour, SendOutcome, Shell};
use crate::turn::{Shared, Turn};
use crate::wire::{self, Body, Chunk, ChunkHead, HASH_BYTES, Key};

/// A message that is not whole yet.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) origin: u32,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    hops: u8,
    push: bool,
    head: ChunkHead,
    /// The head for the next link.
    encoded: Bytes,
    chunks: Vec<Option<Bytes>>,
    chunk_head: usize,
    missing: usize,
    /// Who sends it; nobody once that peer has left.
    pub(crate) from: Session,
    /// Who sent the head, and so says what the chunks are.
    head_from: Session,
    /// Whose share of the room it takes.
    charged_to: Peer,
    /// When the last chunk came.
    pub(crate) updated_at: Micros,
}

/// What a partial message costs beside its chunks.
pub(crate) const PARTIAL_OVERHEAD_BYTES: usize =
    2 * std::mem::size_of::<Partial>() + crate::CHUNKS_MAX * (2 * HASH_BYTES + 32 + 160) + SEAL_BYTES_MAX + 256;

impl Partial {
    /// Gives its room back.
    pub(crate) fn release(&self, shared: &mut Shared) {
        shared.release_partial(&self.charged_to, self.head.size as usize);
    }

    #[cfg(test)]
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.head.size as usize + PARTIAL_OVERHEAD_BYTES
    }

    /// Message `position` of those that make up this one, if it is here.
    fn part(&self, position: usize) -> Option<&Bytes> {
        if position == 0 { Some(&self.encoded) } else { self.chunks.get(position - 1)?.as_ref() }
    }

    /// Whether a chunk is the one that the head announced.
    fn announces(&self, chunk: &Chunk) -> bool {
        let index = usize::from(chunk.index);
        let expected = self.head.hashes.get(index * HASH_BYTES..(index + 1) * HASH_BYTES);
        chunk.bytes.len() == self.head.chunk_bytes(index)
            && expected.is_some_and(|expected| blake3::hash(&chunk.bytes).as_bytes() == expected)
    }

    pub(crate) fn first_missing(&self) -> u16 {
        self.chunks.iter().position(Option::is_none).unwrap_or(0) as u16
    }

    /// Whether chunks still come.
    pub(crate) fn is_growing(&self, now: Micros, timeout: Micros) -> bool {
        self.from != Session::NONE && now.saturating_sub(self.updated_at) < timeout
    }

    fn is_of(&self, half: &Half) -> bool {
        (half.origin, half.epoch, half.seq) == (self.origin, self.epoch, self.seq)
    }
}

impl Lane {
    pub(super) fn find_partial(&mut self, origin: u32, epoch: u64, seq: u64) -> Option<&mut Partial> {
        self.partials.iter_mut().find(|it| (it.origin, it.epoch, it.seq) == (origin, epoch, seq))
    }

    pub(super) fn on_chunk_head<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        head: ChunkHead,
    ) -> Result<(), Misbehaviour> {
        let Key { origin, epoch, seq } = head.key;
        if self.asks_for_proof(turn.shared, &head.key) {
            let leaf = || names::leaf_of_chunks(&origin, epoch, &self.name, seq, &head.hashes);
            turn.check_seal(session, &origin, head.seal.as_ref(), leaf)?;
        }
        let Some(at) = self.admit(turn, session, &head.key)? else { return Ok(()) };
        let timeout = turn.shared.config.answer_timeout;
        let claim = Claim { session, epoch, first: seq, last: seq };
        // Whatever happens to this sender, somebody is asked for the rest in time.
        self.schedule(turn, at, claim, turn.now.saturating_add(timeout), false);
        if let Some(known) = self.find_partial(at, epoch, seq) {
            if known.from != session && known.is_growing(turn.now, timeout) {
                let first = known.from;
                turn.shared.counts.duplicates += 1;
                self.on_second_copy(turn, session, first);
                return Ok(());
            }
            if (known.head.size, &known.head.hashes) == (head.size, &head.hashes) {
                (known.from, known.head_from) = (session, session);
                return Ok(());
            }
            // Another content under the same number: what does not grow gives way to what does.
            self.drop_partials(turn, |partial| (partial.origin, partial.seq) == (at, seq));
        }
        let Some(charged_to) = turn.shared.peers.id(session) else { return Ok(()) };
        let size = head.size as usize;
        if !turn.shared.reserve_partial(charged_to, size) {
            // Asked for later, when there is room; that it does not come now is not the peer's fault.
            if let Some(repair) = self.origins.get_mut(at).and_then(|origin| origin.repair.as_mut()) {
                repair.left_out = Some(LeftOut { session, epoch, seq, size, at: turn.now });
            }
            return Ok(());
        }
        let hops = head.hops.clamp(1, turn.shared.config.hops_max.max(1));
        // The hashes outlive the buffer they were read into.
        let hashes = Bytes::copy_from_slice(&head.hashes);
        let head = ChunkHead { hashes, hops: hops.saturating_add(1), ..head };
        let encoded = self.encode(Body::ChunkHead(head.clone()));
        // The encoded head has the seal, and nobody looks at it here again.
        let head = ChunkHead { seal: None, ..head };
        let push = self.is_pushed_on(at, session, epoch, seq);
        self.partials.push(Partial {
            origin: at,
            epoch,
            seq,
            hops,
            push,
            encoded,
            chunks: vec![None; head.chunks()],
            chunk_head: 0,
            missing: head.chunks(),
            head,
            from: session,
            head_from: session,
            charged_to,
            updated_at: turn.now,
        });
        if push && hops < turn.shared.config.hops_max && turn.shared.is_relayed(turn.now, epoch) {
            self.begin_cut_through(turn, session, Half { origin: at, epoch, seq, position: 0 });
        }
        Ok(())
    }

    /// Sends a message on before it is whole, over the links that have nothing older to send.
    fn begin_cut_through<S: Shell>(&mut self, turn: &mut Turn<'_, S>, from: Session, half: Half) {
        let tip = self.ring.tip();
        for place in 0..self.eager.len() {
            let slot = usize::from(self.eager[place]);
            let link = &mut self.links[slot];
            let is_cutting = link.half.is_some_and(|half| self.partials.iter().any(|partial| partial.is_of(&half)));
            if link.session != from && link.cursor == tip && !is_cutting {
                link.half = Some(half);
                self.cut_through(turn, slot);
            }
        }
    }

    /// Sends the parts that are here of the message that a link is in the middle of.
    pub(super) fn cut_through<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize) {
        let way = self.way();
        let link = &mut self.links[slot];
        let Some(mut half) = link.half else { return };
        let Some(partial) = self.partials.iter().find(|partial| partial.is_of(&half)) else { return };
        while let Some(part) = partial.part(half.position) {
            match send_data(turn, link, &way, part) {
                SendOutcome::Sent => half.position += 1,
                SendOutcome::Busy { retry_after_ms } => {
                    link.retry_at = link.retry_at.min(retry_at(turn.now, retry_after_ms));
                    self.due = self.due.min(link.retry_at);
                    break;
                }
                _ => break,
            }
        }
        link.half = Some(half);
    }

    pub(super) fn on_chunk<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        chunk: Chunk,
    ) -> Result<(), Misbehaviour> {
        let (epoch, seq) = (chunk.key.epoch, chunk.key.seq);
        let name = self.name;
        let Some(at) = self.origins.find(&chunk.key.origin) else { return Ok(()) };
        let Some(partial) = self.find_partial(at, epoch, seq) else {
            // Its message is whole already, or there was no room for it.
            turn.shared.counts.duplicates += 1;
            return Ok(());
        };
        let index = usize::from(chunk.index);
        if partial.chunks.get(index).is_some_and(Option::is_some) {
            turn.shared.counts.duplicates += 1;
            return Ok(());
        }
        if !partial.announces(&chunk) {
            return self.on_wrong_chunk(turn, session, (at, seq));
        }
        let Some(place) = partial.chunks.get_mut(index) else { return Ok(()) };
        let (encoded, chunk_head) = wire::encode_chunk(&name, &chunk.key, chunk.index, &chunk.bytes);
        *place = Some(encoded);
        partial.chunk_head = chunk_head;
        partial.missing -= 1;
        partial.updated_at = turn.now;
        let is_whole = partial.missing == 0;
        if let Some(repair) = self.origins.get_mut(at).and_then(|origin| origin.repair.as_mut())
            && let Some(asked) = repair.asked.as_mut().filter(|asked| asked.covers(session, epoch, seq))
        {
            // A large answer may take longer than an answer has time: each part of it counts.
            (asked.at, repair.since) = (turn.now, turn.now);
        }
        for place in 0..self.eager.len() {
            let slot = usize::from(self.eager[place]);
            if self.links[slot].half.is_some_and(|it| (it.origin, it.epoch, it.seq) == (at, epoch, seq))
                && self.links[slot].retry_at == Micros::MAX
            {
                self.cut_through(turn, slot);
            }
        }
        if is_whole {
            self.complete(turn, at, epoch, seq);
        }
        Ok(())
    }

    /// A chunk is not what the head announced. Who sent that head lied. Of anybody else it may be the truth, and the
    /// head the lie: whoever was asked for the rest makes this node begin again, with a head of its own.
    fn on_wrong_chunk<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        session: Session,
        (at, seq): (u32, u64),
    ) -> Result<(), Misbehaviour> {
        let is_it = |partial: &Partial| (partial.origin, partial.seq) == (at, seq);
        let partial = self.partials.iter().find(|partial| is_it(partial));
        let (head_from, from) = partial.map_or((Session::NONE, Session::NONE), |it| (it.head_from, it.from));
        if head_from == session {
            return Err(turn.shared.offence(turn.now, session, Misbehaviour::WrongChunk));
        }
        turn.shared.counts.duplicates += 1;
        if from == session {
            self.drop_partials(turn, is_it);
        }
        Ok(())
    }

    /// All chunks are here: from now on it is a message like any other.
    fn complete<S: Shell>(&mut self, turn: &mut Turn<'_, S>, at: u32, epoch: u64, seq: u64) {
        let Some(place) = self.partials.iter().position(|it| (it.origin, it.epoch, it.seq) == (at, epoch, seq)) else {
            return;
        };
        let partial = self.partials.swap_remove(place);
        partial.release(turn.shared);
        let Partial { hops, push, head, encoded, chunks, chunk_head, from, .. } = partial;
        let chunks = chunks.into_iter().flatten().collect();
        let stored = Stored::Chunked(Arc::new(Chunked { head: encoded, hashes: head.hashes, chunks, chunk_head }));
        self.take(turn, at, seq, Waiting { stored, hops, from, push });
    }

    /// Gives up messages that did not grow for too long.
    pub(super) fn expire_partials<S: Shell>(&mut self, turn: &mut Turn<'_, S>) {
        let oldest = turn.now.saturating_sub(turn.shared.config.gap_after);
        self.drop_partials(turn, |partial| partial.updated_at < oldest);
    }

    pub(super) fn drop_partials<S: Shell>(&mut self, turn: &mut Turn<'_, S>, goes: impl Fn(&Partial) -> bool) {
        for place in (0..self.partials.len()).rev() {
            if goes(&self.partials[place]) {
                let partial = self.partials.swap_remove(place);
                partial.release(turn.shared);
                let stale = |half: &Half| partial.is_of(half);
                self.links.iter_mut().filter(|link| link.half.as_ref().is_some_and(stale)).for_each(|link| {
                    link.half = None;
                });
            }
        }
    }

    pub(super) fn partials_due(&self, gap_after: Micros) -> Micros {
        let oldest = self.partials.iter().map(|partial| partial.updated_at).min();
        oldest.map_or(Micros::MAX, |oldest| oldest.saturating_add(gap_after + 1))
    }
}
