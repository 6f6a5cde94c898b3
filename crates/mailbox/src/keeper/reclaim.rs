//! Giving the oldest segment back, step by step: a try that did not help writes nothing again, and waits longer.

use std::collections::VecDeque;
use std::time::Duration;

use ron_log::Log;
use ron_types::Error;

use super::{Contents, CopyCandidate, blocking, contents_of, copy_forward, on_shard};
use crate::engine::Engine;

/// Messages copied forward in one job of a shard.
const COPIES_AT_ONCE: usize = 32;
/// Bytes copied forward in one job of a shard, or one message: they wait in memory for the disk.
const COPY_BYTES_AT_ONCE: u64 = 4 << 20;
/// Looks left out after a try that failed, at most: a minute.
const LOOKS_LEFT_OUT_MAX: u32 = 240;
/// How much faster the copying is while sends are refused for want of room.
const HURRY: u64 = 4;

/// One segment on its way out, with what is left to do.
struct Reclaim {
    segment: u32,
    batches: VecDeque<Vec<CopyCandidate>>,
    is_marked: bool,
    /// It got further since the last failure.
    has_advanced: bool,
}

/// Gives segments back while it is worth it.
#[derive(Default)]
pub(super) struct Reclaimer {
    /// Goes on where it broke off: keys that were written again are not written once more.
    begun: Option<Reclaim>,
    /// Tries in a row that came to nothing.
    failures: u32,
    looks_left_out: u32,
}

impl Reclaimer {
    /// Gives back all segments that are worth it now; after failures only at every second, fourth, eighth look.
    pub async fn look(&mut self, engine: &Engine, log: &Log) {
        if self.looks_left_out > 0 {
            self.looks_left_out -= 1;
            return;
        }
        while let Some(segment) = log.reclaimable() {
            match self.reclaim(engine, log, segment).await {
                Ok(()) => self.failures = 0,
                Err(error) => {
                    self.failures += 1;
                    self.looks_left_out = looks_left_out(self.failures);
                    let looks = self.looks_left_out + 1;
                    tracing::warn!(%error, segment, looks, "a segment of the log could not be reclaimed; tried again");
                    return;
                }
            }
        }
    }

    async fn reclaim(&mut self, engine: &Engine, log: &Log, segment: u32) -> Result<(), Error> {
        let mut reclaim = match self.begun.take().filter(|begun| begun.segment == segment) {
            Some(begun) => begun,
            None => Reclaim::begin(engine, log, segment).await?,
        };
        let done = reclaim.run(engine, log).await;
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
    /// Reads what is in the segment, and writes again what belongs to no shard; doing that twice writes it once.
    async fn begin(engine: &Engine, log: &Log, segment: u32) -> Result<Reclaim, Error> {
        let reader = log.clone();
        let Contents { messages, topics, moves } = blocking(move || contents_of(&reader, segment)).await?;
        topics.into_iter().try_for_each(|id| engine.write_topic_again(id, segment))?;
        moves.into_iter().try_for_each(|id| engine.write_moves_again(id, segment))?;
        Ok(Reclaim { segment, batches: batches(messages), is_marked: false, has_advanced: false })
    }

    async fn run(&mut self, engine: &Engine, log: &Log) -> Result<(), Error> {
        while let Some(batch) = self.batches.front() {
            let copied = copy_forward(engine, log, batch).await?;
            self.batches.pop_front();
            self.has_advanced = true;
            // Spread over time, so that consumers keep the disk.
            let rate = engine.live.get().value.upkeep_bytes_per_second.max(1);
            let hurry = if log.usage().shortage.is_some() { HURRY } else { 1 };
            tokio::time::sleep(Duration::from_secs_f64(copied as f64 / (rate * hurry) as f64)).await;
        }
        if !std::mem::replace(&mut self.is_marked, true) {
            engine.write_mark()?;
        }
        let (retirer, segment) = (log.clone(), self.segment);
        let retired = blocking(move || retirer.retire(segment)).await;
        if retired.is_err() {
            // Something there is needed that was not copied: only that is left to do.
            for index in 0..engine.shards.len() {
                let left = on_shard(engine, index, move |turn| Ok(CopyCandidate::of_shard(turn.shard, segment)));
                self.batches.append(&mut batches(left.await?));
            }
        }
        retired
    }
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
fn looks_left_out(failures: u32) -> u32 {
    (1_u32 << failures.min(16)).saturating_sub(1).min(LOOKS_LEFT_OUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_and_never_end() {
        let looks: Vec<u32> = (1..12).map(looks_left_out).collect();
        assert_eq!(looks, [1, 3, 7, 15, 31, 63, 127, 240, 240, 240, 240]);
        assert_eq!(looks_left_out(u32::MAX), LOOKS_LEFT_OUT_MAX);
    }
}
