//! Subscribers: what an engine gives items to, and the bounded inbox most of them are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ron_auth::Subject;
use ron_gossip::LaneName;
use ron_kernel::share::{Bound, SubjectShare, SubjectShares};
use ron_types::Error;
use ron_types::limits::overlay::{
    SUBSCRIBER_BYTES_MAX, SUBSCRIBER_ITEMS_MAX, SUBSCRIBERS_BYTES_MAX, SUBSCRIPTIONS_MAX,
};
use tokio::sync::Notify;

use crate::words::Item;

/// Somebody who hears a lane, as its engine sees them. It never makes the engine wait.
pub trait Subscriber: Send {
    /// Gives an item. What every subscriber of a kind makes of it alike, such as its encoding, is made once and kept in
    /// `made`.
    fn give(&mut self, lane: &LaneName, item: &Item, made: &mut Made);

    /// Whether so many bytes of replayed payload can be given without loss, with room to spare for what arrives next.
    /// Where not, the context's task is woken when that may have changed; nobody is woken for a listener that is gone.
    fn poll_room(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<()>;

    /// Whether nobody listens any more.
    fn is_gone(&self) -> bool;

    /// Says that no more items come for the moment: the time to wake the other side, once for many items.
    fn flush(&mut self);
}

/// What subscribers of a kind make of one item alike.
#[derive(Debug)]
pub struct Made {
    bytes: Option<Bytes>,
    is_shared: bool,
}

impl Made {
    /// For an item that goes to so many subscribers.
    pub fn for_subscribers(count: usize) -> Made {
        Made { bytes: None, is_shared: count > 1 }
    }

    /// What was made of the item, or is made now. Nothing is kept for a subscriber who is alone: to share bytes is one
    /// more allocation, which the thread that sends them then has to free.
    pub fn get(&mut self, make: impl FnOnce() -> Bytes) -> Bytes {
        if self.is_shared { self.bytes.get_or_insert_with(make).clone() } else { make() }
    }
}

/// The reading end of a subscription. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    inbox: Arc<Inbox>,
}

/// The engine's end.
#[derive(Debug)]
pub(crate) struct InboxWriter {
    inbox: Arc<Inbox>,
}

/// The subscriptions of a node, which subjects share.
const SUBSCRIPTIONS: Bound = Bound { what: "subscriptions", help: "end some of them" };

/// The subscriptions of a node: whose they are, how many there are, and what waits for all of them.
#[derive(Debug)]
pub(crate) struct SubscriberPool {
    places: Arc<SubjectShares>,
    /// As many as there are places taken, without the lock: asked for with every item.
    open: AtomicUsize,
    bytes: AtomicUsize,
}

/// A place among the subscriptions of the node, given back by being dropped.
#[derive(Debug)]
pub(crate) struct SubscriberSlot {
    pool: Arc<SubscriberPool>,
    _place: SubjectShare,
}

impl Default for SubscriberPool {
    fn default() -> Self {
        let places = SubjectShares::new(SUBSCRIPTIONS, SUBSCRIPTIONS_MAX);
        SubscriberPool { places, open: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }
}

impl SubscriberPool {
    /// A place for one more subscription of a subject; Busy if there are as many as there may be, or as it may have.
    pub(crate) fn take(self: &Arc<Self>, by: &Subject) -> Result<SubscriberSlot, Error> {
        let place = self.places.take(&by.name, by.is_operator)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(SubscriberSlot { pool: Arc::clone(self), _place: place })
    }

    fn is_over(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > SUBSCRIBERS_BYTES_MAX
    }

    /// What a subscriber may have whatever the others have.
    fn share(&self) -> usize {
        SUBSCRIBERS_BYTES_MAX / self.open.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for SubscriberSlot {
    fn drop(&mut self) {
        self.pool.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Inbox {
    pool: Arc<SubscriberPool>,
    waiting: Mutex<Waiting>,
    /// Wakes the reader; one reader, so one permit is enough.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    items: VecDeque<Item>,
    /// Bytes of `items`, with what holds them.
    bytes: usize,
    /// Items that made room since the reader was last told.
    dropped: u64,
    /// Set when either end is gone.
    is_closed: bool,
    /// The engine, while it waits for room.
    engine: Option<Waker>,
}

/// The two ends of a bounded inbox: when it is full the oldest items make room, and the reader is told how many.
pub(crate) fn inbox(pool: &Arc<SubscriberPool>) -> (InboxWriter, Subscription) {
    let inbox = Arc::new(Inbox { pool: Arc::clone(pool), waiting: Mutex::default(), arrived: Notify::new() });
    (InboxWriter { inbox: Arc::clone(&inbox) }, Subscription { inbox })
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn put(&mut self, item: &Item, pool: &SubscriberPool) {
        self.bytes += held_bytes(item);
        pool.bytes.fetch_add(held_bytes(item), Ordering::Relaxed);
        self.items.push_back(item.clone());
        let is_full = |waiting: &Waiting| {
            let is_over_own = waiting.items.len() > SUBSCRIBER_ITEMS_MAX || waiting.bytes > SUBSCRIBER_BYTES_MAX;
            is_over_own || (pool.is_over() && waiting.bytes > pool.share())
        };
        while is_full(self) && self.pop(pool).is_some() {
            self.dropped += 1;
        }
    }

    fn pop(&mut self, pool: &SubscriberPool) -> Option<Item> {
        let oldest = self.items.pop_front()?;
        self.bytes -= held_bytes(&oldest);
        pool.bytes.fetch_sub(held_bytes(&oldest), Ordering::Relaxed);
        Some(oldest)
    }

    /// Half of the bounds: the other half is for what arrives while the reader takes what is replayed.
    fn has_room(&self, bytes: usize, pool: &SubscriberPool) -> bool {
        let fits = self.items.len() < SUBSCRIBER_ITEMS_MAX / 2 && self.bytes + bytes <= SUBSCRIBER_BYTES_MAX / 2;
        self.items.is_empty() || (fits && !pool.is_over())
    }

    /// Whom to wake after an item was taken: the engine, once a quarter or less is in use, and not for each item.
    fn wakes_engine(&mut self) -> Option<Waker> {
        let is_low = self.items.len() <= SUBSCRIBER_ITEMS_MAX / 4 && self.bytes <= SUBSCRIBER_BYTES_MAX / 4;
        self.engine.take_if(|_| is_low)
    }

    /// Loss is told where it happened: before the oldest item that is left.
    fn take(&mut self, pool: &SubscriberPool) -> Option<Item> {
        match std::mem::take(&mut self.dropped) {
            0 => self.pop(pool),
            dropped => Some(Item::Lagged { dropped }),
        }
    }
}

/// What an item costs: its bytes, and its place in a buffer that grows by doubling.
fn held_bytes(item: &Item) -> usize {
    let payload = match item {
        Item::Message(message) => message.payload.len(),
        Item::Gap { .. } | Item::Epoch { .. } | Item::Lagged { .. } => 0,
    };
    payload + 2 * size_of::<Item>()
}

impl Subscription {
    /// The next item; none once the node ends the subscription. Cancel-safe.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.try_next() {
                return Some(item);
            }
            if self.inbox.lock().is_closed {
                // What was given before the end, and after the look.
                return self.try_next();
            }
            self.inbox.arrived.notified().await;
        }
    }

    /// The next item if there is one now.
    pub fn try_next(&mut self) -> Option<Item> {
        let (item, engine) = {
            let mut waiting = self.inbox.lock();
            (waiting.take(&self.inbox.pool), waiting.wakes_engine())
        };
        engine.into_iter().for_each(Waker::wake);
        item
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut waiting = self.inbox.lock();
        waiting.is_closed = true;
        while waiting.pop(&self.inbox.pool).is_some() {}
    }
}

impl Subscriber for InboxWriter {
    fn give(&mut self, _lane: &LaneName, item: &Item, _made: &mut Made) {
        let mut waiting = self.inbox.lock();
        if !waiting.is_closed {
            waiting.put(item, &self.inbox.pool);
        }
    }

    fn poll_room(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<()> {
        let mut waiting = self.inbox.lock();
        if waiting.is_closed {
            return Poll::Pending;
        }
        if waiting.has_room(bytes, &self.inbox.pool) {
            return Poll::Ready(());
        }
        waiting.engine = Some(context.waker().clone());
        Poll::Pending
    }

    fn is_gone(&self) -> bool {
        self.inbox.lock().is_closed
    }

    fn flush(&mut self) {
        self.inbox.arrived.notify_one();
    }
}

impl Drop for InboxWriter {
    fn drop(&mut self) {
        self.inbox.lock().is_closed = true;
        self.inbox.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use ron_transport::NodeKey;
    use ron_types::Kind;

    use super::*;
    use crate::words::Message;

    fn message(seq: u64, bytes: usize) -> Item {
        Item::Message(Message {
            origin: NodeKey::generate().expect("randomness").node_id(),
            epoch: 1,
            seq,
            hops: 0,
            payload: Bytes::from(vec![0; bytes]),
        })
    }

    fn lane() -> LaneName {
        "a".parse().expect("a name")
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_and_is_told_before_the_rest() {
        let (mut writer, mut reader) = inbox(&Arc::default());
        for seq in 1..=SUBSCRIBER_ITEMS_MAX as u64 + 3 {
            writer.give(&lane(), &message(seq, 1), &mut Made::for_subscribers(1));
        }
        writer.flush();
        assert_eq!(reader.next().await, Some(Item::Lagged { dropped: 3 }));
        let Some(Item::Message(first)) = reader.next().await else { panic!("a message") };
        assert_eq!(first.seq, 4);
    }

    #[tokio::test]
    async fn bytes_are_bounded_as_well() {
        let (mut writer, mut reader) = inbox(&Arc::default());
        for seq in 1..=5 {
            writer.give(&lane(), &message(seq, SUBSCRIBER_BYTES_MAX / 4 - 1024), &mut Made::for_subscribers(1));
        }
        assert_eq!(reader.next().await, Some(Item::Lagged { dropped: 1 }));
    }

    #[tokio::test]
    async fn subscribers_of_a_node_share_its_memory() {
        let pool = Arc::<SubscriberPool>::default();
        let count = SUBSCRIBERS_BYTES_MAX / SUBSCRIBER_BYTES_MAX;
        let operator = Subject::operator("operator");
        let slots: Vec<_> = (0..=2 * count).map(|_| pool.take(&operator).expect("a place")).collect();
        let mut ends: Vec<_> = slots.iter().map(|_| inbox(&pool)).collect();
        let half = SUBSCRIBER_BYTES_MAX / 4 - 1024;
        for seq in 1..=3 {
            ends.iter_mut()
                .for_each(|(writer, _)| writer.give(&lane(), &message(seq, half), &mut Made::for_subscribers(1)));
        }
        assert!(pool.bytes.load(Ordering::Relaxed) <= SUBSCRIBERS_BYTES_MAX, "the last made room");
        let (_, last) = ends.last_mut().expect("there is one");
        assert!(matches!(last.next().await, Some(Item::Lagged { .. })), "its oldest went");
        drop(ends);
        assert_eq!(pool.bytes.load(Ordering::Relaxed), 0);
        let mut more = Vec::new();
        while let Ok(slot) = pool.take(&operator) {
            more.push(slot);
        }
        assert_eq!(slots.len() + more.len(), SUBSCRIPTIONS_MAX, "of the node, whatever its engines");
    }

    #[test]
    fn a_subject_cannot_have_all_subscriptions_of_the_node() {
        let pool = Arc::<SubscriberPool>::default();
        let (greedy, other) = (Subject::named("greedy"), Subject::named("other"));
        let mut slots = Vec::new();
        let refused = loop {
            match pool.take(&greedy) {
                Ok(slot) => slots.push(slot),
                Err(refused) => break refused,
            }
        };
        assert_eq!((slots.len(), refused.kind), (SUBSCRIPTIONS_MAX / 2, Kind::Busy));
        assert!(refused.detail.starts_with("greedy has 2048 of the 4096 subscriptions"), "{refused}");
        assert!(pool.take(&other).is_ok(), "there is one for somebody else");
        slots.pop();
        assert!(pool.take(&greedy).is_ok(), "what was given back is there again");
        drop(slots);
        assert_eq!((pool.open.load(Ordering::Relaxed), pool.places.total()), (0, 0));
    }

    #[tokio::test]
    async fn each_end_sees_the_other_go() {
        let (writer, reader) = inbox(&Arc::default());
        assert!(!writer.is_gone());
        drop(reader);
        assert!(writer.is_gone());
        let (mut writer, mut reader) = inbox(&Arc::default());
        writer.give(&lane(), &message(1, 1), &mut Made::for_subscribers(1));
        drop(writer);
        assert!(reader.next().await.is_some(), "what was given before the end is still read");
        assert_eq!(reader.next().await, None);
    }
}
