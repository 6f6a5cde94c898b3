//! The course of a lookup: every ask with its times and its end, for traces, pages and answers.

use crate::Millis;

/// How an ask ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskEnd {
    /// It brought the record.
    Won,
    /// It was answered without the record.
    Empty,
    /// The lookup ended first.
    Cancelled,
    /// It was refused or broke off.
    Failed,
    /// Nothing came in time.
    TimedOut,
    /// The target's breaker is open: it was not asked.
    SkippedOpen,
}

/// One ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskRecord<T> {
    /// Whom it was sent to.
    pub target: T,
    /// Milliseconds from the start of the lookup.
    pub started_ms: Millis,
    /// Milliseconds from the start of the lookup, and how it ended; `None` while in flight.
    pub end: Option<(Millis, AskEnd)>,
    /// Whether it was sent because others were late.
    pub hedge: bool,
    /// Steps from the targets that were known first, which are step 1.
    pub hop: u32,
}

/// Every ask of a lookup, in order; as many as the bound of asks and of candidates allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course<T> {
    begun_at_ms: Millis,
    took_ms: Option<Millis>,
    records: Vec<AskRecord<T>>,
    asks: usize,
}

impl<T> Course<T> {
    pub(super) fn new(now_ms: Millis) -> Self {
        Course { begun_at_ms: now_ms, took_ms: None, records: Vec::new(), asks: 0 }
    }

    /// Every ask, and every target that was skipped.
    pub fn records(&self) -> &[AskRecord<T>] {
        &self.records
    }

    /// Asks sent, hedges and retries included.
    pub fn asks(&self) -> usize {
        self.asks
    }

    /// Asks sent because others were late.
    pub fn hedges(&self) -> usize {
        self.records.iter().filter(|record| record.hedge).count()
    }

    /// Time from the start to the end; `None` while under way.
    pub fn took_ms(&self) -> Option<Millis> {
        self.took_ms
    }

    pub(super) fn begin(&mut self, target: T, now_ms: Millis, hedge: bool, hop: u32) -> usize {
        self.asks += 1;
        self.push(target, now_ms, None, hedge, hop)
    }

    pub(super) fn skip(&mut self, target: T, now_ms: Millis, hop: u32) {
        let at_ms = now_ms.saturating_sub(self.begun_at_ms);
        self.push(target, now_ms, Some((at_ms, AskEnd::SkippedOpen)), false, hop);
    }

    pub(super) fn end(&mut self, ask: usize, now_ms: Millis, end: AskEnd) {
        let at_ms = now_ms.saturating_sub(self.begun_at_ms);
        if let Some(record) = self.records.get_mut(ask) {
            record.end = Some((at_ms, end));
        }
    }

    pub(super) fn finish(&mut self, now_ms: Millis) {
        self.took_ms = Some(now_ms.saturating_sub(self.begun_at_ms));
    }

    fn push(&mut self, target: T, now_ms: Millis, end: Option<(Millis, AskEnd)>, hedge: bool, hop: u32) -> usize {
        let started_ms = now_ms.saturating_sub(self.begun_at_ms);
        self.records.push(AskRecord { target, started_ms, end, hedge, hop });
        self.records.len() - 1
    }
}
