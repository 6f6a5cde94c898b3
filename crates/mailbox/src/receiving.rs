//! One receive on its way through the shards: which of them answers it, and what becomes of messages that nobody takes.
//!
//! A receive asks all shards that own partitions of its topic. The first that has messages answers: it leases them
//! under the lock of the receive, so that no other shard leases for the same receive. From then on the messages give
//! their leases back when they are dropped, whoever holds them at that moment: a receiver that is cancelled, times out
//! or vanishes leaves no lease behind.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use ron_types::Error;
use tokio::sync::oneshot;

use crate::holders::LeaseHolder;
use crate::shard::Recv;
use crate::types::{Leased, PartKey, Seq, TopicId};

/// Receivers that wait at one shard before those that are over are looked for.
const TIDY_MIN: usize = 1024;

/// A lease: its partition, its message and its number.
pub type LeaseKey = (PartKey, Seq, u32);

/// Leases that nobody took, on their way back to the shard that gave them.
///
/// A list of its own, because leases come back wherever a receiver is dropped, also while the shard is locked.
pub struct ReturnedLeases {
    leases: Mutex<Vec<LeaseKey>>,
    /// Makes sure that the shard has a next turn.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Messages that were just leased, on their way to their receiver. Dropped on that way, they give their leases back.
#[derive(Debug)]
pub struct ClaimedMessages {
    leased: Vec<Leased>,
    home: Option<Arc<ReturnedLeases>>,
}

/// What a receiver is answered; no messages if it has to ask again, or has waited long enough.
pub type ReceiveAnswer = Result<ClaimedMessages, Error>;

/// What a receiver asks for, and where.
#[derive(Clone, Debug)]
pub struct ReceiveTerms {
    /// Topic that is received from.
    pub topic: TopicId,
    /// Partitions of the topic.
    pub partitions: u16,
    /// Number of the partition that is looked at first.
    pub first: u16,
    /// Shards that own partitions, as the receiver knows it: with another number it has asked the wrong ones.
    pub shards: usize,
    /// Maximum messages in the answer.
    pub max_messages: usize,
    /// Maximum payload bytes in the answer.
    pub max_bytes: usize,
    /// Milliseconds the leases last; none means as the topic says.
    pub visibility_ms: Option<u64>,
    /// Name under which the leases are held.
    pub consumer: Box<str>,
    /// Subject that the leases are counted to, if they are.
    pub holder: Option<Arc<LeaseHolder>>,
    /// Whether the receiver waits until there is a message.
    pub waits: bool,
}

/// A receive that several shards may answer, once.
#[derive(Debug)]
pub struct PendingReceive {
    terms: ReceiveTerms,
    state: Mutex<ReceiveState>,
}

#[derive(Debug)]
struct ReceiveState {
    /// None once the receive is over.
    reply: Option<oneshot::Sender<ReceiveAnswer>>,
    /// Shards that have not said yet that they have nothing.
    shards_left: usize,
}

/// A receive at one of its shards: queued, on its turn, or waiting there for a message.
///
/// Dropping it ends the receive without an answer, because a shard that was lost cannot serve it any more: the receiver
/// asks all of them again.
#[derive(Debug)]
pub struct ShardReceive {
    receive: Arc<PendingReceive>,
    /// The shard has said that it has nothing; the receive goes on without it.
    has_nothing: bool,
}

/// What became of a receive at a shard that looked for messages for it.
#[derive(Debug)]
pub enum Served {
    /// It was answered before, or its receiver has gone.
    Over,
    /// The shard has nothing for it.
    Nothing,
    /// It is answered.
    Answered(ReceiveReply),
}

/// The answer to a receive, before it is sent.
#[derive(Debug)]
pub struct ReceiveReply {
    to: oneshot::Sender<ReceiveAnswer>,
    answer: ReceiveAnswer,
}

/// Receivers that wait at one shard for a message, by topic in the order in which they came.
#[derive(Debug, Default)]
pub struct WaitingReceivers {
    by_topic: HashMap<TopicId, VecDeque<ShardReceive>>,
    /// Receivers in all those queues, so that counting them does not cost a walk.
    count: usize,
    tidy_at: usize,
}

impl ReturnedLeases {
    /// No leases yet; `wake` is called whenever some have come back.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(ReturnedLeases { leases: Mutex::default(), wake: Box::new(wake) })
    }

    /// Gives leases back.
    pub fn put(&self, leases: impl IntoIterator<Item = LeaseKey>) {
        lock(&self.leases).extend(leases);
        (self.wake)();
    }

    /// Takes out up to `max` of those that have come back, for the shard to end them: other callers wait for its turn
    /// to end.
    pub fn take(&self, max: usize) -> Vec<LeaseKey> {
        let mut leases = lock(&self.leases);
        let rest = leases.len().saturating_sub(max);
        leases.split_off(rest)
    }

    /// Makes sure that the shard has a next turn if some are left.
    pub fn wake_for_rest(&self) {
        if self.count() > 0 {
            (self.wake)();
        }
    }

    /// Keeps leases that could not be ended now for whatever turn comes next: for that of their own end at the latest.
    pub fn keep(&self, leases: &[LeaseKey]) {
        lock(&self.leases).extend_from_slice(leases);
    }

    /// Number of leases that have come back.
    pub fn count(&self) -> usize {
        lock(&self.leases).len()
    }
}

impl std::fmt::Debug for ReturnedLeases {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ReturnedLeases").field(&self.count()).finish()
    }
}

impl ClaimedMessages {
    /// No messages.
    pub const NONE: ClaimedMessages = ClaimedMessages { leased: Vec::new(), home: None };

    /// Messages just leased at the shard that `home` belongs to.
    pub fn new(leased: Vec<Leased>, home: &Arc<ReturnedLeases>) -> Self {
        ClaimedMessages { leased, home: Some(Arc::clone(home)) }
    }

    /// The messages with their leases.
    pub fn leased(&self) -> &[Leased] {
        &self.leased
    }

    /// The messages are with their receiver, which settles them from here on, but for these, which give their leases
    /// back.
    pub fn keep_except(mut self, given_back: &[LeaseKey]) {
        self.leased.retain(|leased| given_back.contains(&(leased.part, leased.seq, leased.fence)));
    }
}

impl Drop for ClaimedMessages {
    fn drop(&mut self) {
        if let Some(home) = self.home.as_ref().filter(|_| !self.leased.is_empty()) {
            home.put(self.leased.iter().map(|leased| (leased.part, leased.seq, leased.fence)));
        }
    }
}

impl ReceiveTerms {
    /// The partitions of the topic in the order in which they are looked at.
    pub fn parts(&self) -> impl Iterator<Item = PartKey> + use<> {
        let (topic, partitions, first) = (self.topic, self.partitions.max(1), self.first);
        (0..partitions).map(move |nth| PartKey { topic, partition: (first + nth) % partitions })
    }

    /// What a shard is asked for.
    pub fn recv(&self) -> Recv<'_> {
        let ReceiveTerms { max_messages, max_bytes, visibility_ms, .. } = *self;
        Recv { max_messages, max_bytes, visibility_ms, consumer: &self.consumer }
    }
}

impl PendingReceive {
    /// A receive that so many shards are asked for, and where its answer comes.
    pub fn new(terms: ReceiveTerms, shards: usize) -> (Arc<Self>, oneshot::Receiver<ReceiveAnswer>) {
        let (reply, answer) = oneshot::channel();
        let state = Mutex::new(ReceiveState { reply: Some(reply), shards_left: shards });
        (Arc::new(PendingReceive { terms, state }), answer)
    }

    /// The receive for one of its shards.
    pub fn at_shard(self: &Arc<Self>) -> ShardReceive {
        ShardReceive { receive: Arc::clone(self), has_nothing: false }
    }

    /// Whether it was answered, or its receiver has gone.
    pub fn is_over(&self) -> bool {
        self.state().reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    fn state(&self) -> MutexGuard<'_, ReceiveState> {
        lock(&self.state)
    }
}

impl ShardReceive {
    /// What is asked for.
    pub fn terms(&self) -> &ReceiveTerms {
        &self.receive.terms
    }

    /// Whether it was answered, or its receiver has gone.
    pub fn is_over(&self) -> bool {
        self.receive.is_over()
    }

    /// Leases messages for it, unless it is over. Other shards that have messages for it wait for the outcome, which
    /// is there after a part of a turn: their own messages are then for somebody else.
    pub fn serve(
        &self,
        home: &Arc<ReturnedLeases>,
        lease: impl FnOnce(&ReceiveTerms) -> Result<Vec<Leased>, Error>,
    ) -> Served {
        let mut state = self.receive.state();
        let Some(to) = state.reply.take().filter(|reply| !reply.is_closed()) else { return Served::Over };
        let answer = match lease(self.terms()) {
            Ok(leased) if leased.is_empty() => {
                state.reply = Some(to);
                return Served::Nothing;
            }
            Ok(leased) => Ok(ClaimedMessages::new(leased, home)),
            Err(error) => Err(error),
        };
        Served::Answered(ReceiveReply { to, answer })
    }

    /// The shard has nothing for it and it does not wait; the last shard to say so answers.
    pub fn has_nothing(mut self) -> Option<ReceiveReply> {
        self.has_nothing = true;
        let mut state = self.receive.state();
        state.shards_left = state.shards_left.saturating_sub(1);
        let to = if state.shards_left == 0 { state.reply.take() } else { None };
        to.map(|to| ReceiveReply { to, answer: Ok(ClaimedMessages::NONE) })
    }

    /// Answers it, if nobody has: with no messages or an error.
    pub fn answer(self, answer: ReceiveAnswer) -> Option<ReceiveReply> {
        let to = self.receive.state().reply.take();
        to.map(|to| ReceiveReply { to, answer })
    }
}

impl Drop for ShardReceive {
    fn drop(&mut self) {
        if !self.has_nothing {
            let reply = self.receive.state().reply.take();
            // After the lock: the receiver is woken by it.
            drop(reply);
        }
    }
}

impl ReceiveReply {
    /// Sends it. If the receiver has gone, the messages give their leases back.
    pub fn send(self) {
        let _ = self.to.send(self.answer);
    }
}

impl WaitingReceivers {
    /// Receivers that wait; those count that are over and have not been met since.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether nobody waits for this topic who is still there.
    pub fn nobody_waits(&mut self, topic: TopicId) -> bool {
        let Some(queue) = self.by_topic.get_mut(&topic) else { return true };
        let over = queue.iter().take_while(|first| first.is_over()).count();
        queue.drain(..over);
        self.count -= over;
        queue.is_empty()
    }

    /// A receiver waits behind those of its topic that came before.
    pub fn push(&mut self, receive: ShardReceive) {
        // The walk is paid for by as many that came since the last one: receivers that are over are usually met before.
        if self.count >= self.tidy_at.max(TIDY_MIN) {
            self.forget_over();
            self.tidy_at = 2 * self.count;
        }
        self.count += 1;
        self.by_topic.entry(receive.terms().topic).or_default().push_back(receive);
    }

    /// Serves those who wait for a topic, first come first served, as long as `lease` has something for them.
    pub fn serve(
        &mut self,
        topic: TopicId,
        home: &Arc<ReturnedLeases>,
        mut lease: impl FnMut(&ReceiveTerms) -> Result<Vec<Leased>, Error>,
        mut reply: impl FnMut(ReceiveReply),
    ) {
        let Some(queue) = self.by_topic.get_mut(&topic) else { return };
        while let Some(first) = queue.front() {
            match first.serve(home, &mut lease) {
                Served::Nothing => break,
                Served::Over => {}
                Served::Answered(answered) => reply(answered),
            }
            queue.pop_front();
            self.count -= 1;
        }
        if queue.is_empty() {
            self.by_topic.remove(&topic);
        }
    }

    /// Takes all of them out.
    pub fn take_all(&mut self) -> impl Iterator<Item = ShardReceive> + use<> {
        self.count = 0;
        std::mem::take(&mut self.by_topic).into_values().flatten()
    }

    /// Forgets those that are over.
    pub fn forget_over(&mut self) {
        self.by_topic.retain(|_, queue| {
            queue.retain(|receive| !receive.is_over());
            !queue.is_empty()
        });
        self.count = self.by_topic.values().map(VecDeque::len).sum();
    }
}

/// Nothing that runs under these locks leaves what they guard half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn leases_that_came_back_are_taken_in_parts_and_somebody_is_woken_for_the_rest() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let woken = Arc::clone(&wakes);
        let returned = ReturnedLeases::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        });
        let part = PartKey { topic: TopicId(1), partition: 0 };
        returned.put((0..5).map(|seq| (part, seq, 1)));
        let mut taken = Vec::new();
        for (wakes_before, left) in [(1, 3), (2, 1), (3, 0), (3, 0)] {
            assert_eq!(wakes.load(Ordering::Relaxed), wakes_before);
            taken.extend(returned.take(2));
            assert_eq!(returned.count(), left);
            returned.wake_for_rest();
        }
        returned.keep(&taken);
        assert_eq!((returned.count(), wakes.load(Ordering::Relaxed)), (5, 3), "kept for whatever turn comes next");
    }
}
