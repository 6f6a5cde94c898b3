//! Looking through a topic: which messages are meant, and pages that are bounded in messages and in bytes.

use std::collections::BTreeMap;

use ron_kernel::Deadline;
use ron_types::Error;
use ron_types::limits::mailbox::RECV_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::Mailbox;
use super::answer::bytes_of_seen;
use super::inspect::Seen;
use crate::moves::MoveTask;
use crate::topics::Topic;
use crate::types::{DeadReason, MessageId, Millis, PartKey, Seq, State, Summary, TopicId, TopicName};

/// Maximum messages looked at for one page; then it is handed out as it is.
const LOOK_MAX: usize = 10_000;
/// Messages of one look at a shard.
const STEP: usize = 256;
/// Bytes read back at once, unless a single message is larger: what one caller may hold in memory.
const READ_BYTES_MAX: usize = RECV_BYTES_MAX;
/// Bytes read back for one page, shown or not; then it is handed out as it is.
const LOOK_BYTES_MAX: usize = 16 * READ_BYTES_MAX;
/// Bytes of one page as it is written, unless its only message is larger. As many as one receive may have.
const PAGE_BYTES_MAX: usize = RECV_BYTES_MAX;

/// Which messages are meant: those to which everything given applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Where they stand.
    pub state: Option<State>,
    /// Group the sender gave the messages.
    pub group: Option<String>,
    /// Attributes they must have with these values.
    pub attrs: BTreeMap<String, String>,
    /// Text their payload contains.
    pub payload_contains: Option<String>,
    /// Sent at or after.
    pub sent_after_ms: Option<Millis>,
    /// Sent before.
    pub sent_before_ms: Option<Millis>,
    /// Why they are dead.
    pub reason: Option<DeadReason>,
    /// Text their last error contains.
    pub error_contains: Option<String>,
}

/// A page of messages.
#[derive(Clone, Debug)]
pub struct Page {
    /// Messages to which the filter applies.
    pub messages: Vec<Seen>,
    /// Where the next page begins; none at the end.
    pub next: Option<MessageId>,
    /// Messages looked at for this page, matching or not.
    pub looked_at: usize,
}

/// Which messages of a topic a page shows.
struct Wanted<'a> {
    filter: &'a Filter,
    /// Topics whose dead letters are meant; none means every message.
    origins: Option<&'a [TopicId]>,
    limit: usize,
}

/// A page that is being filled.
struct Filling {
    page: Page,
    bytes_read: usize,
    bytes_written: usize,
    /// The last message that belongs to the page, shown or not.
    after: Option<Seq>,
}

impl Mailbox {
    /// A page of a topic's messages, without leasing any. Pages of a topic with several partitions go through one
    /// partition after the other.
    pub async fn browse(
        &self,
        name: &TopicName,
        filter: Filter,
        cursor: Option<MessageId>,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let topic = self.engine.topics.expect(name)?;
        self.page(&topic, Wanted { filter: &filter, origins: None, limit }, cursor, deadline).await
    }

    /// As [`Mailbox::browse`], of the dead letters of some topics only: a topic may hold those of many.
    pub async fn browse_letters_of(
        &self,
        name: &TopicName,
        origins: &[TopicName],
        cursor: Option<MessageId>,
        limit: usize,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let topics = &self.engine.topics;
        let origins = origins.iter().map(|origin| topics.expect(origin).map(|topic| topic.id));
        let origins: Vec<TopicId> = origins.collect::<Result<_, _>>()?;
        let wanted = Wanted { filter: &Filter::default(), origins: Some(&origins), limit };
        self.page(&*topics.expect(name)?, wanted, cursor, deadline).await
    }

    async fn page(
        &self,
        topic: &Topic,
        wanted: Wanted<'_>,
        cursor: Option<MessageId>,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let parts: Vec<PartKey> = topic.parts().collect();
        let (mut place, after) = self.start_of(&parts, cursor)?;
        let page = Page { messages: Vec::new(), next: None, looked_at: 0 };
        let mut filling = Filling { page, bytes_read: 0, bytes_written: 0, after };
        while let Some(part) = parts.get(place).copied() {
            let step = STEP.min(wanted.limit.saturating_mul(2).max(16));
            let from = filling.after;
            let summaries = self.on_part(part, deadline, move |turn| {
                let mut out = Vec::new();
                turn.shard.browse(part, from, step, &mut out);
                Ok(out)
            });
            let summaries = summaries.await?;
            let at_end = summaries.len() < step;
            if self.fill(&topic.name, &wanted, summaries, &mut filling).await? {
                filling.page.next = Some(self.cursor(place, filling.after.unwrap_or(0)));
                return Ok(filling.page);
            }
            if at_end {
                (place, filling.after) = (place + 1, None);
            }
        }
        Ok(filling.page)
    }

    /// Adds what is wanted of some messages to a page; whether the page has to end, before the last of them or with it.
    async fn fill(
        &self,
        topic: &TopicName,
        wanted: &Wanted<'_>,
        summaries: Vec<Summary>,
        filling: &mut Filling,
    ) -> Result<bool, Error> {
        let mut left = summaries.into_iter().peekable();
        while left.peek().is_some() {
            // What the index knows is asked before anything is read back.
            let (mut run, mut bytes, mut seqs) = (Vec::new(), 0, Vec::new());
            while let Some(summary) = left.next_if(|next| run.is_empty() || bytes + bytes_of(next) <= READ_BYTES_MAX) {
                seqs.push(summary.seq);
                if wanted.filter.matches_index(&summary) && is_letter_of(&summary, wanted.origins) {
                    bytes += bytes_of(&summary);
                    run.push(summary);
                }
            }
            filling.bytes_read += bytes;
            let mut seen = self.see(topic, run).await?.into_iter().peekable();
            for seq in seqs {
                if let Some(seen) = seen.next_if(|seen| seen.msg_id.seq == seq)
                    && wanted.filter.matches_content(&seen)
                    && !filling.take(seen)
                {
                    return Ok(true);
                }
                filling.after = Some(seq);
                filling.page.looked_at += 1;
                if filling.page.messages.len() >= wanted.limit || filling.page.looked_at >= LOOK_MAX {
                    return Ok(true);
                }
            }
            if filling.bytes_read >= LOOK_BYTES_MAX {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A cursor is an id of this node whose time is the place of the partition.
    fn cursor(&self, place: usize, seq: Seq) -> MessageId {
        self.engine.secret.message_id(place as u64, seq)
    }

    fn start_of(&self, parts: &[PartKey], cursor: Option<MessageId>) -> Result<(usize, Option<Seq>), Error> {
        let Some(cursor) = cursor else { return Ok((0, None)) };
        let known = self.engine.secret.check_id(cursor).is_ok();
        let place = cursor.sent_ms as usize;
        if !known || place >= parts.len() {
            return Err(Error::schema("cursor: not one that this node gave"));
        }
        Ok((place, Some(cursor.seq)))
    }

    /// The messages that a move means; where its filter asks for it, payloads are read back, a bounded number of bytes
    /// at a time.
    pub(crate) async fn matching(
        &self,
        part: PartKey,
        summaries: Vec<Summary>,
        task: &MoveTask,
    ) -> Result<Vec<Seq>, Error> {
        let filter = &task.filter;
        let is_meant =
            |summary: &Summary| filter.matches_index(summary) && is_letter_of(summary, task.origins.as_deref());
        let mut left = summaries.into_iter().filter(is_meant).peekable();
        if !filter.asks_for_content() {
            return Ok(left.map(|summary| summary.seq).collect());
        }
        let topic = self.topic_of_part(part)?;
        let mut meant = Vec::new();
        while left.peek().is_some() {
            let (mut run, mut bytes) = (Vec::new(), 0);
            while let Some(summary) = left.next_if(|next| run.is_empty() || bytes + bytes_of(next) <= READ_BYTES_MAX) {
                bytes += bytes_of(&summary);
                run.push(summary);
            }
            let seen = self.see(&topic.name, run).await?;
            meant.extend(seen.iter().filter(|seen| filter.matches_content(seen)).map(|seen| seen.msg_id.seq));
        }
        Ok(meant)
    }
}

/// Bytes that a message takes when it is read back.
fn bytes_of(summary: &Summary) -> usize {
    summary.content.bytes()
}

fn is_letter_of(summary: &Summary, origins: Option<&[TopicId]>) -> bool {
    let is_of = |origins: &[TopicId]| summary.dead.as_ref().is_some_and(|dead| origins.contains(&dead.source.topic));
    origins.is_none_or(is_of)
}

impl Filling {
    /// Takes a message into the page if there is room for it; the first has room whatever its size.
    fn take(&mut self, seen: Seen) -> bool {
        let bytes = self.bytes_written + bytes_of_seen(&seen);
        let has_room = self.page.messages.is_empty() || bytes <= PAGE_BYTES_MAX;
        if has_room {
            self.bytes_written = bytes;
            self.page.messages.push(seen);
        }
        has_room
    }
}

impl Filter {
    /// It applies to every message.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// What it asks of a message that is known without reading the message back.
    fn matches_index(&self, summary: &Summary) -> bool {
        let dead = summary.dead.as_ref();
        let error = dead.map_or("", |dead| &dead.last_error);
        self.state.is_none_or(|state| state == summary.state)
            && self.group.as_ref().is_none_or(|group| summary.group.as_deref() == Some(group))
            && self.sent_after_ms.is_none_or(|after| summary.sent_ms >= after)
            && self.sent_before_ms.is_none_or(|before| summary.sent_ms < before)
            && self.reason.is_none_or(|reason| dead.is_some_and(|dead| dead.reason == reason))
            && self.error_contains.as_ref().is_none_or(|wanted| error.contains(wanted))
    }

    fn asks_for_content(&self) -> bool {
        !self.attrs.is_empty() || self.payload_contains.is_some()
    }

    /// What it asks of a message's own bytes.
    fn matches_content(&self, seen: &Seen) -> bool {
        let contains = |wanted: &String| String::from_utf8_lossy(&seen.payload).contains(wanted);
        self.attrs.iter().all(|wanted| seen.attrs.iter().any(|(name, value)| wanted == (name, value)))
            && self.payload_contains.as_ref().is_none_or(contains)
    }
}
