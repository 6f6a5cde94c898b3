//! One watcher of events: it replays what is remembered, then hears what comes, and is told what it missed.

use std::collections::VecDeque;
use std::sync::Arc;

use ron_kernel::bus::{BroadcastReceiver, Heard};
use ron_types::Error;

use super::{EventId, NumberedEvent};
use crate::engine::{Engine, lock};
use crate::mailbox::Mailbox;

/// Events taken out of the memory at once: a slow watcher holds no more of them, and the lock is held shortly.
const PAGE: usize = 64;

/// Where a watcher begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventsFrom {
    /// With what happens from now on.
    Now,
    /// With the oldest event that is remembered.
    Oldest,
    /// Behind this event.
    After(EventId),
}

/// What a watcher gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventItem {
    /// The next event.
    Event(Arc<NumberedEvent>),
    /// Events it can no longer get.
    Missed(Missed),
}

/// Events that a watcher missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Number of events, of any topic; none if the node was started anew since, so that nobody knows.
    pub count: Option<u64>,
}

/// One watcher. It never slows the node down: what it does not fetch in time is forgotten, and it is told so.
pub struct EventReader {
    engine: Arc<Engine>,
    receiver: BroadcastReceiver<Arc<NumberedEvent>>,
    page: VecDeque<Arc<NumberedEvent>>,
    /// Number of the last event given or told as missed.
    last: u64,
    /// There may be remembered events that the receiver will not bring.
    is_behind: bool,
    /// The watcher comes from a run of the node that has ended, and has not been told so.
    is_of_other_run: bool,
}

impl Mailbox {
    /// What happens to messages. Refuses an id that this node has not given.
    pub fn watch_events(&self, from: EventsFrom) -> Result<EventReader, Error> {
        let engine = Arc::clone(&self.engine);
        let events = &engine.events;
        // Under the lock that numbers are given under, so that nothing comes twice or falls between.
        let ring = lock(&events.ring);
        let receiver = events.broadcast.subscribe("mailbox", engine.kernel.metrics());
        let is_of_other_run = matches!(from, EventsFrom::After(id) if id.run != events.run);
        let last = match from {
            EventsFrom::Now => ring.last(),
            EventsFrom::After(id) if !is_of_other_run => id.number,
            EventsFrom::Oldest | EventsFrom::After(_) => 0,
        };
        if last > ring.last() {
            return Err(Error::schema(format!("event {last} has not happened yet; the last one is {}", ring.last())));
        }
        let is_behind = last < ring.last();
        drop(ring);
        Ok(EventReader { engine, receiver, page: VecDeque::new(), last, is_behind, is_of_other_run })
    }
}

impl EventReader {
    /// The next event, or how many were missed; none once the node is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<EventItem> {
        loop {
            if let Some(item) = self.next_remembered() {
                return Some(item);
            }
            match self.receiver.recv().await? {
                // It was in the page that the memory gave.
                Heard::Event(event) if event.number <= self.last => {}
                Heard::Event(event) => return Some(self.give(event)),
                Heard::Missed(_) => self.is_behind = true,
            }
        }
    }

    /// The next item that needs no waiting; none once this watcher has all that was remembered.
    pub fn next_remembered(&mut self) -> Option<EventItem> {
        if self.is_of_other_run {
            self.is_of_other_run = false;
            self.last = lock(&self.engine.events.ring).oldest() - 1;
            return Some(EventItem::Missed(Missed { count: None }));
        }
        if self.page.is_empty() && self.is_behind {
            let missed = self.turn_page();
            if missed > 0 {
                return Some(EventItem::Missed(Missed { count: Some(missed) }));
            }
        }
        self.page.pop_front().map(|event| self.give(event))
    }

    /// Takes the next events out of the memory; gives how many were forgotten before them.
    fn turn_page(&mut self) -> u64 {
        let ring = lock(&self.engine.events.ring);
        let missed = (ring.oldest() - 1).saturating_sub(self.last);
        self.last += missed;
        self.page.extend(ring.after(self.last, PAGE).cloned());
        self.is_behind = self.page.len() == PAGE;
        missed
    }

    fn give(&mut self, event: Arc<NumberedEvent>) -> EventItem {
        self.last = event.number;
        EventItem::Event(event)
    }

    /// Names the last event given or missed, for a watcher that wants to go on behind it.
    pub fn position(&self) -> EventId {
        EventId { run: self.engine.events.run, number: self.last }
    }
}
