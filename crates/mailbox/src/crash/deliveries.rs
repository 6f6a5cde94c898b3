//! Who got what: a message that died of too many deliveries was delivered that often to somebody who was there.

use std::collections::BTreeMap;

use super::memory::{Model, Promise};
use super::reference::{Message, Stand};
use super::world::World;
use crate::types::{DeadReason, PartKey, Seq};

/// Deliveries of each message to receivers that were there, since it came to its partition.
pub struct Deliveries(BTreeMap<Seq, u32>);

impl Deliveries {
    /// After a start nobody can tell who got what: whatever is written down counts.
    pub fn after_start(model: &Model) -> Self {
        let messages = model.reference.messages.iter();
        Deliveries(messages.filter(|one| one.attempts > 0).map(|one| (one.seq, one.attempts)).collect())
    }

    pub fn count(&mut self, seq: Seq) {
        *self.0.entry(seq).or_default() += 1;
    }

    /// The last delivery was to nobody.
    fn uncount(&mut self, seq: Seq) {
        if let Some(count) = self.0.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&seq);
            }
        }
    }

    /// Holds the deliveries of all who have left a partition since against what they died of.
    pub fn check(&mut self, messages: &[Message]) {
        for message in messages.iter().filter(|message| message.attempts == 0) {
            let delivered = self.0.remove(&message.seq);
            if let (Some(delivered), Some((DeadReason::MaxAttempts, attempts))) = (delivered, message.dead) {
                assert_eq!(delivered, attempts, "live deliveries of {}, which is dead", message.seq);
            }
        }
    }
}

impl World {
    /// Receives for somebody who has gone when the answer is there: the shard's next turn ends the leases.
    pub fn recv_for_nobody(&mut self, part: PartKey, max_messages: usize) {
        for seq in self.recv(part, max_messages, 60_000) {
            let fence = self.leased().into_iter().find(|lease| lease.1 == seq).expect("it was just leased").2;
            self.on_part(part, |shard, journal, now| shard.release_lease(now, journal, part, seq, fence))
                .0
                .expect("there is room for a step");
            let message = self.model.reference.get(part, seq).expect("it is there");
            message.attempts -= 1;
            message.stand = Stand::Ready;
            self.deliveries.uncount(seq);
            self.done(part, Promise::Other);
        }
    }
}
