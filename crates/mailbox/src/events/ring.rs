//! The events that are remembered: the last ones, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Event, NumberedEvent};
use crate::types::Millis;

/// Events remembered. More than the broadcast holds, so that a watcher that lagged there can still catch up.
pub(super) const EVENTS_MAX: usize = 4096;
/// Bytes of the events remembered.
const BYTES_MAX: usize = 2 << 20;

/// The last events, with rising numbers and without a hole.
#[derive(Default)]
pub(super) struct Ring {
    events: VecDeque<Arc<NumberedEvent>>,
    bytes: usize,
    /// Number of the last event; 0 before the first.
    last: u64,
}

impl Ring {
    /// Numbers an event and remembers it.
    pub fn push(&mut self, at_ms: Millis, event: Event) -> Arc<NumberedEvent> {
        self.last += 1;
        let event = Arc::new(NumberedEvent { number: self.last, at_ms, event });
        self.bytes += event.bytes();
        self.events.push_back(Arc::clone(&event));
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.bytes();
        }
        event
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    /// Number of the oldest event remembered, or of the next one.
    pub fn oldest(&self) -> u64 {
        self.events.front().map_or(self.last + 1, |event| event.number)
    }

    /// The events behind this number, oldest first.
    pub fn after(&self, number: u64, limit: usize) -> impl Iterator<Item = &Arc<NumberedEvent>> {
        let skipped = (number + 1).saturating_sub(self.oldest());
        self.events.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)).take(limit)
    }
}

impl NumberedEvent {
    /// Memory it takes; names are shared with the topics, but a topic may be gone.
    fn bytes(&self) -> usize {
        let names: usize = self.event.topics().map(|topic| topic.as_str().len()).sum();
        let detail = if let Event::LogFailed { detail } = &self.event { detail.len() } else { 0 };
        size_of::<NumberedEvent>() + names + detail
    }
}
