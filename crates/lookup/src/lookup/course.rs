//! The course of a lookup: every ask with its times and its end, for traces, pages and answers.

use crate::{BreakerState, Millis};

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
    /// State of the target's breaker when it was to be asked: half-open if the ask is its probe.
    pub breaker: BreakerState,
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

    pub(super) fn begin(&mut self, target: T, now_ms: Millis, hedge: bool, hop: u32, breaker: BreakerState) -> usize {
        self.asks += 1;
        let started_ms = now_ms.saturating_sub(self.begun_at_ms);
        self.push(AskRecord { target, started_ms, end: None, hedge, hop, breaker })
    }

    pub(super) fn skip(&mut self, target: T, now_ms: Millis, hop: u32) {
        let at_ms = now_ms.saturating_sub(self.begun_at_ms);
        let (end, breaker) = (Some((at_ms, AskEnd::SkippedOpen)), BreakerState::Open);
        self.push(AskRecord { target, started_ms: at_ms, end, hedge: false, hop, breaker });
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

    fn push(&mut self, record: AskRecord<T>) -> usize {
        self.records.push(record);
        self.records.len() - 1
    }
}
