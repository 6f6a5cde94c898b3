//! Giving the oldest segment back, step by step: a try that did not help writes nothing again, and waits longer.
//!
//! A segment in which nothing is needed goes at once, unread. Copying what is needed of another is spread over time by
//! the bytes that are really copied, and the less so the fuller the log is: what would refuse sends has the whole disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ron_log::{Log, Usage};
use ron_types::{Error, Kind};

use super::{AllShards, CopyCandidate, LOOK_EVERY, Unreadable, blocking, candidates_of, copy_forward};
use crate::engine::{Engine, log_error};

/// Messages copied forward in one job of a shard: a turn of some hundred microseconds.
const COPIES_AT_ONCE: usize = 256;
/// Bytes copied forward in one job of a shard, or one message: they wait in memory for the disk.
const COPY_BYTES_AT_ONCE: u64 = 1 << 20;
/// Bytes that wait in memory for the disk before copying goes on; more room is left to those who send.
const GATHERED_BYTES_MAX: u64 = 8 << 20;
/// Records looked up while all shards are held: their callers wait no longer than for some tens of microseconds.
const LOOKED_UP_AT_ONCE: usize = 128;
/// Looks left out after a try that failed, at most: a minute.
const LOOKS_LEFT_OUT_MAX: u32 = 240;
/// Looks left out at most where there was no room for copies or no place in a queue: nothing is wrong then.
const LOOKS_LEFT_OUT_BUSY_MAX: u32 = 3;
/// Tries in a row, over some two minutes, after which a log without room gives up messages that the disk does not give.
/// One bad sector would keep the oldest segment and so all: sends are refused then, acknowledgements soon after.
const UNREADABLE_TRIES_MIN: u32 = 8;
/// How much faster the copying is in a log that is more than half full.
const HURRY: u64 = 4;
/// A shorter pause is saved up: a timer is no more exact than this.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// One segment on its way out, with what is left to do.
struct Reclaim {
    segment: u32,
    batches: VecDeque<Vec<CopyCandidate>>,
    is_marked: bool,
    /// It got further since the last failure.
    has_advanced: bool,
    /// Tries in a row in which the log did not give what is to be copied next.
    unread_tries: u32,
}

/// Gives segments back while it is worth it.
#[derive(Default)]
pub(super) struct Reclaimer {
    /// Goes on where it broke off: keys that were written again are not written once more.
    begun: Option<Reclaim>,
    /// Tries in a row that came to nothing.
    failures: u32,
    looks_left_out: u32,
    pace: Pace,
}

impl Reclaimer {
    /// Gives back all segments that are worth it now; after failures only at every second, fourth, eighth look.
    pub async fn look(&mut self, engine: &Arc<Engine>, log: &Log) {
        if self.looks_left_out > 0 {
            self.looks_left_out -= 1;
            return;
        }
        loop {
            log.set_kept_bytes(engine.kept_bytes());
            let Some(segment) = log.reclaimable() else { return };
            match self.reclaim(engine, log, segment).await {
                Ok(()) => self.failures = 0,
                Err(error) => {
                    self.failures += 1;
                    self.looks_left_out = looks_left_out(self.failures, error.kind);
                    let looks = self.looks_left_out + 1;
                    tracing::warn!(%error, segment, looks, "a segment of the log could not be reclaimed; tried again");
                    return;
                }
            }
        }
    }

    async fn reclaim(&mut self, engine: &Arc<Engine>, log: &Log, segment: u32) -> Result<(), Error> {
        let mut reclaim = match self.begun.take().filter(|begun| begun.segment == segment) {
            Some(begun) => begun,
            None => Reclaim::begin(engine, log, segment).await?,
        };
        let done = reclaim.run(engine, log, &mut self.pace).await;
        if std::mem::take(&mut reclaim.has_advanced) {
            self.failures = 0;
        }
        if done.is_err() {
            self.begun = Some(reclaim);
        }
        done
    }
}

impl Reclaim {
    /// Finds out what is needed of the segment, and writes again what belongs to no shard; doing that twice writes it
    /// once.
    async fn begin(engine: &Arc<Engine>, log: &Log, segment: u32) -> Result<Reclaim, Error> {
        let (asked, reader) = (Arc::clone(engine), log.clone());
        // On a thread of its own from the start: a node may have very many topics.
        let needed = blocking(move || {
            let topics = &asked.topics;
            let told = topics.newest.topics_until(segment);
            told.into_iter().try_for_each(|id| asked.write_topic_again(id, segment))?;
            topics.moves.topics().into_iter().try_for_each(|id| asked.write_moves_again(id, segment))?;
            needed_of(&asked, &reader, segment)
        });
        let needed = needed.await?;
        Ok(Reclaim { segment, batches: batches(needed), is_marked: false, has_advanced: false, unread_tries: 0 })
    }

    async fn run(&mut self, engine: &Arc<Engine>, log: &Log, pace: &mut Pace) -> Result<(), Error> {
        while let Some(batch) = self.batches.front() {
            let is_wedged = self.unread_tries >= UNREADABLE_TRIES_MIN && log.usage().shortage.is_some();
            let unreadable = if is_wedged { Unreadable::Lost } else { Unreadable::TriedAgain };
            let copied = copy_forward(engine, log, batch, unreadable).await.inspect_err(|error| {
                // A refusal for want of room or of a place in a queue is another kind.
                self.unread_tries += u32::from(error.kind == Kind::Degraded);
            })?;
            self.unread_tries = 0;
            self.batches.pop_front();
            self.has_advanced = true;
            if log.usage().gathered_bytes > GATHERED_BYTES_MAX {
                let flushed = log.clone();
                blocking(move || flushed.flush().map_err(log_error)).await?;
            }
            pace.wait_for(copied, engine, log).await;
        }
        if !self.is_marked {
            engine.write_mark()?;
            // Only now: without the mark, numbers that were given out would be forgotten with the segment.
            self.is_marked = true;
        }
        let (retirer, segment) = (log.clone(), self.segment);
        let retired = blocking(move || retirer.retire(segment).map_err(log_error)).await;
        if retired.is_err() {
            // Something there is needed that was not copied: only that is left to do.
            let (asked, released) = (Arc::clone(engine), log.clone());
            let left = blocking(move || left_in(&asked, &released, segment)).await?;
            self.batches.append(&mut batches(left));
        }
        retired
    }
}

/// What has to be written again before a segment may go: its messages that are still there, and keys that are
/// remembered. Blocking, and as long as the segment, unless nothing in it is needed.
fn needed_of(engine: &Engine, log: &Log, segment: u32) -> Result<Vec<CopyCandidate>, Error> {
    let keys = AllShards::hold(engine)?.keys();
    let candidates = candidates_of(log, segment, keys).map_err(log_error)?;
    let now = engine.opened()?.clock.now();
    let mut needed = Vec::new();
    for some in candidates.chunks(LOOKED_UP_AT_ONCE) {
        let all = AllShards::hold(engine)?;
        let is_needed = |candidate: &&CopyCandidate| (0..all.slots.len()).any(|at| all.concerns(at, now, candidate));
        needed.extend(some.iter().filter(is_needed).copied());
    }
    Ok(needed)
}

/// Messages that keep a segment although none of its records told of them. If there is none, nobody needs what the log
/// counts there: a turn that panicked took its releases with it.
fn left_in(engine: &Engine, log: &Log, segment: u32) -> Result<Vec<CopyCandidate>, Error> {
    let all = AllShards::hold(engine)?;
    let Some(left) = all.messages_in(segment) else { return Ok(Vec::new()) };
    if left.is_empty() {
        // With all shards still held: no turn is under way whose releases are yet to come.
        let bytes = log.release_segment(segment);
        tracing::warn!(segment, bytes, "nobody needs what is left in a segment of the log; it can be given back");
    }
    Ok(left)
}

/// Parts of a segment that are copied one after the other.
fn batches(messages: Vec<CopyCandidate>) -> VecDeque<Vec<CopyCandidate>> {
    let mut batches: VecDeque<Vec<CopyCandidate>> = VecDeque::new();
    let mut bytes = 0;
    for message in messages {
        let len = u64::from(message.position.len);
        match batches.back_mut() {
            Some(batch) if batch.len() < COPIES_AT_ONCE && bytes + len <= COPY_BYTES_AT_ONCE => {
                batch.push(message);
                bytes += len;
            }
            _ => {
                batches.push_back(vec![message]);
                bytes = len;
            }
        }
    }
    batches
}

/// Looks left out after so many failures in a row.
fn looks_left_out(failures: u32, kind: Kind) -> u32 {
    let looks_max = if kind == Kind::Busy { LOOKS_LEFT_OUT_BUSY_MAX } else { LOOKS_LEFT_OUT_MAX };
    (1_u32 << failures.min(16)).saturating_sub(1).min(looks_max)
}

/// Spreads copies over time, so that consumers keep the disk.
#[derive(Default)]
struct Pace {
    /// Bytes copied that were not paused for yet.
    owed_bytes: u64,
}

impl Pace {
    async fn wait_for(&mut self, copied: u64, engine: &Engine, log: &Log) {
        self.owed_bytes += copied;
        // In slices, because a log that fills up meanwhile is no longer to be waited for.
        while let Some((pause, paid_bytes)) =
            self.next_slice(engine.live.get().value.upkeep_bytes_per_second, &log.usage())
        {
            tokio::time::sleep(pause).await;
            self.owed_bytes -= paid_bytes;
        }
    }

    /// A pause and the bytes that it pays for; none if little is owed, or there is no time for pauses.
    fn next_slice(&mut self, bytes_per_second: u64, usage: &Usage) -> Option<(Duration, u64)> {
        let Some(rate) = rate_at(bytes_per_second, usage) else {
            self.owed_bytes = 0;
            return None;
        };
        let pause = Duration::from_secs_f64(self.owed_bytes as f64 / rate as f64);
        if pause < PAUSE_MIN {
            return None;
        }
        let slice = pause.min(LOOK_EVERY);
        let paid_bytes = if slice == pause { self.owed_bytes } else { (slice.as_secs_f64() * rate as f64) as u64 };
        Some((slice, paid_bytes.min(self.owed_bytes)))
    }
}

/// Bytes in a second that may be copied; none is as fast as it goes.
fn rate_at(bytes_per_second: u64, usage: &Usage) -> Option<u64> {
    let (used, max) = (usage.bytes_total, usage.data_bytes_max);
    if usage.shortage.is_some() || used >= max / 4 * 3 {
        None
    } else if used >= max / 2 {
        Some(bytes_per_second.max(1).saturating_mul(HURRY))
    } else {
        Some(bytes_per_second.max(1))
    }
}

#[cfg(test)]
mod tests;
