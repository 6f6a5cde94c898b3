//! What is new, told to links that are not pushed to: ranges that gather for a few milliseconds.

use crate::lane::Lane;
use crate::names::Micros;
use crate::peers::Session;
use crate::shell::Shell;
use crate::turn::Turn;
use crate::wire::{Body, Entries, Entry};

/// Ranges that gather before they must be told.
pub(crate) const RANGES_MAX: usize = 64;
/// Lazy links that get one digest. With more of them each digest goes to a random part: every peer hears of most
/// messages, and summaries tell the rest.
const LAZY_FAN_OUT_MAX: usize = 32;
/// Ranges looked at for one that a message continues.
const LOOK_BACK: usize = 8;

/// New messages of one origin that came from one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    origin: u32,
    epoch: u64,
    first: u64,
    last: u64,
    from: Session,
}

/// Ranges to be told, and when.
#[derive(Debug)]
pub(crate) struct News {
    ranges: Vec<Range>,
    due: Micros,
}

impl Default for News {
    fn default() -> Self {
        News { ranges: Vec::new(), due: Micros::MAX }
    }
}

impl News {
    pub(crate) fn due(&self) -> Micros {
        self.due
    }

    /// Adds a message; true if the list is full.
    fn add(&mut self, range: Range, due: Micros) -> bool {
        let continues = |known: &&mut Range| {
            (known.origin, known.epoch, known.from) == (range.origin, range.epoch, range.from)
                && known.last + 1 == range.first
        };
        match self.ranges.iter_mut().rev().take(LOOK_BACK).find(continues) {
            Some(known) => known.last = range.last,
            None => {
                self.due = self.due.min(due);
                self.ranges.push(range);
            }
        }
        self.ranges.len() >= RANGES_MAX
    }

    /// Leaves out what was new of an origin.
    pub(super) fn forget(&mut self, origin: u32) {
        self.ranges.retain(|range| range.origin != origin);
    }

    fn take(&mut self) -> Vec<Range> {
        self.due = Micros::MAX;
        let kept = Vec::with_capacity(self.ranges.len());
        std::mem::replace(&mut self.ranges, kept)
    }
}

impl Lane {
    /// Notes a new message for those that it is not pushed to.
    pub(super) fn announce<S: Shell>(
        &mut self,
        turn: &mut Turn<'_, S>,
        origin: u32,
        epoch: u64,
        seq: u64,
        from: Session,
        pushed: bool,
    ) {
        if pushed && self.links.len() == self.eager.len() {
            return; // every place is pushed to
        }
        let due = turn.now.saturating_add(turn.shared.config.digest_after);
        let news = if pushed { &mut self.fresh } else { &mut self.history };
        if news.add(Range { origin, epoch, first: seq, last: seq, from }, due) {
            self.flush_news(turn);
        }
        self.wake(due);
    }

    /// Sends the digests that are due.
    pub(super) fn tell_news<S: Shell>(&mut self, turn: &mut Turn<'_, S>) {
        if self.fresh.due.min(self.history.due) <= turn.now {
            self.flush_news(turn);
        }
    }

    /// Sends all digests now.
    pub(super) fn flush_news<S: Shell>(&mut self, turn: &mut Turn<'_, S>) {
        let (fresh, history) = (self.fresh.take(), self.history.take());
        if !fresh.is_empty() {
            self.send_digest(turn, &fresh, false);
        }
        if !history.is_empty() {
            self.send_digest(turn, &history, true);
        }
    }

    fn send_digest<S: Shell>(&mut self, turn: &mut Turn<'_, S>, ranges: &[Range], no_push: bool) {
        let told: Vec<Session> = {
            let links = self.links.iter().filter(|link| link.is_up() && (no_push || !link.eager));
            links.map(|link| link.session).filter(|to| ranges.iter().any(|range| range.from != *to)).collect()
        };
        if told.is_empty() {
            return;
        }
        let entry = |range: &Range| {
            let origin = self.origins.get(range.origin).filter(|origin| origin.epoch == range.epoch)?.id;
            Some(Entry { origin, epoch: range.epoch, first: range.first, last: range.last })
        };
        let entries = Entries::pack(ranges.iter().filter_map(entry));
        if entries.is_empty() {
            return;
        }
        let message = self.encode(Body::Digest { no_push, entries });
        let skipped = told.len().saturating_sub(LAZY_FAN_OUT_MAX);
        let first = if skipped > 0 { turn.shared.rng.below(told.len()) } else { 0 };
        for session in told.iter().cycle().skip(first).take(told.len() - skipped) {
            // A digest that finds no room is not sent again: the peer has its hands full, and gets a summary later.
            if self.send_control(turn, *session, self.flow, message.clone()) != crate::SendOutcome::Sent
                && let Some(link) = self.link_mut(*session)
            {
                link.summary_at = link.summary_at.min(turn.now.saturating_add(turn.shared.config.answer_timeout));
                let due = link.summary_at;
                self.wake(due);
            }
        }
    }
}
