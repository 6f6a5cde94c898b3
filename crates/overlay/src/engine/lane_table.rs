//! The subscribers of an engine, by lane.

use std::task::{Context, Poll};

use hashbrown::HashMap;
use ron_gossip::{Core, LaneName};
use ron_transport::NodeId;

use super::catch_up::{Awaited, CatchUp, Progress};
use crate::subscription::{Made, Subscriber, SubscriberSlot};
use crate::words::{Item, Message};

/// Who hears which lane.
#[derive(Default)]
pub(super) struct LaneTable {
    lanes: HashMap<LaneName, Vec<Listener>>,
    /// Lanes whose subscribers were given something since the last flush.
    touched: Vec<LaneName>,
    /// Lanes with a subscriber that is given what the ring held before what arrives.
    behind: Vec<LaneName>,
}

struct Listener {
    hears_own: bool,
    /// How far it has got, until it has everything that arrived.
    catching_up: Option<Box<CatchUp>>,
    /// Origins that it asked for from a number on, and that nothing came of yet.
    awaited: Vec<Awaited>,
    subscriber: Box<dyn Subscriber>,
    _slot: SubscriberSlot,
}

impl Listener {
    /// Tells it of a gap or an epoch, in its place in the order.
    fn tell(&mut self, lane: &LaneName, item: &Item, made: &mut Made) {
        match &mut self.catching_up {
            Some(catching_up) => catching_up.note(item.clone()),
            None => self.subscriber.give(lane, item, made),
        }
    }

    /// Whether the first message of an origin that it waited for is one before those it asked for: then it is of a life
    /// that the subscriber has to be told of.
    fn is_of_another_life(&mut self, origin: NodeId, seq: u64) -> bool {
        let at = self.awaited.iter().position(|(awaited, _)| *awaited == origin);
        at.is_some_and(|at| seq < self.awaited.swap_remove(at).1)
    }
}

impl LaneTable {
    pub fn add(
        &mut self,
        lane: LaneName,
        hears_own: bool,
        subscriber: Box<dyn Subscriber>,
        mut catching_up: Option<Box<CatchUp>>,
        slot: SubscriberSlot,
    ) {
        let awaited = catching_up.as_mut().map(|catching_up| catching_up.take_awaited()).unwrap_or_default();
        if catching_up.is_some() && !self.behind.contains(&lane) {
            self.behind.push(lane);
        }
        let listener = Listener { hears_own, catching_up, awaited, subscriber, _slot: slot };
        self.lanes.entry(lane).or_default().push(listener);
    }

    /// Goes on with the subscribers that are behind; ready if one of them got further. Otherwise each of them wakes the
    /// engine when it has room.
    pub fn poll_catch_up(&mut self, core: &Core, me: NodeId, context: &mut Context<'_>) -> Poll<()> {
        let mut outcome = Poll::Pending;
        let lanes = &mut self.lanes;
        self.behind.retain(|lane| {
            let mut is_behind = false;
            for listener in lanes.get_mut(lane).into_iter().flatten() {
                let Some(catching_up) = &mut listener.catching_up else { continue };
                let unwanted = (!listener.hears_own).then_some(me);
                match catching_up.advance(core, lane, unwanted, listener.subscriber.as_mut(), context) {
                    Progress::Done => {
                        listener.catching_up = None;
                        outcome = Poll::Ready(());
                        continue;
                    }
                    Progress::More | Progress::Some => outcome = Poll::Ready(()),
                    Progress::None => {}
                }
                is_behind = true;
            }
            is_behind
        });
        outcome
    }

    pub fn is_heard(&self, lane: &LaneName) -> bool {
        self.lanes.contains_key(lane)
    }

    /// Gives a message that arrived to everybody on the lane who wants it.
    pub fn give_message(&mut self, lane: &LaneName, message: Message, is_own: bool, arrival: u64) {
        let epoch = Item::Epoch { origin: message.origin, epoch: message.epoch };
        let (origin, seq) = (message.origin, message.seq);
        let item = Item::Message(message);
        self.give_each(lane, |listener, made| {
            let is_wanted = !is_own || listener.hears_own;
            if !listener.awaited.is_empty() && listener.is_of_another_life(origin, seq) {
                listener.tell(lane, &epoch, &mut Made::for_subscribers(1));
            }
            match &mut listener.catching_up {
                Some(catching_up) => catching_up.note_arrival(arrival, is_wanted),
                None if is_wanted => listener.subscriber.give(lane, &item, made),
                None => {}
            }
        });
    }

    /// Tells everybody on the lane of a gap or an epoch.
    pub fn give_notice(&mut self, lane: &LaneName, item: &Item) {
        self.give_each(lane, |listener, made| listener.tell(lane, item, made));
    }

    fn give_each(&mut self, lane: &LaneName, give: impl Fn(&mut Listener, &mut Made)) {
        let Some(listeners) = self.lanes.get_mut(lane) else { return };
        let mut made = Made::for_subscribers(listeners.len());
        listeners.iter_mut().for_each(|listener| give(listener, &mut made));
        if self.touched.last() != Some(lane) {
            self.touched.push(*lane);
        }
    }

    /// Wakes those who were given something.
    pub fn flush(&mut self) {
        for lane in self.touched.drain(..) {
            let listeners = self.lanes.get_mut(&lane).into_iter().flatten();
            listeners.for_each(|listener| listener.subscriber.flush());
        }
    }

    /// Forgets those who are gone, on quiet lanes too; the others can tell what they could not tell before.
    pub fn tidy(&mut self) {
        self.lanes.retain(|_, listeners| {
            listeners.retain(|listener| !listener.subscriber.is_gone());
            listeners.iter_mut().for_each(|listener| listener.subscriber.flush());
            !listeners.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::subscription::{SubscriberPool, inbox};

    #[test]
    fn who_left_is_forgotten_on_a_quiet_lane_too() {
        let (quiet, busy): (LaneName, LaneName) = ("quiet".parse().expect("a name"), "busy".parse().expect("a name"));
        let mut table = LaneTable::default();
        let mut add = |lane| {
            let (pool, (writer, reader)) = (Arc::<SubscriberPool>::default(), inbox(&Arc::default()));
            let slot = pool.take(&ron_auth::Subject::operator("test")).expect("a place");
            table.add(lane, true, Box::new(writer), None, slot);
            reader
        };
        let (left, stays) = (add(quiet), add(busy));
        drop(left);
        table.tidy();
        assert_eq!((table.is_heard(&quiet), table.is_heard(&busy)), (false, true));
        drop(stays);
        table.tidy();
        assert!(!table.is_heard(&busy));
    }
}
