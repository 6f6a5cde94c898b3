//! Bytes of answers that wait for the peer of one HTTP/2 connection, and whether it takes them at the least rate.
//!
//! The window of each stream is the peer's to open, so a socket that takes bytes says nothing about an answer. Two
//! things are asked, each over spans of the configured time. The connection as a whole must take a least number of
//! bytes, more if much waits. And an answer must not stand still while others overtake it: one that is not taken
//! although everything that waited beside it could have gone out is held back by its window alone.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

/// A connection must take at least this part of what waits for it in each span, so that nobody keeps much memory for
/// long by taking little: all of it is gone after half an hour of the default span.
const SPANS_MAX: u64 = 64;

/// Answers of one connection with bytes that the peer has not taken.
pub(crate) struct Debts {
    by_request: HashMap<u64, Debt>,
    /// Bytes the peer has taken of all answers since the connection began.
    taken: u64,
    /// Bytes that wait now.
    owed: u64,
    /// Start of the span by which the connection as a whole is judged.
    since: Instant,
    /// `taken` at the start of that span.
    taken_before: u64,
    /// Minimum bytes of one span.
    span_bytes: u64,
}

/// Bytes of one answer that wait for the peer.
struct Debt {
    pieces: usize,
    /// Time at which the peer last took some of them.
    progress: Instant,
    /// Start of the span by which this answer is judged.
    since: Instant,
    /// Bytes of the answer taken in this span.
    taken: u64,
    /// What the connection will have taken once everything is gone that waited when the span began.
    overtaken_at: u64,
    /// Whether more of the answer may follow.
    is_open: bool,
}

/// Judgement on a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing waits for it.
    Clear,
    /// It is in time until this moment.
    GoodUntil(Instant),
    /// It does not take what waits for it.
    Stalled,
}

impl Debts {
    /// No debts yet; `span_bytes` is the minimum a peer must take in one span.
    pub(crate) fn new(span_bytes: u64, now: Instant) -> Self {
        Debts { by_request: HashMap::new(), taken: 0, owed: 0, since: now, taken_before: 0, span_bytes }
    }

    /// A piece of an answer waits from now on.
    pub(crate) fn add(&mut self, request: u64, bytes: u64, now: Instant) {
        if self.by_request.is_empty() {
            self.begin_span(now);
        }
        self.owed += bytes;
        let overtaken_at = self.taken + self.owed;
        let new = || Debt { pieces: 0, progress: now, since: now, taken: 0, overtaken_at, is_open: true };
        self.by_request.entry(request).or_insert_with(new).pieces += 1;
    }

    /// The peer took some bytes of an answer.
    pub(crate) fn take(&mut self, request: u64, bytes: u64, now: Instant) {
        self.taken += bytes;
        self.owed = self.owed.saturating_sub(bytes);
        if self.taken - self.taken_before >= self.span_bytes.max(self.owed / SPANS_MAX) {
            self.begin_span(now);
        }
        let Some(debt) = self.by_request.get_mut(&request) else { return };
        debt.progress = now;
        debt.taken += bytes;
        if debt.taken >= self.span_bytes {
            debt.since = now;
            debt.taken = 0;
            debt.overtaken_at = self.taken + self.owed;
        }
    }

    /// A piece is gone, with this many of its bytes not taken.
    pub(crate) fn remove(&mut self, request: u64, left_bytes: u64) {
        self.owed = self.owed.saturating_sub(left_bytes);
        if let Some(debt) = self.by_request.get_mut(&request) {
            debt.pieces -= 1;
            if debt.pieces == 0 {
                self.by_request.remove(&request);
            }
        }
    }

    /// The answer ends with the pieces that wait.
    pub(crate) fn close(&mut self, request: u64) {
        if let Some(debt) = self.by_request.get_mut(&request) {
            debt.is_open = false;
        }
    }

    /// Whether nothing waits for the peer.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }

    /// Whether the peer takes enough, over spans of this length.
    pub(crate) fn judge(&self, span: Duration, now: Instant) -> Judgement {
        if self.by_request.is_empty() {
            return Judgement::Clear;
        }
        let mut until = self.since + span;
        if until <= now {
            return Judgement::Stalled;
        }
        for debt in self.by_request.values() {
            let end = debt.since + span;
            match end <= now {
                true if self.taken >= debt.overtaken_at => return Judgement::Stalled,
                // Others go first as long as the connection moves, which is judged by itself.
                true => {}
                false => until = until.min(end),
            }
        }
        Judgement::GoodUntil(until)
    }

    /// The time at which the peer last took something, if answers that are not closed and wait for it are this many.
    pub(crate) fn open_since(&self, in_flight: usize) -> Option<Instant> {
        let open = || self.by_request.values().filter(|debt| debt.is_open);
        (open().count() == in_flight).then(|| open().map(|debt| debt.progress).max())?
    }

    /// The time at which the peer last took something of what waits; none if nothing does.
    pub(crate) fn progress(&self) -> Option<Instant> {
        self.by_request.values().map(|debt| debt.progress).max()
    }

    fn begin_span(&mut self, now: Instant) {
        self.since = now;
        self.taken_before = self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(30);
    const SPAN_BYTES: u64 = 30 * 1024;
    const MIB: u64 = 1 << 20;

    struct Peer {
        debts: Debts,
        now: Instant,
    }

    impl Peer {
        fn owing(answers: &[u64]) -> Peer {
            let now = ron_kernel::clock::now();
            let mut debts = Debts::new(SPAN_BYTES, now);
            for (request, bytes) in answers.iter().enumerate() {
                debts.add(request as u64, *bytes, now);
            }
            Peer { debts, now }
        }

        /// Takes so many bytes of an answer every second, until it is found to stall or that many seconds are over.
        fn stalls_within(&mut self, seconds: u64, taken: impl Fn(u64) -> (u64, u64)) -> Option<u64> {
            (0..seconds).find(|second| {
                self.now += Duration::from_secs(1);
                let (request, bytes) = taken(*second);
                self.debts.take(request, bytes, self.now);
                self.debts.judge(SPAN, self.now) == Judgement::Stalled
            })
        }
    }

    #[test]
    fn a_peer_is_judged_by_a_rate_and_not_by_its_last_byte() {
        let mut trickles = Peer::owing(&[4 * MIB]);
        assert_eq!(trickles.stalls_within(100, |_| (0, 1)), Some(29));
        let mut reads = Peer::owing(&[4 * MIB]);
        assert_eq!(reads.stalls_within(100, |_| (0, 40_000)), None);
        // Two thousand bytes in a second are below a sixty-fourth of what waits.
        let mut owes_much = Peer::owing(&[16 * MIB]);
        assert_eq!(owes_much.stalls_within(100, |_| (0, 2_000)), Some(29));
    }

    #[test]
    fn an_answer_may_wait_its_turn_behind_others_that_are_taken() {
        // One after the other, as with a window of the connection that the first of them fill.
        let mut in_turn = Peer::owing(&[4 * MIB, 4 * MIB, 4 * MIB]);
        assert_eq!(in_turn.stalls_within(300, |second| (second / 105, 40_000)), None);
        // The first goes on beyond what it had then, and the second never gets its turn.
        let mut overtaken = Peer::owing(&[100 * MIB, MIB]);
        let stalled = overtaken.stalls_within(300, |_| (0, 2 * MIB));
        assert_eq!(stalled, Some(50), "once everything could have gone that waited at first");
    }

    #[test]
    fn bytes_that_are_gone_are_owed_no_longer() {
        let mut peer = Peer::owing(&[MIB, MIB]);
        peer.debts.take(0, MIB, peer.now);
        peer.debts.remove(0, 0);
        peer.debts.remove(1, MIB);
        assert_eq!(peer.debts.judge(SPAN, peer.now + 2 * SPAN), Judgement::Clear);
        assert_eq!((peer.debts.owed, peer.debts.taken), (0, MIB));
        let later = peer.now + 2 * SPAN;
        peer.debts.add(3, 1, later);
        assert_eq!(peer.debts.judge(SPAN, later), Judgement::GoodUntil(later + SPAN), "a rest does not count");
    }

    #[test]
    fn a_drain_asks_for_answers_that_may_still_grow() {
        let mut peer = Peer::owing(&[MIB, MIB]);
        assert_eq!(peer.debts.open_since(3), None, "one is still being worked on");
        assert_eq!(peer.debts.open_since(2), Some(peer.now));
        peer.debts.close(1);
        assert_eq!(peer.debts.open_since(1), Some(peer.now));
    }
}
