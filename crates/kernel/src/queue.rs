//! Bounded queues made from a spec: typed Busy, count and byte bounds, depth read from the channel itself.

mod channel;

use std::sync::Arc;
use std::time::Duration;

use concurrent_queue::PushError;
use prometheus_client::metrics::counter::Counter;
use ron_cells::{Budget, Monotone, Share};
use ron_types::{Error, Kind};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};

use crate::deadline::Deadline;
use crate::metrics::Metrics;
use crate::retry;
use crate::spec::{Overflow, QueueKind, QueueSpec};

/// Interval at which a sender that waits for bytes tries again.
const BYTES_ASKED_EVERY: Duration = Duration::from_millis(2);

/// Item of a queue.
pub trait Payload: Send + 'static {
    /// Bytes it holds on to; zero for items whose count is bound enough. Must stay the same while the item waits.
    fn bytes(&self) -> usize {
        0
    }
}

/// The sending half. Clones share the queue.
pub struct QueueSender<T> {
    side: SendSide<T>,
    shared: Arc<Shared>,
}

/// The receiving half. It survives its task: a restarted consumer goes on with what is waiting.
pub struct QueueReceiver<T> {
    side: ReceiveSide<T>,
    shared: Arc<Shared>,
    /// Bytes of items taken out, not yet given back to the budget: nothing while it waits, little while it works.
    owed: usize,
}

/// View of a queue from outside, for topology, metrics and pressure.
#[derive(Clone)]
pub struct QueueProbe {
    shared: Arc<Shared>,
    depth: Arc<dyn Fn() -> usize + Send + Sync>,
}

struct Shared {
    spec: &'static QueueSpec,
    capacity: usize,
    bytes: Option<ByteBound>,
    high_water: Monotone,
    busy: Counter,
    dropped: Counter,
}

/// The byte bound of a queue. Small items are not counted: the bound on items holds them to an eighth of the bytes
/// more, and sparing them two atomic operations each is worth that.
struct ByteBound {
    budget: Budget,
    small: usize,
    /// Maximum bytes a busy receiver may owe the budget before it pays for several items at once.
    owed_max: usize,
}

enum SendSide<T> {
    Many(channel::Sender<T>),
    /// The same channel, where the oldest item makes room for a new one.
    Evicting(channel::Sender<T>),
    One(mpsc::Sender<T>),
}

enum ReceiveSide<T> {
    Many(channel::Receiver<T>),
    One(OneConsumer<T>),
}

/// Exactly one consumer holds the channel: it takes it with its first receive and hands it on when it is dropped.
struct OneConsumer<T> {
    channel: Arc<Mutex<mpsc::Receiver<T>>>,
    held: Option<OwnedMutexGuard<mpsc::Receiver<T>>>,
}

/// Makes a queue of the spec's kind and policy. Only the kernel builder calls this, so that every queue is registered.
#[expect(clippy::disallowed_methods, reason = "this is the replacement the ban names")]
pub(crate) fn queue<T: Payload>(
    spec: &'static QueueSpec,
    capacity: usize,
    bytes_max: Option<usize>,
    metrics: &Metrics,
) -> (QueueSender<T>, QueueReceiver<T>, QueueProbe) {
    let shared = Arc::new(Shared {
        spec,
        capacity,
        bytes: bytes_max.map(|bytes_max| ByteBound::new(bytes_max, capacity)),
        high_water: Monotone::new(0),
        busy: metrics.busy_rejections.at(spec.name),
        dropped: metrics.queue_dropped.at(spec.name),
    });
    let (side, receive, depth): (_, _, Arc<dyn Fn() -> usize + Send + Sync>) =
        if spec.kind == QueueKind::Mpsc && spec.overflow != Overflow::DropOldest {
            let (sender, receiver) = mpsc::channel(capacity);
            let probe = sender.clone();
            let depth = move || probe.max_capacity() - probe.capacity();
            let consumer = OneConsumer { channel: Arc::new(Mutex::new(receiver)), held: None };
            (SendSide::One(sender), ReceiveSide::One(consumer), Arc::new(depth))
        } else {
            let awaits_room = matches!(spec.overflow, Overflow::AwaitSend | Overflow::PermitThenSend);
            let (sender, receiver) = channel::channel(capacity, awaits_room);
            let probe = receiver.clone();
            let side = match spec.overflow {
                Overflow::DropOldest => SendSide::Evicting(sender),
                _ => SendSide::Many(sender),
            };
            (side, ReceiveSide::Many(receiver), Arc::new(move || probe.len()))
        };
    let probe = QueueProbe { shared: Arc::clone(&shared), depth };
    (QueueSender { side, shared: Arc::clone(&shared) }, QueueReceiver { side: receive, shared, owed: 0 }, probe)
}

impl<T: Payload> QueueSender<T> {
    /// Puts the item in without waiting, by the queue's policy: a full queue refuses it with Busy or drops its oldest.
    #[inline]
    pub fn offer(&self, value: T) -> Result<(), Error> {
        self.try_put(value).map_err(|refused| refused.error)
    }

    /// As [`QueueSender::offer`], for senders that try again with the same item.
    pub fn offer_or_return(&self, value: T) -> Result<(), (T, Error)> {
        self.try_put(value).map_err(|refused| (refused.value, refused.error))
    }

    /// Puts the item in by the queue's policy, waiting or trying again within the deadline where the policy says so.
    pub async fn send(&self, value: T, deadline: Deadline) -> Result<(), Error> {
        match self.shared.spec.overflow {
            Overflow::AwaitSend | Overflow::PermitThenSend => self.wait_for_room(value, deadline).await,
            Overflow::RetryOnce => self.send_with_tries(value, deadline, 2).await,
            Overflow::RetryBackoff => self.send_with_tries(value, deadline, u32::MAX).await,
            Overflow::RejectNew | Overflow::DropOldest | Overflow::Coalesce | Overflow::LastWriteWins => {
                self.offer(value)
            }
        }
    }

    /// Lets nothing more in; what is waiting can still be received.
    pub fn close(&self) {
        if let SendSide::Many(sender) | SendSide::Evicting(sender) = &self.side {
            sender.close();
        }
    }

    #[inline]
    fn try_put(&self, value: T) -> Result<(), Refused<T>> {
        let share = match &self.shared.bytes {
            None => None,
            Some(bound) => match bound.try_take(value.bytes()) {
                Some(share) => Some(share),
                None => return Err(self.shared.refuse_bytes(value, bound)),
            },
        };
        // From here on the bytes belong to the item; whoever takes it out of the channel gives them back.
        keep(share);
        match &self.side {
            SendSide::Evicting(sender) => match sender.force_send(value) {
                Ok(None) => {}
                Ok(Some(oldest)) => {
                    self.shared.give_back(&oldest);
                    self.shared.dropped.inc();
                }
                Err(closed) => return Err(self.shared.refuse_closed(closed.0)),
            },
            SendSide::Many(sender) => match sender.try_send(value) {
                Ok(()) => self.shared.see_depth(sender.len()),
                Err(PushError::Full(value)) => return Err(self.shared.refuse_full(value)),
                Err(PushError::Closed(value)) => return Err(self.shared.refuse_closed(value)),
            },
            SendSide::One(sender) => match sender.try_send(value) {
                Ok(()) => self.shared.see_depth(self.shared.capacity - sender.capacity()),
                Err(mpsc::error::TrySendError::Full(value)) => return Err(self.shared.refuse_full(value)),
                Err(mpsc::error::TrySendError::Closed(value)) => return Err(self.shared.refuse_closed(value)),
            },
        }
        Ok(())
    }

    async fn send_with_tries(&self, mut value: T, deadline: Deadline, tries_max: u32) -> Result<(), Error> {
        let mut tries = 1;
        loop {
            let refused = match self.try_put(value) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let wait = match self.shared.spec.overflow {
                Overflow::RetryOnce => retry::jitter(Duration::from_millis(50), Duration::from_millis(150)),
                _ => retry::RetryLimits::default().wait(tries),
            };
            if tries >= tries_max || refused.error.kind != Kind::Busy || deadline.remaining() <= wait {
                return Err(refused.error);
            }
            value = refused.value;
            tokio::time::sleep(wait).await;
            tries += 1;
        }
    }

    async fn wait_for_room(&self, value: T, deadline: Deadline) -> Result<(), Error> {
        let share = self.shared.wait_for_bytes(value.bytes(), deadline).await?;
        let sent = match &self.side {
            SendSide::Many(sender) | SendSide::Evicting(sender) => {
                deadline.run("queue_send", sender.send(value)).await.map(|sent| sent.map_err(drop))
            }
            SendSide::One(sender) => {
                deadline.run("queue_send", sender.send(value)).await.map(|sent| sent.map_err(drop))
            }
        };
        sent.map_err(|_| self.shared.backpressure())?.map_err(|()| self.shared.closed())?;
        keep(share);
        Ok(())
    }
}

impl<T: Payload> QueueReceiver<T> {
    /// The next item; none once the queue is closed and empty. Cancel-safe.
    #[inline]
    pub async fn recv(&mut self) -> Option<T> {
        if self.owed > 0 {
            // Whoever may have to wait pays first: a sender may be waiting for just these bytes.
            if let Some(item) = self.try_recv() {
                return Some(item);
            }
        }
        let item = match &mut self.side {
            ReceiveSide::Many(receiver) => receiver.recv().await,
            ReceiveSide::One(consumer) => consumer.recv().await,
        };
        item.inspect(|item| self.owe(item))
    }

    /// An item that is already waiting.
    #[inline]
    pub fn try_recv(&mut self) -> Option<T> {
        let item = match &mut self.side {
            ReceiveSide::Many(receiver) => receiver.try_recv(),
            ReceiveSide::One(consumer) => consumer.try_recv(),
        };
        match item {
            Some(item) => {
                self.owe(&item);
                Some(item)
            }
            None => {
                self.pay();
                None
            }
        }
    }

    #[inline]
    fn owe(&mut self, item: &T) {
        if let Some(bound) = &self.shared.bytes {
            self.owed += bound.counted(item.bytes());
            if self.owed > bound.owed_max {
                self.pay();
            }
        }
    }
}

impl<T> QueueReceiver<T> {
    /// Gives back to the budget what is owed.
    fn pay(&mut self) {
        if let Some(bound) = &self.shared.bytes {
            bound.budget.give_back(std::mem::take(&mut self.owed));
        }
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        self.pay();
    }
}

impl<T> OneConsumer<T> {
    #[inline]
    async fn recv(&mut self) -> Option<T> {
        let held = match &mut self.held {
            Some(held) => held,
            none => none.insert(Arc::clone(&self.channel).lock_owned().await),
        };
        held.recv().await
    }

    #[inline]
    fn try_recv(&mut self) -> Option<T> {
        let held = match &mut self.held {
            Some(held) => held,
            none => none.insert(Arc::clone(&self.channel).try_lock_owned().ok()?),
        };
        held.try_recv().ok()
    }
}

/// Leaves the bytes with the item.
#[inline]
fn keep(share: Option<Share<'_>>) {
    if let Some(share) = share {
        share.keep();
    }
}

struct Refused<T> {
    value: T,
    error: Error,
}

impl ByteBound {
    fn new(bytes_max: usize, capacity: usize) -> Self {
        ByteBound { budget: Budget::new(bytes_max), small: bytes_max / (8 * capacity.max(1)), owed_max: bytes_max / 64 }
    }

    #[inline]
    fn counted(&self, bytes: usize) -> usize {
        if bytes <= self.small { 0 } else { bytes }
    }

    #[inline]
    fn try_take(&self, bytes: usize) -> Option<Share<'_>> {
        self.budget.try_take(self.counted(bytes))
    }
}

impl Shared {
    #[inline]
    fn see_depth(&self, depth: usize) {
        self.high_water.raise(depth as u64);
    }

    /// Gives back the bytes of an item that has left the channel.
    #[inline]
    fn give_back(&self, item: &impl Payload) {
        if let Some(bound) = &self.bytes {
            bound.budget.give_back(bound.counted(item.bytes()));
        }
    }

    #[cold]
    fn refuse_full<T: Payload>(&self, value: T) -> Refused<T> {
        self.give_back(&value);
        self.refuse(value)
    }

    #[cold]
    fn refuse_closed<T: Payload>(&self, value: T) -> Refused<T> {
        self.give_back(&value);
        Refused { value, error: self.closed() }
    }

    #[cold]
    fn refuse<T>(&self, value: T) -> Refused<T> {
        self.busy.inc();
        self.high_water.raise(self.capacity as u64);
        Refused { value, error: Error::busy(format_args!("queue {}", self.spec.name)) }
    }

    /// An item that can never fit is not told to come back.
    fn refuse_bytes<T: Payload>(&self, value: T, bound: &ByteBound) -> Refused<T> {
        match value.bytes() > bound.budget.limit() {
            true => Refused { error: self.too_large(value.bytes(), bound), value },
            false => self.refuse(value),
        }
    }

    /// A share of the byte bound. The budget wakes nobody, so it is asked again at short intervals.
    async fn wait_for_bytes(&self, bytes: usize, deadline: Deadline) -> Result<Option<Share<'_>>, Error> {
        let Some(bound) = &self.bytes else { return Ok(None) };
        if bytes > bound.budget.limit() {
            return Err(self.too_large(bytes, bound));
        }
        loop {
            if let Some(share) = bound.try_take(bytes) {
                return Ok(Some(share));
            }
            if deadline.remaining() <= BYTES_ASKED_EVERY {
                return Err(self.backpressure());
            }
            tokio::time::sleep(BYTES_ASKED_EVERY).await;
        }
    }

    fn too_large(&self, bytes: usize, bound: &ByteBound) -> Error {
        let limit = bound.budget.limit();
        let detail = format!("{bytes} bytes never fit queue {}, which holds {limit}", self.spec.name);
        Error::new(Kind::FrameTooLarge, detail)
    }

    fn backpressure(&self) -> Error {
        self.busy.inc();
        Error::new(Kind::Backpressure, format!("queue {} had no room before the deadline", self.spec.name))
    }

    fn closed(&self) -> Error {
        Error::new(Kind::Canceled, format!("queue {} is closed", self.spec.name))
    }
}

impl QueueProbe {
    pub(crate) fn of(
        spec: &'static QueueSpec,
        capacity: usize,
        metrics: &Metrics,
        depth: impl Fn() -> usize + Send + Sync + 'static,
    ) -> QueueProbe {
        let shared = Shared {
            spec,
            capacity,
            bytes: None,
            high_water: Monotone::new(0),
            busy: metrics.busy_rejections.at(spec.name),
            dropped: metrics.queue_dropped.at(spec.name),
        };
        QueueProbe { shared: Arc::new(shared), depth: Arc::new(depth) }
    }

    /// The declaration it was made from.
    pub fn spec(&self) -> &'static QueueSpec {
        self.shared.spec
    }

    /// Maximum number of items.
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Number of items waiting now.
    pub fn depth(&self) -> usize {
        let depth = (self.depth)();
        self.shared.high_water.raise(depth as u64);
        depth
    }

    /// Bytes it holds at most, for queues bounded in bytes.
    pub fn bytes_max(&self) -> Option<usize> {
        self.shared.bytes.as_ref().map(|bound| bound.budget.limit())
    }

    /// Bytes waiting now, small items left out and what busy receivers owe included, for queues bounded in bytes.
    pub fn bytes(&self) -> Option<usize> {
        self.shared.bytes.as_ref().map(|bound| bound.budget.used())
    }

    /// Greatest number of items that waited at once.
    pub fn high_water(&self) -> usize {
        self.shared.high_water.get() as usize
    }

    /// Number of items refused since the start.
    pub fn busy(&self) -> u64 {
        self.shared.busy.get()
    }

    /// Number of items dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.get()
    }

    /// Fill from 0 to 1, by items or by bytes, whichever is greater.
    pub fn fill(&self) -> f32 {
        let by_count = self.depth() as f32 / self.shared.capacity.max(1) as f32;
        let by_bytes = self
            .shared
            .bytes
            .as_ref()
            .map_or(0.0, |bound| bound.budget.used() as f32 / bound.budget.limit().max(1) as f32);
        by_count.max(by_bytes)
    }
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        let side = match &self.side {
            SendSide::Many(sender) => SendSide::Many(sender.clone()),
            SendSide::Evicting(sender) => SendSide::Evicting(sender.clone()),
            SendSide::One(sender) => SendSide::One(sender.clone()),
        };
        QueueSender { side, shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for QueueReceiver<T> {
    fn clone(&self) -> Self {
        let side = match &self.side {
            ReceiveSide::Many(receiver) => ReceiveSide::Many(receiver.clone()),
            ReceiveSide::One(consumer) => {
                ReceiveSide::One(OneConsumer { channel: Arc::clone(&consumer.channel), held: None })
            }
        };
        QueueReceiver { side, shared: Arc::clone(&self.shared), owed: 0 }
    }
}

#[cfg(test)]
mod tests;
