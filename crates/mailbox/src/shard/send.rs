//! Taking messages in.

use ron_types::limits::mailbox::KEY_BYTES_MAX;
use ron_types::{Error, Kind};

use super::{Journal, Send, Sent, Shard};
use crate::bounds::check_delay;
use crate::partition::Partition;
use crate::record::{Record, Taken};
use crate::types::{Dedup, Millis, PartKey};

/// Keys a send forgets beside its own work, so that forgetting keeps up with remembering.
const SWEEP: usize = 2;
/// Keys a send forgets when no more fit.
const SWEEP_FULL: usize = 1000;

impl Shard {
    /// Refuses messages for a topic that takes more memory than is left to all others, so that whoever comes next finds
    /// as much as each has. Like other bounds of a topic it is divided among its partitions.
    pub fn admit_memory(&self, part: PartKey, memory_free: u64) -> Result<(), Error> {
        let Some(part) = self.parts.get(&part) else { return Ok(()) };
        let used = part.memory_bytes();
        if used <= part.share(memory_free) {
            return Ok(());
        }
        let detail = format!(
            "the topic takes its share of the memory for messages ({used} bytes in this partition; \
             `mailbox.memory_bytes_max`); acknowledge some to make room"
        );
        Err(Error::new(Kind::Busy, detail))
    }

    /// Refuses keys of a topic whose keys take more memory than is left for those of all others, as
    /// [`Shard::admit_memory`] does with messages.
    pub(crate) fn admit_keys(&mut self, now: Millis, part: PartKey, keys_free: u64) -> Result<(), Error> {
        let Some(part) = self.parts.get_mut(&part) else { return Ok(()) };
        let share = part.share(keys_free);
        if part.keys.memory_bytes() <= share {
            return Ok(());
        }
        part.keys.sweep(now, SWEEP_FULL);
        let used = part.keys.memory_bytes();
        if used <= share {
            return Ok(());
        }
        let detail = format!(
            "the topic's idempotency keys take their share of the memory for keys ({used} bytes in this partition; \
             `mailbox.key_bytes_max`); they are forgotten when their replay window ends"
        );
        Err(Error::new(Kind::Busy, detail))
    }

    /// The message that a send's key stands for, taken in before.
    pub(crate) fn sent_before(&self, now: Millis, send: &Send<'_>) -> Result<Option<Sent>, Error> {
        self.parts.get(&send.part).map_or(Ok(None), |part| part.sent_before(now, send))
    }

    /// Takes a message in, unless its key says that it was taken in before.
    pub fn send(&mut self, now: Millis, journal: &mut dyn Journal, send: Send<'_>) -> Result<Sent, Error> {
        let (part, context) = self.part_mut(send.part);
        if let Some(sent) = part.sent_before(now, &send)? {
            return Ok(sent);
        }
        let delay_ms = send.delay_ms.unwrap_or(part.settings.delay_ms);
        part.admit(now, &send, delay_ms)?;
        let taken = Taken {
            part: send.part,
            seq: send.seq,
            sent_ms: send.sent_ms,
            due_ms: send.sent_ms.saturating_add(delay_ms),
            body_len: send.body.len() as u32,
            group: send.group,
            key: send.key.map(|key| (key, send.sent_ms.saturating_add(part.settings.replay_window_ms))),
        };
        let record = Record::Send(taken);
        let position = context.write_with(journal, &record, &send.body)?;
        if let Record::Send(taken) = &record {
            part.apply_send(taken, (position, taken.body_len), now);
        }
        part.counts.sent += 1;
        context.hot.put(send.seq, send.body);
        context.finish(part);
        Ok(Sent { seq: send.seq, sent_ms: send.sent_ms, duplicate: false })
    }
}

impl Partition {
    fn sent_before(&self, now: Millis, send: &Send<'_>) -> Result<Option<Sent>, Error> {
        let Some(key) = send.key else { return Ok(None) };
        let Some((seq, memo)) = self.keys.get(now, key.hash) else { return Ok(None) };
        if send.dedup == Dedup::Payload && memo.key.payload != key.payload {
            return Err(Error::new(Kind::Conflict, "the idempotency key was used before with another payload"));
        }
        Ok(Some(Sent { seq, sent_ms: memo.sent_ms, duplicate: true }))
    }

    fn admit(&mut self, now: Millis, send: &Send<'_>, delay_ms: u64) -> Result<(), Error> {
        if send.group.is_some_and(|group| group.len() > KEY_BYTES_MAX) {
            return Err(Error::schema(format!("group: it has more than {KEY_BYTES_MAX} bytes")));
        }
        // Once more, because the retention may have been shortened since the message was prepared.
        check_delay(delay_ms, self.settings.retention_ms)?;
        if self.index.len() as u64 >= self.share(self.settings.messages_max) {
            return Err(Error::busy("the topic's quota of messages"));
        }
        self.admit_bytes(send.body.len() as u64)?;
        if send.key.is_some() {
            self.keys.sweep(now, SWEEP);
        }
        Ok(())
    }

    /// Whether this many more bytes are within the topic's quota.
    pub(super) fn admit_bytes(&self, more: u64) -> Result<(), Error> {
        if self.bytes() + more > self.share(self.settings.bytes_max) {
            return Err(Error::busy("the topic's quota of bytes"));
        }
        Ok(())
    }
}
