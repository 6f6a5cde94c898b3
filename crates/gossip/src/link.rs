//! One link in one lane: whether it is pushed over, where in the ring it is, what it may send, what it still owes.

use std::collections::VecDeque;

use crate::names::Micros;
use crate::peers::Session;
use crate::wire::Want;

/// Questions of one peer in one lane that may wait for their answers.
pub(crate) const SERVES_PER_LINK_MAX: usize = 32;
/// Questions of all peers in all lanes that may wait for their answers.
pub(crate) const SERVES_MAX: usize = 2048;
/// A receiver says what it consumed each time it was so much.
pub(crate) const CREDIT_EVERY_BYTES: u64 = 128 << 10;
/// After this time without a word the bytes on the way count as lost: a session keeps its bytes, but what an outbox
/// dropped was never consumed.
pub(crate) const CREDIT_LEASE: Micros = 2_000_000;

/// Bytes of data on the way, and consumed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credit {
    /// Bytes given to the outbox.
    sent: u64,
    /// Bytes of those that the peer says it consumed, or that are no longer waited for.
    acknowledged: u64,
    acknowledged_at: Micros,
    /// The peer's running total when it last told it.
    their_total: u64,
    /// Bytes consumed from the peer.
    received: u64,
    /// Bytes of those that the peer was told.
    told: u64,
}

impl Credit {
    pub(crate) fn new(now: Micros) -> Self {
        Credit { acknowledged_at: now, ..Credit::default() }
    }

    /// Whether so many bytes may be sent. One message may always be on the way.
    pub(crate) fn allows(&self, window: u64, bytes: u64) -> bool {
        let on_the_way = self.sent - self.acknowledged;
        on_the_way == 0 || on_the_way + bytes <= window
    }

    /// Whether the peer said nothing for so long that its silence is no longer waited for.
    pub(crate) fn is_overdue(&self, now: Micros) -> bool {
        now.saturating_sub(self.acknowledged_at) >= CREDIT_LEASE
    }

    pub(crate) fn forgive(&mut self, now: Micros) {
        self.acknowledged = self.sent;
        self.acknowledged_at = now;
    }

    pub(crate) fn spend(&mut self, now: Micros, bytes: u64) {
        // A peer tells in steps, so a little is on the way for as long as a lane is quiet; only what is sent from now
        // on can be late.
        if self.sent == self.acknowledged || self.is_overdue(now) {
            self.acknowledged_at = now;
        }
        self.sent += bytes;
    }

    /// Bytes that were given to the outbox and dropped there.
    pub(crate) fn unspend(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_sub(bytes).max(self.acknowledged);
    }

    /// The peer's running total: what it grew by was consumed, and never more than what is on the way. So it does not
    /// matter where the two totals began: either side may have forgotten the lane or begun anew while the session
    /// stood, and bytes that were forgiven are not waited for again. A total that fell began anew, and was consumed
    /// since. A peer that lies about it has what it gets from claiming everything: it is sent what its outbox takes.
    pub(crate) fn acknowledge(&mut self, now: Micros, consumed: u64) {
        let grown = consumed.checked_sub(self.their_total).unwrap_or(consumed);
        self.their_total = consumed;
        self.acknowledged = self.acknowledged.saturating_add(grown).min(self.sent);
        self.acknowledged_at = now;
    }

    /// Counts received bytes; the running total if it is time to tell it.
    pub(crate) fn consume(&mut self, bytes: u64) -> Option<u64> {
        self.received += bytes;
        (self.received - self.told >= CREDIT_EVERY_BYTES).then_some(self.received)
    }

    pub(crate) fn tell(&mut self) {
        self.told = self.received;
    }
}

/// How far a message in chunks has got over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half {
    pub(crate) origin: u32,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    /// Next part to send: 0 is the head.
    pub(crate) position: usize,
}

/// A question that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serve {
    pub(crate) want: Want,
    /// Next number to send.
    pub(crate) next: u64,
    /// Next part of it.
    pub(crate) position: usize,
    /// `want.from` up to here is not held.
    pub(crate) missing_to: u64,
    /// Messages and bytes sent so far.
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// All is sent but the word that it is.
    pub(crate) is_done: bool,
}

/// One link in one lane.
#[derive(Debug)]
pub(crate) struct LinkState {
    /// The session; [`Session::NONE`] where the place has no peer.
    pub(crate) session: Session,
    pub(crate) eager: bool,
    /// The peer's way to the leader is over this link: it is needed, whatever else comes over it.
    pub(crate) is_child: bool,
    /// The peer knows that this node's way to the leader is over this link.
    pub(crate) has_joined: bool,
    /// Arrival of the next message to push.
    pub(crate) cursor: u64,
    pub(crate) half: Option<Half>,
    pub(crate) credit: Credit,
    /// When pushes and answers go on.
    pub(crate) retry_at: Micros,
    /// When the peer gets a summary, and whether its own is wanted.
    pub(crate) summary_at: Micros,
    pub(crate) summary_reply: bool,
    /// The last time a prune was sent.
    pub(crate) pruned_at: Option<Micros>,
    /// The last time the peer said that it pushes to as many as it may.
    pub(crate) refused_at: Option<Micros>,
    /// When the peer may be told again that an origin has begun a later life.
    pub(crate) tell_epoch_at: Micros,
    pub(crate) serves: VecDeque<Serve>,
}

/// Bytes of memory of one link, in a buffer that grows by doubling.
pub(crate) const LINK_BYTES: usize = 2 * std::mem::size_of::<LinkState>();
/// Bytes of memory of one question, in a buffer that grows by doubling.
pub(crate) const SERVE_BYTES: usize = 2 * std::mem::size_of::<Serve>();

impl LinkState {
    pub(crate) fn nobody() -> Self {
        Self::new(0, Session::NONE, 0)
    }

    pub(crate) fn new(now: Micros, session: Session, tip: u64) -> Self {
        LinkState {
            session,
            eager: false,
            is_child: false,
            has_joined: false,
            cursor: tip,
            half: None,
            credit: Credit::new(now),
            retry_at: Micros::MAX,
            summary_at: Micros::MAX,
            summary_reply: false,
            pruned_at: None,
            refused_at: None,
            tell_epoch_at: 0,
            serves: VecDeque::new(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.session != Session::NONE
    }

    /// When this link wants to be looked at.
    pub(crate) fn due(&self) -> Micros {
        self.retry_at.min(self.summary_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_bounds_what_is_on_the_way() {
        let mut credit = Credit::new(0);
        assert!(credit.allows(100, 1000), "one message may always go");
        credit.spend(0, 60);
        assert!(credit.allows(100, 40) && !credit.allows(100, 41));
        credit.acknowledge(5, 30);
        assert!(credit.allows(100, 70) && !credit.allows(100, 71));
        credit.acknowledge(5, 30);
        assert!(!credit.allows(100, 71), "the same again is nothing new");
        credit.acknowledge(5, 10);
        assert!(credit.allows(100, 80) && !credit.allows(100, 81), "a total that fell began anew");
        credit.acknowledge(5, u64::MAX);
        assert!(credit.allows(100, 100), "no more than what was sent");
        credit.spend(6, 100);
        assert!(!credit.allows(100, 1));
        credit.unspend(50);
        assert!(credit.allows(100, 50) && !credit.allows(100, 51));
        credit.unspend(u64::MAX);
        assert!(credit.allows(100, 100));
    }

    #[test]
    fn silence_is_forgiven_after_the_lease() {
        let mut credit = Credit::new(0);
        credit.spend(10 * CREDIT_LEASE, 100);
        assert!(!credit.is_overdue(11 * CREDIT_LEASE - 1), "the lease begins with the first byte on the way");
        assert!(credit.is_overdue(11 * CREDIT_LEASE));
        credit.forgive(11 * CREDIT_LEASE);
        assert!(credit.allows(100, 100) && !credit.is_overdue(11 * CREDIT_LEASE));
    }

    #[test]
    fn a_lease_begins_when_a_quiet_lane_is_used_again() {
        let mut credit = Credit::new(0);
        credit.spend(0, 100);
        credit.acknowledge(1, 60);
        credit.spend(10 * CREDIT_LEASE, 60);
        assert!(!credit.is_overdue(11 * CREDIT_LEASE - 1) && credit.is_overdue(11 * CREDIT_LEASE));
    }

    #[test]
    fn bytes_that_were_forgiven_do_not_stay_missing() {
        let mut credit = Credit::new(0);
        // Lost on the way, as when the other side began anew.
        credit.spend(0, 100);
        credit.forgive(CREDIT_LEASE);
        for round in 1..=10 {
            credit.spend(CREDIT_LEASE, 100);
            assert!(!credit.allows(100, 1));
            credit.acknowledge(CREDIT_LEASE, 100 * round);
            assert!(credit.allows(100, 100), "{round}");
        }
        // This side began anew: the other's total is above all that was sent.
        let mut credit = Credit::new(0);
        credit.spend(0, 60);
        credit.acknowledge(0, 5060);
        credit.spend(0, 60);
        credit.acknowledge(0, 5090);
        assert!(credit.allows(100, 70) && !credit.allows(100, 71), "only what was consumed since");
    }

    #[test]
    fn a_receiver_tells_in_steps() {
        let mut credit = Credit::new(0);
        assert_eq!(credit.consume(CREDIT_EVERY_BYTES - 1), None);
        assert_eq!(credit.consume(1), Some(CREDIT_EVERY_BYTES));
        credit.tell();
        assert_eq!(credit.consume(1), None);
    }
}
