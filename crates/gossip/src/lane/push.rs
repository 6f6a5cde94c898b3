//! Pushing along the tree: each eager link has its place in the ring, and goes on from there when it was held up.

use bytes::Bytes;

use crate::lane::Lane;
use crate::link::{Half, LinkState};
use crate::names::{LaneName, Micros};
use crate::ring::{RingEntry, Stored};
use crate::shell::{DisconnectReason, Outcomes, SendOutcome, Shell, SlowConsumer};
use crate::turn::Turn;

/// Messages that one link is given in one go, so that a link far behind does not hold up the rest of the engine.
const PUMP_MESSAGES_MAX: usize = 256;
/// When a link without credit is looked at again; credit that comes earlier wakes it.
const CREDIT_RETRY_MS: u32 = 20;
/// When a link that was held up is tried again at the latest.
const RETRY_MS_MAX: u32 = 1000;

/// The lane as a sender of data knows it.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) name: LaneName,
    pub(super) flow: u64,
    pub(super) policy: SlowConsumer,
}

/// Sends one encoded piece of data over a link, within its credit.
pub(super) fn send_data<S: Shell>(
    turn: &mut Turn<'_, S>,
    link: &mut LinkState,
    way: &Way,
    message: &Bytes,
) -> SendOutcome {
    let Some(peer) = turn.shared.peers.id(link.session) else { return SendOutcome::NotReady };
    let bytes = message.len() as u64;
    if !link.credit.allows(turn.shared.config.credit_bytes, bytes) {
        if !link.credit.is_overdue(turn.now) {
            turn.shared.counts.busy += 1;
            return SendOutcome::Busy { retry_after_ms: CREDIT_RETRY_MS };
        }
        if way.policy == SlowConsumer::Disconnect {
            turn.shared.doom(link.session, DisconnectReason::Slow);
            return SendOutcome::NotReady;
        }
        link.credit.forgive(turn.now);
    }
    if let Err(retry_after_ms) = turn.shell.may_send(&peer) {
        turn.shared.counts.busy += 1;
        return SendOutcome::Busy { retry_after_ms };
    }
    let mut outcome = turn.shell.send(&peer, &way.name, way.flow, message.clone());
    if matches!(outcome, SendOutcome::Busy { .. }) {
        turn.shared.counts.busy += 1;
        match way.policy {
            SlowConsumer::DropOldest => {
                let freed = turn.shell.shed_oldest(&peer, way.flow, message.len());
                link.credit.unspend(freed as u64);
                outcome = turn.shell.send(&peer, &way.name, way.flow, message.clone());
            }
            SlowConsumer::Disconnect => turn.shared.doom(link.session, DisconnectReason::Slow),
            SlowConsumer::Busy | SlowConsumer::DropNewest => {}
        }
    }
    if outcome == SendOutcome::Sent {
        link.credit.spend(turn.now, bytes);
        turn.shared.counts.data_sent += 1;
        turn.shared.counts.data_bytes_sent += bytes;
    }
    outcome
}

/// Sends a message from a part on; the outcome, and the part that was not sent.
pub(super) fn send_parts<S: Shell>(
    turn: &mut Turn<'_, S>,
    link: &mut LinkState,
    way: &Way,
    stored: &Stored,
    mut position: usize,
) -> (SendOutcome, usize) {
    match stored {
        Stored::Whole { message, .. } => (send_data(turn, link, way, message), 0),
        Stored::Chunked(chunked) => {
            while let Some(part) = chunked.part(position) {
                let outcome = send_data(turn, link, way, part);
                if outcome != SendOutcome::Sent {
                    return (outcome, position);
                }
                position += 1;
            }
            (SendOutcome::Sent, 0)
        }
    }
}

/// The time of another try.
pub(super) fn retry_at(now: Micros, retry_after_ms: u32) -> Micros {
    now.saturating_add(1000 * Micros::from(retry_after_ms.clamp(1, RETRY_MS_MAX)))
}

/// Where a link goes on with a message: a part of it may have gone over before it was whole.
fn position_of(link: &LinkState, entry: &RingEntry) -> usize {
    let this = |half: &Half| (half.origin, half.epoch, half.seq) == (entry.origin, entry.epoch, entry.seq);
    link.half.filter(this).map_or(0, |half| half.position)
}

impl Lane {
    pub(super) fn way(&self) -> Way {
        Way { name: self.name, flow: self.flow, policy: self.policy }
    }

    /// Pushes the newest message of the ring over every eager link that has sent all before it.
    pub(super) fn push_out<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        arrival: u64,
        is_relayed: bool,
        mut outcomes: Option<&mut Outcomes>,
    ) {
        // A publisher was asked to wait before; what is relayed waits in the ring.
        let over_budget = if is_relayed { self.take_frame(turn) } else { None };
        for place in 0..self.eager.len() {
            let slot = usize::from(self.eager[place]);
            let link = &mut self.links[slot];
            let outcome = match over_budget {
                _ if link.cursor < arrival => SendOutcome::Busy { retry_after_ms: CREDIT_RETRY_MS },
                Some(wait) => {
                    link.retry_at = link.retry_at.min(turn.now.saturating_add(wait));
                    self.due = self.due.min(link.retry_at);
                    continue;
                }
                None => self.push_next(turn, slot),
            };
            if let Some(outcomes) = &mut outcomes
                && let Some(peer) = turn.shared.peers.id(self.links[slot].session)
            {
                outcomes.push(peer, outcome);
            }
        }
    }

    /// Lets the links that have sent all before it go past a message without sending it.
    pub(super) fn pass_over(&mut self, arrival: u64) {
        for slot in &self.eager {
            let link = &mut self.links[usize::from(*slot)];
            if link.cursor == arrival {
                link.cursor += 1;
            }
        }
    }

    fn take_frame<S: Shell>(&mut self, turn: &mut Turn<'_, S>) -> Option<Micros> {
        self.frames.take(turn.shared.config.lane_frames, turn.now, 1).err()
    }

    /// Sends the message at a link's place in the ring, and moves on unless the link is to wait.
    fn push_next<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize) -> SendOutcome {
        let way = self.way();
        let Some(entry) = self.ring.get(self.links[slot].cursor) else { return SendOutcome::Sent };
        let is_passed_on = self.is_passed_on(turn.shared, turn.now, entry.origin, entry.epoch);
        let link = &mut self.links[slot];
        if entry.from == link.session || !is_passed_on {
            link.cursor += 1;
            return SendOutcome::Sent;
        }
        let position = position_of(link, entry);
        let (outcome, stopped_at) = send_parts(turn, link, &way, &entry.stored, position);
        match outcome {
            SendOutcome::Busy { retry_after_ms } if way.policy != SlowConsumer::DropNewest => {
                if stopped_at > 0 {
                    let (origin, epoch, seq) = (entry.origin, entry.epoch, entry.seq);
                    link.half = Some(Half { origin, epoch, seq, position: stopped_at });
                }
                link.retry_at = link.retry_at.min(retry_at(turn.now, retry_after_ms));
                self.due = self.due.min(link.retry_at);
            }
            // Too large for that peer, dropped by the lane's policy, or on its way: the next one.
            _ => {
                if matches!(entry.stored, Stored::Chunked(_)) {
                    link.half = None;
                }
                link.cursor += 1;
            }
        }
        outcome
    }

    /// Goes on with what a link was held up in: answers first, since somebody waits for them.
    pub(super) fn pump<S: Shell>(&mut self, turn: &mut Turn<'_, S>, slot: usize) {
        self.links[slot].retry_at = Micros::MAX;
        if !self.links[slot].is_up() || !self.serve(turn, slot) || !self.links[slot].eager {
            return;
        }
        self.cut_through(turn, slot);
        for _ in 0..PUMP_MESSAGES_MAX {
            let link = &mut self.links[slot];
            // What the ring let go meanwhile is a hole for the peer, which will ask others for it.
            link.cursor = link.cursor.max(self.ring.base());
            if link.cursor >= self.ring.tip() || link.retry_at != Micros::MAX {
                return;
            }
            if let Some(wait) = self.take_frame(turn) {
                self.links[slot].retry_at = turn.now.saturating_add(wait);
                self.wake(self.links[slot].retry_at);
                return;
            }
            self.push_next(turn, slot);
        }
        self.links[slot].retry_at = turn.now;
        self.wake(turn.now);
    }
}
