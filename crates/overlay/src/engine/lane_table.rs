//! The subscribers of an engine, by lane.

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
    is_gone: bool,
}

impl LaneTable {
    pub fn add(&mut self, lane: LaneName, hears_own: bool, subscriber: Box<dyn Subscriber>) {
        self.count += 1;
        self.lanes.entry(lane).or_default().push(Listener { hears_own, subscriber, is_gone: false });
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
        for listener in listeners.iter_mut().filter(|listener| !is_own || listener.hears_own) {
            listener.is_gone |= !listener.subscriber.give(lane, item);
        }
        if self.touched.last() != Some(lane) {
            self.touched.push(*lane);
        }
    }

    /// Wakes those who were given something, and forgets those who are gone.
    pub fn flush(&mut self) {
        for lane in self.touched.drain(..) {
            let Some(listeners) = self.lanes.get_mut(&lane) else { continue };
            let before = listeners.len();
            listeners.retain_mut(|listener| {
                listener.subscriber.flush();
                !listener.is_gone
            });
            self.count -= before - listeners.len();
            if listeners.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }
}
