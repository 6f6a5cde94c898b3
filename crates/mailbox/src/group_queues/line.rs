//! One group's line: its messages that are ready, and what deliveries have left of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::queue::SeqQueue;
use crate::index::{Entry, Index};
use crate::types::Seq;

/// Stale places in a queue that are not worth tidying.
const STALE_MIN: usize = 64;

/// The ready messages of one group.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub name: Option<Arc<str>>,
    /// Those that never came back, in order, among places of messages that left otherwise.
    pub fresh: SeqQueue,
    /// Such places.
    pub stale: usize,
    /// Messages of the group in any state.
    pub members: u32,
    pub leased: u32,
    /// It is in the list of lines with processing time.
    pub timed: bool,
    pub placed: Option<LinePlace>,
    /// None before the first delivery: most groups of a backlog only wait, and there may be as many as messages.
    pub past: Option<Box<LinePast>>,
}

/// What deliveries have left of a line.
#[derive(Debug, Default)]
pub(super) struct LinePast {
    /// Those that came back or came late.
    pub back: BTreeSet<Seq>,
    /// Those whose consumer gave them back, which nothing holds up.
    pub freed: BTreeSet<Seq>,
    /// Those that are leased or wait after a failed delivery; only kept where groups are in strict order.
    pub out: BTreeSet<Seq>,
    /// Processing time in this window and the one before.
    pub busy_ms: [u64; 2],
    /// Newest message when a message of the line last came back, and which coming back of the partition that was.
    pub behind: (Seq, u64),
}

/// The past of a line without one.
static NO_PAST: LinePast =
    LinePast { back: BTreeSet::new(), freed: BTreeSet::new(), out: BTreeSet::new(), busy_ms: [0; 2], behind: (0, 0) };

/// Where a line stands among those to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinePlace {
    /// By its first message.
    Quiet(Seq),
    /// By its first message, after all that are not noisy.
    Noisy(Seq),
    /// After all lines whose first message is not newer than this one, in the order of coming back.
    Behind(Seq, u64),
}

impl Line {
    /// What deliveries have left of it.
    pub fn past(&self) -> &LinePast {
        self.past.as_deref().unwrap_or(&NO_PAST)
    }

    /// The first message that is before `before`, or that nothing holds up.
    pub fn head(&self, before: Seq) -> Option<Seq> {
        let in_order =
            [self.fresh.first(), self.past().back.first().copied()].into_iter().flatten().filter(|seq| *seq < before);
        in_order.chain(self.past().freed.first().copied()).min()
    }

    /// Keeps the first place of the queue true, and the untrue ones behind it few.
    pub fn tidy(&mut self, index: &Index) {
        let is_fresh = |seq: Seq| index.get(seq).is_some_and(Entry::is_fresh);
        while self.stale > 0 && self.fresh.first().is_some_and(|seq| !is_fresh(seq)) {
            self.fresh.pop();
            self.stale -= 1;
        }
        if self.stale > STALE_MIN && self.stale > self.fresh.len() / 2 {
            self.fresh.retain(is_fresh);
            self.stale = 0;
        }
    }
}
