//! The N-to-M channel beneath queues: a lock-free ring, and word to those who wait for it.
//!
//! Made of the two parts that async-channel is made of, without what no queue here needs: word to streams, and word of
//! room where nobody ever waits for room. Each is a full fence for every item.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use concurrent_queue::{ConcurrentQueue, ForcePushError, PopError, PushError};
use event_listener::{Event, IntoNotification as _, listener};

/// The sending end. When the last one is dropped, the channel is closed.
pub(super) struct Sender<T>(Arc<Channel<T>>);

/// The receiving end; each item goes to one of them. When the last one is dropped, the channel is closed.
pub(super) struct Receiver<T>(Arc<Channel<T>>);

struct Channel<T> {
    ring: ConcurrentQueue<T>,
    arrived: Event,
    room_made: Event,
    /// Senders may wait for room, so they must be told of it.
    awaits_room: bool,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

/// A channel for so many items. Only with `awaits_room` may senders wait.
#[expect(clippy::disallowed_methods, reason = "beneath the replacement the ban names")]
pub(super) fn channel<T>(capacity: usize, awaits_room: bool) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        ring: ConcurrentQueue::bounded(capacity),
        arrived: Event::new(),
        room_made: Event::new(),
        awaits_room,
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> Sender<T> {
    /// Puts the item in if there is room.
    #[inline]
    pub fn try_send(&self, item: T) -> Result<(), PushError<T>> {
        self.0.ring.push(item)?;
        self.0.arrived.notify(1.additional());
        Ok(())
    }

    /// Puts the item in, in place of the oldest if there is no room.
    pub fn force_send(&self, item: T) -> Result<Option<T>, ForcePushError<T>> {
        let oldest = self.0.ring.force_push(item)?;
        self.0.arrived.notify(1.additional());
        Ok(oldest)
    }

    /// Puts the item in as soon as there is room; gives it back if the channel is closed. Cancel-safe: an item that was
    /// not put in goes with the future.
    pub async fn send(&self, mut item: T) -> Result<(), T> {
        debug_assert!(self.0.awaits_room, "nobody would tell of room");
        loop {
            listener!(self.0.room_made => room_made);
            match self.try_send(item) {
                Ok(()) => return Ok(()),
                Err(PushError::Closed(refused)) => return Err(refused),
                Err(PushError::Full(refused)) => item = refused,
            }
            room_made.await;
        }
    }

    /// Number of items waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.ring.len()
    }

    /// Lets nothing more in; what is waiting can still be received.
    pub fn close(&self) {
        self.0.close();
    }
}

impl<T> Receiver<T> {
    /// The next item, if one is waiting.
    #[inline]
    pub fn try_recv(&self) -> Option<T> {
        self.0.pop().ok()
    }

    /// The next item; none once the channel is closed and empty. Cancel-safe: word that was meant for a future that is
    /// dropped goes to another one.
    #[inline]
    pub async fn recv(&self) -> Option<T> {
        loop {
            match self.0.pop() {
                Err(PopError::Empty) => {}
                item_or_end => return item_or_end.ok(),
            }
            listener!(self.0.arrived => arrived);
            // Once more: what came before this one listened was told to nobody.
            match self.0.pop() {
                Err(PopError::Empty) => arrived.await,
                item_or_end => return item_or_end.ok(),
            }
        }
    }

    /// Number of items waiting.
    pub fn len(&self) -> usize {
        self.0.ring.len()
    }
}

impl<T> Channel<T> {
    #[inline]
    fn pop(&self) -> Result<T, PopError> {
        let item = self.ring.pop()?;
        if self.awaits_room {
            self.room_made.notify(1.additional());
        }
        Ok(item)
    }

    fn close(&self) {
        if self.ring.close() {
            self.arrived.notify(usize::MAX);
            self.room_made.notify(usize::MAX);
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.0.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    /// No test waits longer for what must come.
    async fn soon<F: Future>(future: F) -> F::Output {
        crate::Deadline::after(Duration::from_secs(60)).run("channel", future).await.expect("nobody was told")
    }

    #[tokio::test]
    async fn items_come_in_order_and_a_closed_channel_still_gives_what_it_has() {
        let (sender, receiver) = channel(2, false);
        assert_eq!((sender.try_send(1), sender.try_send(2)), (Ok(()), Ok(())));
        assert_eq!(sender.try_send(3), Err(PushError::Full(3)));
        assert_eq!(sender.force_send(3), Ok(Some(1)));
        assert_eq!((sender.len(), receiver.len()), (2, 2));
        sender.close();
        assert_eq!(sender.try_send(4), Err(PushError::Closed(4)));
        assert_eq!(sender.force_send(4).map_err(|refused| refused.0), Err(4));
        assert_eq!((receiver.recv().await, receiver.try_recv()), (Some(2), Some(3)));
        assert_eq!((receiver.recv().await, receiver.try_recv()), (None, None));
    }

    #[tokio::test]
    async fn whoever_waits_is_told_of_an_item_of_room_and_of_the_end() {
        let (sender, receiver) = channel(1, true);
        let (_, first) = tokio::join!(sender.send(1), receiver.recv());
        assert_eq!(first, Some(1));
        assert_eq!(sender.try_send(2), Ok(()));
        let (sent, second) = soon(async { tokio::join!(sender.send(3), receiver.recv()) }).await;
        assert_eq!((sent, second), (Ok(()), Some(2)));
        let refused = soon(async {
            let waiting = sender.send(4);
            let close = async { sender.close() };
            tokio::join!(waiting, close).0
        });
        assert_eq!(refused.await, Err(4));
        assert_eq!(receiver.recv().await, Some(3));
        let (sender, receiver) = channel::<u8>(1, false);
        let ended = soon(async { tokio::join!(receiver.recv(), async { drop(sender) }).0 });
        assert_eq!(ended.await, None, "the last sender has gone");
        let (sender, receiver) = channel::<u8>(1, true);
        assert_eq!(sender.try_send(1), Ok(()));
        let refused = soon(async { tokio::join!(sender.send(2), async { drop(receiver) }).0 });
        assert_eq!(refused.await, Err(2), "the last receiver has gone");
    }

    /// A word to a future that is dropped must reach another: otherwise the one item would wait beside a receiver.
    #[tokio::test]
    async fn a_word_to_somebody_who_has_gone_reaches_the_next() {
        for gone in 0..=2 {
            let (sender, receiver) = channel(4, false);
            let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(receiver.recv())).collect();
            for future in &mut waiting {
                assert!(futures_util::poll!(future).is_pending());
            }
            assert_eq!(sender.try_send(7), Ok(()));
            // The first in line was told, and goes away without looking; then others do, who were not.
            waiting.drain(..gone);
            let last = waiting.pop().expect("one is left");
            drop(waiting);
            assert_eq!(soon(last).await, Some(7));
        }
    }

    /// Outside, whether it goes on; inside, what was there.
    async fn one_look(receiver: &Receiver<u64>) -> Option<Option<u64>> {
        let looked = futures_util::poll!(std::pin::pin!(receiver.recv()));
        if looked.is_pending() {
            tokio::task::yield_now().await;
        }
        match looked {
            Poll::Ready(item) => item.map(Some),
            Poll::Pending => Some(None),
        }
    }

    /// Threads that send, wait, give up and come back: every item arrives once, and everybody leaves in the end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nothing_is_lost_or_doubled_under_many() {
        const ITEMS: u64 = 20_000;
        for (capacity, awaits_room) in [(1, true), (3, true), (64, true), (2, false)] {
            let (sender, receiver) = channel(capacity, awaits_room);
            let mut senders = JoinSet::new();
            for side in 0..4 {
                let sender = sender.clone();
                senders.spawn(async move {
                    for number in 0..ITEMS / 4 {
                        let item = side * ITEMS + number;
                        if awaits_room {
                            sender.send(item).await.expect("open");
                        } else {
                            while sender.try_send(item).is_err() {
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                });
            }
            drop(sender);
            let mut receivers = JoinSet::new();
            for patient in [true, false, true, false] {
                let receiver = receiver.clone();
                receivers.spawn(async move {
                    let mut taken = Vec::new();
                    loop {
                        // Some give up after one look and come back.
                        let looked = if patient { receiver.recv().await.map(Some) } else { one_look(&receiver).await };
                        match looked {
                            Some(item) => taken.extend(item),
                            None => return taken,
                        }
                    }
                });
            }
            drop(receiver);
            soon(senders.join_all()).await;
            let taken: Vec<u64> = soon(receivers.join_all()).await.into_iter().flatten().collect();
            let distinct: BTreeSet<u64> = taken.iter().copied().collect();
            assert_eq!((taken.len() as u64, distinct.len() as u64), (ITEMS, ITEMS), "capacity {capacity}");
        }
    }
}
