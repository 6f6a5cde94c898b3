//! The queue `work_tx`: lookups that wait for a resolver, taken in turns by the addresses that asked for them.
//!
//! A lookup can hold a resolver for as long as a question may take, and whoever asks for what does not exist makes it
//! do so. In order of arrival, one address could hold all resolvers, and everybody else would wait behind it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use ron_types::Error;
use ron_types::limits::index::{ASKER_SHARE, ASKERS_RESERVE_SHARE};
use tokio::sync::Notify;

/// Who has something looked up: an address, or for IPv6 its network; none for the node itself and its operator.
pub(crate) type Asker = Option<IpAddr>;

/// What waits, by who asked, and how much of each is under way.
pub(crate) struct WorkQueue<T> {
    name: &'static str,
    capacity: usize,
    resolvers: usize,
    state: Mutex<State<T>>,
    /// Items that were refused.
    busy: Counter,
    /// Wakes a resolver. One permit may stand for several items, so who takes one passes it on.
    arrived: Notify,
}

struct State<T> {
    askers: HashMap<Asker, Share<T>>,
    /// Askers with something that waits, the next to be served first.
    turns: VecDeque<Asker>,
    waiting: usize,
    under_way: usize,
}

/// What one asker has of the queue and of the resolvers; one that has nothing is not in the table.
struct Share<T> {
    waiting: VecDeque<T>,
    under_way: usize,
}

/// A resolver's work for an asker. Dropping it says that it is done.
pub(crate) struct Turn<T> {
    queue: Arc<WorkQueue<T>>,
    asker: Asker,
}

/// Whether an asker may have one more of `max` places: a part is for every asker for certain, and so long as more than
/// the reserve is free anybody may have more. One that is alone thus has most of them, and who comes after it finds
/// some free at once, not when the first is done.
fn may_have(own: usize, all: usize, max: usize) -> bool {
    all < max && (own < (max / ASKER_SHARE).max(1) || max - all > max / ASKERS_RESERVE_SHARE)
}

impl<T> WorkQueue<T> {
    /// An empty queue for so many resolvers; `busy` counts what it refuses.
    pub fn new(name: &'static str, capacity: usize, resolvers: usize, busy: Counter) -> Arc<Self> {
        let state = State { askers: HashMap::new(), turns: VecDeque::new(), waiting: 0, under_way: 0 };
        Arc::new(WorkQueue { name, capacity, resolvers, state: Mutex::new(state), busy, arrived: Notify::new() })
    }

    /// Puts an item in; Busy if the queue is full, or all of it that this asker may have.
    pub fn offer(&self, asker: Asker, item: T) -> Result<(), (T, Error)> {
        {
            let mut state = self.lock();
            let own = state.askers.get(&asker).map_or(0, |share| share.waiting.len());
            let has_room = match asker {
                Some(_) => may_have(own, state.waiting, self.capacity),
                None => state.waiting < self.capacity,
            };
            if !has_room {
                self.busy.inc();
                return Err((item, Error::busy(format_args!("queue {}", self.name))));
            }
            state.put(asker, item);
        }
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for the next item that may be worked on. Cancel-safe.
    pub async fn take(self: &Arc<Self>) -> (T, Turn<T>) {
        loop {
            if let Some(taken) = self.try_take(false) {
                return taken;
            }
            self.arrived.notified().await;
        }
    }

    /// The next item, if there is one that may be worked on; of a queue that is emptied for good any item may.
    pub fn try_take(self: &Arc<Self>, is_last: bool) -> Option<(T, Turn<T>)> {
        let (taken, has_more) = {
            let mut state = self.lock();
            (state.take(self.resolvers, is_last), state.waiting > 0)
        };
        let (asker, item) = taken?;
        if has_more {
            self.arrived.notify_one();
        }
        Some((item, Turn { queue: Arc::clone(self), asker }))
    }

    /// Somebody else wants an item that may wait: it waits on among theirs if they are served sooner, so that nobody
    /// waits for the turn of whoever asked first.
    pub fn share(&self, asker: Asker, is_it: impl Fn(&T) -> bool) {
        let mut state = self.lock();
        if state.turns.iter().all(|other| *other == asker) {
            return;
        }
        let load = |share: &Share<T>| (share.under_way, share.waiting.len());
        let own = state.askers.get(&asker).map_or((0, 0), load);
        let is_sooner = |share: &Share<T>| asker.is_none() || (own.0 <= share.under_way && own.1 < share.waiting.len());
        let mut held = state.askers.iter().filter(|(other, share)| **other != asker && is_sooner(share));
        let found = held.find_map(|(other, share)| Some((*other, share.waiting.iter().position(&is_it)?)));
        let Some((other, place)) = found else { return };
        if let Some(item) = state.remove(other, place) {
            state.put(asker, item);
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Number of items that wait.
    pub fn len(&self) -> usize {
        self.lock().waiting
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn put(&mut self, asker: Asker, item: T) {
        let share = self.askers.entry(asker).or_insert_with(|| Share { waiting: VecDeque::new(), under_way: 0 });
        if share.waiting.is_empty() {
            self.turns.push_back(asker);
        }
        share.waiting.push_back(item);
        self.waiting += 1;
    }

    /// The oldest item of whoever has the fewest resolvers and may have one more; among equals, in turn.
    fn take(&mut self, resolvers: usize, is_last: bool) -> Option<(Asker, T)> {
        let under_way = |asker: &Asker| self.askers.get(asker).map_or(0, |share| share.under_way);
        let may_start =
            |asker: &Asker| is_last || asker.is_none() || may_have(under_way(asker), self.under_way, resolvers);
        let in_turn = self.turns.iter().enumerate().filter(|(_, asker)| may_start(asker));
        let (place, _) = in_turn.min_by_key(|(_, asker)| under_way(asker))?;
        let asker = self.turns.remove(place)?;
        let share = self.askers.get_mut(&asker)?;
        let item = share.waiting.pop_front()?;
        share.under_way += 1;
        if !share.waiting.is_empty() {
            self.turns.push_back(asker);
        }
        self.waiting -= 1;
        self.under_way += 1;
        Some((asker, item))
    }

    /// Takes back an item that waits.
    fn remove(&mut self, asker: Asker, place: usize) -> Option<T> {
        let share = self.askers.get_mut(&asker)?;
        let item = share.waiting.remove(place)?;
        self.waiting -= 1;
        if share.waiting.is_empty() {
            self.turns.retain(|other| *other != asker);
        }
        self.forget_idle(asker);
        Some(item)
    }

    fn forget_idle(&mut self, asker: Asker) {
        if self.askers.get(&asker).is_some_and(|share| share.waiting.is_empty() && share.under_way == 0) {
            self.askers.remove(&asker);
        }
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        let has_more = {
            let mut state = self.queue.lock();
            state.under_way -= 1;
            if let Some(share) = state.askers.get_mut(&self.asker) {
                share.under_way -= 1;
            }
            state.forget_idle(self.asker);
            state.waiting > 0
        };
        // What this asker has waiting may be worked on now, and whoever did this may never come back.
        if has_more {
            self.queue.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 512;
    const RESOLVERS: usize = 64;

    fn asker(last: u8) -> Asker {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn queue() -> Arc<WorkQueue<u32>> {
        WorkQueue::new("work", CAPACITY, RESOLVERS, Counter::default())
    }

    fn fill(queue: &WorkQueue<u32>, asker: Asker) -> usize {
        (0..CAPACITY as u32 + 1).take_while(|number| queue.offer(asker, *number).is_ok()).count()
    }

    fn take_all(queue: &Arc<WorkQueue<u32>>) -> Vec<(u32, Turn<u32>)> {
        std::iter::from_fn(|| queue.try_take(false)).collect()
    }

    #[test]
    fn who_is_alone_has_most_and_leaves_room_for_others() {
        let queue = queue();
        assert_eq!(fill(&queue, asker(1)), 384);
        assert_eq!(fill(&queue, asker(2)), 64);
        assert_eq!(fill(&queue, asker(3)), 64, "and then it is full");
        assert_eq!((queue.len(), fill(&queue, None)), (CAPACITY, 0));
        assert_eq!(take_all(&queue).len(), 48, "three have more than their part, and leave a quarter to others");
        let alone = WorkQueue::new("work", CAPACITY, RESOLVERS, Counter::default());
        fill(&alone, asker(1));
        assert_eq!(take_all(&alone).len(), 48, "and so does one alone");
    }

    #[test]
    fn a_newcomer_is_served_at_once_and_then_in_turn() {
        let queue = queue();
        fill(&queue, asker(1));
        let mut held = take_all(&queue);
        assert!(queue.offer(asker(2), 1_000).is_ok() && queue.offer(asker(3), 1_001).is_ok());
        let newcomers: Vec<u32> = take_all(&queue).iter().map(|(number, _)| *number).collect();
        assert_eq!(newcomers, [1_000, 1_001]);
        // When one is done, the same may have the next.
        drop(held.pop());
        assert_eq!(take_all(&queue).len(), 1);
    }

    #[test]
    fn one_or_few_resolvers_serve_everybody() {
        for resolvers in 1..=8 {
            let queue = WorkQueue::new("work", CAPACITY, resolvers, Counter::default());
            for (place, number) in [(1, 10), (1, 11), (2, 20), (2, 21)] {
                assert!(queue.offer(asker(place), number).is_ok());
            }
            let mut order = Vec::new();
            while let Some((number, _)) = queue.try_take(false) {
                order.push(number);
            }
            assert_eq!(order, [10, 20, 11, 21]);
            assert!(queue.lock().askers.is_empty() && queue.lock().turns.is_empty(), "nothing is left behind");
        }
    }

    #[test]
    fn what_another_asker_wants_too_does_not_wait_behind_the_first() {
        let queue = queue();
        fill(&queue, asker(1));
        let _held = take_all(&queue);
        queue.share(asker(1), |number| *number == 300);
        assert!(queue.try_take(false).is_none(), "who has its share gains nothing by asking twice");
        queue.share(asker(2), |number| *number == 300);
        assert_eq!(queue.try_take(false).map(|(number, _)| number), Some(300));
        // Whoever has many waiting cannot draw others' work behind them.
        assert!(queue.offer(asker(3), 2_000).is_ok());
        queue.share(asker(1), |number| *number == 2_000);
        assert_eq!(queue.try_take(false).map(|(number, _)| number), Some(2_000));
    }

    #[test]
    fn all_that_waits_is_taken_at_the_end() {
        let queue = queue();
        let count = fill(&queue, asker(1));
        assert_eq!(std::iter::from_fn(|| queue.try_take(true)).count(), count);
        assert_eq!(queue.len(), 0);
    }

    #[tokio::test]
    async fn two_items_wake_two_resolvers() {
        let queue = queue();
        let offers = async { assert!(queue.offer(asker(1), 1).is_ok() && queue.offer(asker(1), 2).is_ok()) };
        let ((one, _), (other, _), ()) = tokio::join!(queue.take(), queue.take(), offers);
        assert_eq!(one + other, 3);
    }
}
