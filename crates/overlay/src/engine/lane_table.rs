//! The subscribers of an engine, by lane.

use std::cell::OnceCell;
use std::collections::HashMap;

use ron_gossip::LaneName;

use crate::subscription::Subscriber;
use crate::words::Item;

/// Who hears which lane.
#[derive(Default)]
pub(super) struct LaneTable {
    lanes: HashMap<LaneName, Vec<Listener>>,
    /// Lanes whose subscribers were given something since the last flush.
    touched: Vec<LaneName>,
    count: usize,
}

struct Listener {
    hears_own: bool,
    subscriber: Box<dyn Subscriber>,
}

impl LaneTable {
    pub fn add(&mut self, lane: LaneName, hears_own: bool, subscriber: Box<dyn Subscriber>) {
        self.count += 1;
        self.lanes.entry(lane).or_default().push(Listener { hears_own, subscriber });
    }

    pub fn is_heard(&self, lane: &LaneName) -> bool {
        self.lanes.contains_key(lane)
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives an item of this origin to everybody on the lane who wants it.
    pub fn give(&mut self, lane: &LaneName, item: &Item, is_own: bool) {
        let Some(listeners) = self.lanes.get_mut(lane) else { return };
        let made = OnceCell::new();
        for listener in listeners.iter_mut().filter(|listener| !is_own || listener.hears_own) {
            listener.subscriber.give(lane, item, &made);
        }
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

    /// Forgets those who are gone, on quiet lanes too.
    pub fn tidy(&mut self) {
        self.lanes.retain(|_, listeners| {
            listeners.retain(|listener| !listener.subscriber.is_gone());
            !listeners.is_empty()
        });
        self.count = self.lanes.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::inbox;

    #[test]
    fn who_left_is_forgotten_on_a_quiet_lane_too() {
        let (quiet, busy): (LaneName, LaneName) = ("quiet".parse().expect("a name"), "busy".parse().expect("a name"));
        let mut table = LaneTable::default();
        let mut add = |lane| {
            let (writer, reader) = inbox();
            table.add(lane, true, Box::new(writer));
            reader
        };
        let (left, stays) = (add(quiet), add(busy));
        drop(left);
        table.tidy();
        assert_eq!((table.count(), table.is_heard(&quiet), table.is_heard(&busy)), (1, false, true));
        drop(stays);
        table.tidy();
        assert_eq!(table.count(), 0);
    }
}
