//! A subscriber on its way from what the ring held when it came to what arrives now, as fast as it takes it.
//!
//! First come the numbers it asked for, origin by origin; then everything that arrived since, in the ring's order, with
//! the gaps and epochs that were told meanwhile in their places. So the ring is the only buffer: what it lets go before
//! the subscriber took it is told, as a gap where the numbers are known and as lagged where they are not.

use std::collections::VecDeque;
use std::task::Context;

use ron_gossip::{Core, Held, HeldMessage, LaneName, Origin, Standing};
use ron_transport::NodeId;
use ron_types::limits::overlay::{STARTING_POINTS_MAX, SUBSCRIBER_NOTICES_MAX};

use crate::subscription::{Made, Subscriber};
use crate::words::{Item, Message};

/// Items that one subscriber is given in one turn of its engine, so that a long replay holds up nobody else.
const ITEMS_PER_TURN: usize = 64;
/// Bytes after which a turn ends likewise.
const BYTES_PER_TURN: usize = 1 << 20;

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The subscriber has everything that arrived.
    Done,
    /// There is more, and room for it.
    More,
    /// Something was given; the subscriber's waker is kept for the rest.
    Some,
    /// There is no room; the subscriber's waker is kept.
    None,
}

/// Numbers of one origin that were asked for and have been.
#[derive(Debug)]
struct Range {
    origin: NodeId,
    epoch: u64,
    next: u64,
    last: u64,
    /// Which life the numbers are of is said first: the subscriber may have another in mind.
    tells_epoch: bool,
}

impl Range {
    /// What a subscriber is given that asks for an origin from a number on, which says nothing of the life it is of.
    fn of(origin: NodeId, from: u64, standing: Standing) -> Range {
        let Standing { epoch, next, is_reborn, .. } = standing;
        // The life has not got that far: it is a later one than that of the number, and nothing of it was heard.
        let is_another = from > next;
        let first = if is_another { 1 } else { from.max(1) };
        Range { origin, epoch, next: first, last: next - 1, tells_epoch: is_another || is_reborn }
    }
}

/// An origin that was asked for from a number on, of which this node has not heard yet.
pub(super) type Awaited = (NodeId, u64);

/// Bytes that one subscriber's way may hold. All lists grow by doubling, and end at a power of two; an origin is in one
/// of the first two.
pub(crate) const CATCH_UP_BYTES: usize = 2 * STARTING_POINTS_MAX.next_power_of_two() * size_of::<Range>()
    + SUBSCRIBER_NOTICES_MAX.next_power_of_two() * size_of::<(u64, Item)>();

/// How far a subscriber has got.
#[derive(Debug)]
pub(super) struct CatchUp {
    ranges: VecDeque<Range>,
    /// Origins that something is still to come of.
    awaited: Vec<Awaited>,
    /// Arrival of the next message once the ranges are given.
    next: u64,
    /// Above the last message that arrived.
    tip: u64,
    /// Wanted messages that arrived since the subscription, and are neither given nor told as lost.
    outstanding: u64,
    /// Gaps and epochs, each with the arrival that it goes before.
    notices: VecDeque<(u64, Item)>,
    /// Items lost, not told yet.
    lost: u64,
}

/// What is given next.
enum Next<'a> {
    Notice(Item),
    Message(NodeId, HeldMessage<'a>),
    Nothing,
}

impl CatchUp {
    /// Begins with what the ring holds of these numbers; numbers count from 1.
    pub(super) fn new(core: &Core, lane: &LaneName, from: Vec<(NodeId, u64)>) -> CatchUp {
        let (mut ranges, mut awaited) = (VecDeque::new(), Vec::new());
        for (origin, from) in from {
            match core.standing(lane, &Origin(*origin.as_bytes())) {
                // This node may only be behind: what comes next says of which life it is.
                Some(Standing { next, is_behind: true, .. }) if from > next => awaited.push((origin, from)),
                Some(standing) => ranges.push_back(Range::of(origin, from, standing)),
                None => awaited.push((origin, from)),
            }
        }
        let tip = core.tip(lane);
        CatchUp { ranges, awaited, next: tip, tip, outstanding: 0, notices: VecDeque::new(), lost: 0 }
    }

    /// Origins that were asked for and that nothing is given of yet.
    pub(super) fn take_awaited(&mut self) -> Vec<Awaited> {
        std::mem::take(&mut self.awaited)
    }

    /// A message arrived in the lane: it is in the ring, and given in its turn.
    pub(super) fn note_arrival(&mut self, arrival: u64, is_wanted: bool) {
        self.tip = arrival + 1;
        self.outstanding += u64::from(is_wanted);
    }

    /// A gap or an epoch was told.
    pub(super) fn note(&mut self, item: Item) {
        if self.notices.len() >= SUBSCRIBER_NOTICES_MAX {
            self.notices.pop_front();
            self.lost += 1;
        }
        self.notices.push_back((self.tip, item));
    }

    /// Gives what there is room for, within the bounds of a turn.
    pub(super) fn advance(
        &mut self,
        core: &Core,
        lane: &LaneName,
        unwanted: Option<NodeId>,
        subscriber: &mut dyn Subscriber,
        context: &mut Context<'_>,
    ) -> Progress {
        let (mut items, mut bytes) = (0, 0);
        let progress = loop {
            if items >= ITEMS_PER_TURN || bytes >= BYTES_PER_TURN {
                break Progress::More;
            }
            let next = self.next_item(core, lane, unwanted);
            let size = match &next {
                Next::Message(_, held) => held.payload_bytes(),
                Next::Nothing if self.lost == 0 => break Progress::Done,
                Next::Notice(_) | Next::Nothing => 0,
            };
            if subscriber.poll_room(context, size).is_pending() {
                break if items > 0 { Progress::Some } else { Progress::None };
            }
            (items, bytes) = (items + 1, bytes + size);
            let mut give = |item: &Item| subscriber.give(lane, item, &mut Made::for_subscribers(1));
            if self.lost > 0 {
                // Told before what comes after it; this round gives nothing else, so that it needs no further room.
                give(&Item::Lagged { dropped: std::mem::take(&mut self.lost) });
                continue;
            }
            match next {
                Next::Notice(item) => {
                    give(&item);
                    self.noticed(&item);
                }
                Next::Message(origin, held) => {
                    let place = (held.arrival, held.seq());
                    give(&Item::Message(message_of(origin, held)));
                    self.passed(place);
                }
                Next::Nothing => {}
            }
        };
        if items > 0 {
            subscriber.flush();
        }
        progress
    }

    /// What comes next. What cannot be given is passed over here, and counted as lost.
    fn next_item<'a>(&mut self, core: &'a Core, lane: &LaneName, unwanted: Option<NodeId>) -> Next<'a> {
        while let Some(range) = self.ranges.front() {
            let Range { origin, epoch, next, last, tells_epoch } = *range;
            if tells_epoch {
                return Next::Notice(Item::Epoch { origin, epoch });
            }
            if next > last {
                self.ranges.pop_front();
                continue;
            }
            let held = core.replay(lane, &Origin(*origin.as_bytes()), next).next();
            let held = held.filter(|held| held.epoch() == epoch && held.seq() <= last);
            return match held {
                Some(held) if held.seq() == next => Next::Message(origin, held),
                held => {
                    let to = held.map_or(last, |held| held.seq() - 1);
                    Next::Notice(Item::Gap { origin, epoch, from: next, to })
                }
            };
        }
        loop {
            if let Some((_, notice)) = self.notices.front().filter(|(before, _)| *before <= self.next) {
                return Next::Notice(notice.clone());
            }
            let Some(held) = core.arrived(lane, self.next) else {
                // Nothing is left of what came before the next notice.
                self.lose(self.tip.saturating_sub(self.next).min(self.outstanding));
                let Some((before, _)) = self.notices.front() else {
                    self.next = self.next.max(self.tip);
                    return Next::Nothing;
                };
                self.next = *before;
                continue;
            };
            if held.arrival > self.next {
                self.lose((held.arrival - self.next).min(self.outstanding));
                self.next = held.arrival;
                continue;
            }
            match held.origin.map(|origin| NodeId::from_bytes(origin.0)) {
                Some(origin) if Some(origin) == unwanted => self.next += 1,
                Some(origin) => return Next::Message(origin, held),
                // A forgotten origin: the message cannot say whose it is.
                None => {
                    self.lose(1.min(self.outstanding));
                    self.next += 1;
                }
            }
        }
    }

    fn lose(&mut self, items: u64) {
        self.lost += items;
        self.outstanding -= items;
    }

    fn noticed(&mut self, item: &Item) {
        match (self.ranges.front_mut(), item) {
            (Some(range), Item::Gap { to, .. }) => range.next = to + 1,
            (Some(range), Item::Epoch { .. }) => range.tells_epoch = false,
            _ => drop(self.notices.pop_front()),
        }
    }

    fn passed(&mut self, (arrival, seq): (u64, u64)) {
        match self.ranges.front_mut() {
            Some(range) => range.next = seq + 1,
            None => {
                self.next = arrival + 1;
                self.outstanding = self.outstanding.saturating_sub(1);
            }
        }
    }
}

fn message_of(origin: NodeId, held: HeldMessage<'_>) -> Message {
    let Held { epoch, seq, hops, payload } = held.read();
    Message { origin, epoch, seq, hops, payload }
}

#[cfg(test)]
mod tests;
