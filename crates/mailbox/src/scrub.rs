//! The scrub: all of the log is read and checked once a day, at a bounded rate, and whenever the operator asks.

mod state;

use std::time::Duration;

use ron_kernel::clock;
use ron_log::{Log, LogError, SegmentFindings, SegmentScrub, StretchFinding};
use ron_types::Error;

use crate::engine::Engine;
use crate::mailbox::Mailbox;
use crate::record::Record;
use crate::types::Millis;

pub(crate) use state::Scrubber;
pub use state::{DamagedMessage, ScrubFinding, ScrubPass, ScrubView};

/// Time from the start of one pass to the start of the next.
pub(crate) const EVERY: Duration = Duration::from_secs(24 * 3600);
/// Time from the start of the node to its first pass: long enough to leave the start alone, short enough that a node
/// restarted often is checked all the same.
pub(crate) const FIRST_AFTER: Duration = Duration::from_secs(600);
/// A daily pass takes this part of the rate of upkeep, so that compaction keeps what it was promised; one that was
/// asked for takes all of it, because somebody waits.
pub(crate) const DAILY_SHARE: u64 = 4;

/// What a scrub needs of the mailbox; tests bring their own.
pub(crate) struct ScrubContext<'a> {
    pub log: &'a Log,
    pub scrubber: &'a Scrubber,
    /// Bytes in a second that all upkeep may move; asked before each piece, because a reload may change it.
    pub bytes_per_second: &'a (dyn Fn() -> u64 + Sync),
    pub now_ms: &'a (dyn Fn() -> Millis + Sync),
    /// Names the message a record's head speaks of.
    pub name: &'a (dyn Fn(&[u8]) -> Option<DamagedMessage> + Sync),
    /// Told once of every new damage, with the records lost.
    pub damaged: &'a (dyn Fn(u64) + Sync),
}

/// Scrubs whenever it is due until the node drains; never ends by itself.
pub(crate) async fn scrub(engine: &Engine, log: &Log) {
    let context = ScrubContext {
        log,
        scrubber: &engine.scrubber,
        bytes_per_second: &|| engine.live.get().value.upkeep_bytes_per_second,
        now_ms: &|| engine.opened().map_or(0, |opened| opened.clock.now()),
        name: &|head| engine.name_damaged(head),
        damaged: &|records| engine.integrity_failed("scrub", records),
    };
    tokio::select! {
        () = engine.draining() => {}
        () = context.run() => {}
    }
    // The last syncs of a drain have the disk to themselves; the keeper ends this with its own end.
    std::future::pending().await
}

impl Mailbox {
    /// Has all of the log checked now; a pass that runs already is joined.
    pub fn scrub_now(&self) -> Result<ScrubView, Error> {
        let now_ms = self.engine.opened()?.clock.now();
        self.engine.scrubber.ask(now_ms);
        Ok(self.scrub_view())
    }

    /// Where the scrub stands and what it found.
    pub fn scrub_view(&self) -> ScrubView {
        self.engine.scrubber.view()
    }
}

impl Engine {
    fn name_damaged(&self, head: &[u8]) -> Option<DamagedMessage> {
        let (part, sent_ms, seq) = match Record::decode(head).ok()? {
            Record::Send(taken) => (taken.part, taken.sent_ms, taken.seq),
            Record::Edit(whole) | Record::Relocated(whole) => (whole.part, whole.sent_ms, whole.seq),
            _ => return None,
        };
        // A topic that is gone has no name any more, and nobody misses its messages.
        let topic = self.topics.by_id(part.topic)?.name.clone();
        let msg_id = self.secret.message_id(sent_ms, seq).to_string();
        Some(DamagedMessage { topic, partition: part.partition, msg_id })
    }
}

impl ScrubContext<'_> {
    /// One pass after the other, each when it is due.
    pub async fn run(&self) {
        loop {
            self.scrubber.until_due(self.now_ms).await;
            let ended = self.pass().await.err().map(|error| error.to_string());
            if let Some(error) = &ended {
                tracing::warn!(error, "a scrub of the log broke off; it is tried again tomorrow, or when asked for");
            }
            self.scrubber.end((self.now_ms)(), ended);
        }
    }

    /// Checks every segment that this pass has not checked yet: after a restart of the keeper it goes on there.
    async fn pass(&self) -> Result<(), LogError> {
        let spans = self.log.settled_segments();
        for span in self.scrubber.left_of(&spans) {
            match self.segment(span.segment).await {
                Ok(findings) => self.take_in(&findings, span.bytes),
                // Given back by compaction: nothing in it was needed.
                Err(LogError::Gone { .. }) => self.scrubber.skip(span),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn segment(&self, segment: u32) -> Result<SegmentFindings, LogError> {
        let log = self.log.clone();
        let mut scrub = blocking(move || log.scrub_segment(segment)).await?;
        loop {
            let (returned, read) = blocking(move || read_piece(scrub)).await?;
            scrub = returned;
            if read == 0 {
                return blocking(move || scrub.finish()).await;
            }
            self.scrubber.has_read(read);
            tokio::time::sleep(self.pause_after(read)).await;
        }
    }

    /// Time that reading `bytes` may take at the configured rate.
    fn pause_after(&self, bytes: u64) -> Duration {
        let all = (self.bytes_per_second)();
        let rate = if self.scrubber.is_asked_for() { all } else { all / DAILY_SHARE };
        Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
    }

    fn take_in(&self, findings: &SegmentFindings, planned_bytes: u64) {
        let segment = findings.span.segment;
        if findings.header_damaged && self.scrubber.is_news((segment, 0, 0)) {
            tracing::error!(segment, "a copy of the header of a segment of the log is damaged");
        }
        let found = findings.stretches.iter().map(|stretch| self.finding(stretch)).collect();
        self.scrubber.take_in(findings, planned_bytes, found);
    }

    /// A damaged stretch as it is shown; named in the journal of the node the first time it is found.
    fn finding(&self, stretch: &StretchFinding) -> ScrubFinding {
        let damage = stretch.damage;
        let messages: Vec<_> = stretch.records.iter().filter_map(|record| (self.name)(&record.head)).collect();
        let is_new = self.scrubber.is_news((damage.segment, damage.offset, damage.len));
        if is_new {
            (self.damaged)(damage.records);
        }
        if is_new && self.scrubber.may_name() {
            let (segment, offset, len, records) = (damage.segment, damage.offset, damage.len, damage.records);
            let named: Vec<_> = messages.iter().map(|message| (message.topic.as_str(), &message.msg_id)).collect();
            tracing::error!(segment, offset, len, records, messages = ?named, "the log is damaged here");
        }
        ScrubFinding {
            segment: damage.segment,
            offset: damage.offset,
            bytes: damage.len,
            records: damage.records,
            first_lsn: damage.first.0,
            is_new,
            messages,
        }
    }
}

fn read_piece(mut scrub: SegmentScrub) -> Result<(SegmentScrub, u64), LogError> {
    let read = scrub.read_piece()?;
    Ok((scrub, read))
}

/// Waits for the disk on a thread that may. A task that is dropped meanwhile leaves one piece behind, no more.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(LogError::Closed))
}

/// The instant of the next pass, as people read it.
fn due_ms(now_ms: Millis, due: tokio::time::Instant) -> Millis {
    now_ms + due.saturating_duration_since(clock::now()).as_millis() as u64
}

#[cfg(test)]
mod tests;
