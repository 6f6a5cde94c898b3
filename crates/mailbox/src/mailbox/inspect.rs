//! Looking without leasing.

use std::sync::Arc;

use bytes::Bytes;
use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::Mailbox;
use super::receive::{DeadInfo, owned};
use crate::envelope::Envelope;
use crate::types::{
    Attempt, BreakerState, BreakerView, Explanation, MessageId, Millis, PartKey, Seq, State, Summary, TopicName,
};

/// A message that was looked at.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Id of the message.
    pub msg_id: MessageId,
    /// The topic that holds it.
    pub topic: TopicName,
    /// When it was sent.
    pub sent_ms: Millis,
    /// The sender's idempotency key.
    pub idem_key: Option<String>,
    /// Payload of the message.
    pub payload: Bytes,
    /// BLAKE3 of the payload.
    pub payload_hash: [u8; 32],
    /// Attributes in the sender's order.
    pub attrs: Vec<(String, String)>,
    /// What ties it to other messages and requests.
    pub corr_id: String,
    /// Group the sender gave the message.
    pub group: Option<Arc<str>>,
    /// Deliveries so far.
    pub attempts: u32,
    /// Where it stands.
    pub state: State,
    /// When that changes by itself.
    pub due_ms: Option<Millis>,
    /// Why it is dead.
    pub dead: Option<DeadInfo>,
    /// Its bytes cannot be read or are not what was sent.
    pub damaged: bool,
}

/// Why a message is where it is.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The message as browsing shows it.
    pub seen: Seen,
    /// The reason in one sentence.
    pub verdict: String,
    /// The message of its group that it waits for.
    pub blocked_by: Option<MessageId>,
    /// Who has it and until when.
    pub lease: Option<(Attempt, Millis)>,
    /// Messages before it in its line.
    pub ahead: u64,
    /// The share of leases its noisy group holds, in percent.
    pub noisy_share: Option<u8>,
    /// Leases its partition may give at once, if it has given all of them.
    pub leases_max: Option<u64>,
    /// Its topic is paused.
    pub paused: bool,
    /// Whether the breaker of its partition lets messages out.
    pub breaker: BreakerView,
    /// Deliveries so far.
    pub history: Vec<Attempt>,
}

impl Mailbox {
    pub(super) async fn see(&self, topic: &TopicName, summaries: Vec<Summary>) -> Result<Vec<Seen>, Error> {
        let bodies = self.read_back(summaries.iter().map(|summary| summary.content.clone()).collect()).await?;
        let seen = summaries.into_iter().zip(bodies).map(|(summary, body)| match body {
            // A message that could not be read now must not be called damaged.
            Err(error) if error.kind != Kind::Integrity => Err(error),
            body => Ok(self.seen(topic, summary, body)),
        });
        seen.collect()
    }

    pub(super) fn seen(&self, topic: &TopicName, summary: Summary, body: Result<Bytes, Error>) -> Seen {
        let body = body.unwrap_or_default();
        let envelope = Envelope::decode(&body).ok().filter(Envelope::is_intact);
        let damaged = envelope.is_none();
        let envelope = envelope.unwrap_or_default();
        Seen {
            msg_id: self.engine.secret.message_id(summary.sent_ms, summary.seq),
            topic: topic.clone(),
            sent_ms: summary.sent_ms,
            idem_key: envelope.idem_key.map(str::to_owned),
            payload_hash: envelope.payload_hash,
            attrs: owned(&envelope.attrs),
            corr_id: envelope.corr_id.unwrap_or_default().to_owned(),
            payload: envelope.payload,
            group: summary.group,
            attempts: summary.attempts,
            state: summary.state,
            due_ms: summary.due_ms,
            dead: summary.dead.as_ref().map(|dead| self.dead_info(dead)),
            damaged,
        }
    }

    /// Why a message is not being delivered, or who has it.
    pub async fn explain(&self, id: MessageId, deadline: Deadline) -> Result<Explained, Error> {
        let part = self.place_of(id, deadline).await?;
        let topic = self.topic_of_part(part)?;
        let explained = self.on_part(part, deadline, move |turn| Ok(turn.shard.explain(turn.now, part, id.seq)));
        let gone = || Error::new(Kind::NotFound, format!("message {id} has just gone"));
        let Explanation { summary, lease, blocked_by, ahead, noisy_share, leases_max, paused, breaker, history } =
            explained.await?.ok_or_else(gone)?;
        let blocked_by = match blocked_by {
            Some(seq) => self.id_of(part, seq, deadline).await?,
            None => None,
        };
        let mut seen = self.see(&topic.name, vec![summary]).await?;
        let seen = seen.pop().ok_or_else(gone)?;
        let mut explained = Explained {
            seen,
            verdict: String::new(),
            blocked_by,
            lease,
            ahead,
            noisy_share,
            leases_max,
            paused,
            breaker,
            history,
        };
        explained.verdict = explained.in_words(self.now(), self.engine.leases_spent());
        Ok(explained)
    }

    async fn id_of(&self, part: PartKey, seq: Seq, deadline: Deadline) -> Result<Option<MessageId>, Error> {
        let found = self.on_part(part, deadline, move |turn| Ok(turn.shard.explain(turn.now, part, seq))).await?;
        Ok(found.map(|found| self.engine.secret.message_id(found.summary.sent_ms, seq)))
    }
}

impl Explained {
    /// The reason in one sentence, the strongest one first; `node_max` are the leases of the node if all are given.
    fn in_words(&self, now: Millis, node_max: Option<u64>) -> String {
        let in_ms = |due: Millis| due.saturating_sub(now);
        if let Some((attempt, until)) = &self.lease {
            return format!(
                "{} has it, delivery {}, for another {} ms",
                attempt.consumer,
                attempt.number,
                in_ms(*until)
            );
        }
        if let (State::Delayed, Some(due)) = (self.seen.state, self.seen.due_ms) {
            return format!("it waits another {} ms for its time", in_ms(due));
        }
        if self.paused {
            return "its topic is paused".to_owned();
        }
        match (self.breaker.state, self.breaker.until_ms) {
            (BreakerState::Closed, _) => {}
            (BreakerState::Open, Some(until)) => {
                return format!(
                    "too many deliveries of its topic fail: they are paused for another {} ms",
                    in_ms(until)
                );
            }
            _ => {
                return "too many deliveries of its topic failed: one message at a time is delivered until one is \
                        acknowledged"
                    .to_owned();
            }
        }
        if let Some(blocker) = self.blocked_by {
            return format!(
                "its group waits for message {blocker}, which is with a consumer or waits for its next try"
            );
        }
        if let Some(max) = self.leases_max {
            return format!(
                "its topic has as many messages in flight as it may, {max} for each partition (`inflight_max`): it is \
                 delivered when one of them is acknowledged or its lease ends"
            );
        }
        if let Some(max) = node_max {
            return format!(
                "the node has as many messages in flight as it may, {max} (`mailbox.global_inflight`): it is delivered \
                 when some of them are acknowledged or their leases end"
            );
        }
        if let Some(share) = self.noisy_share {
            return format!("its group holds {share} % of all leases: quiet groups are served first");
        }
        if let Some(dead) = &self.seen.dead {
            return format!("it is a dead letter of {} after {} deliveries", dead.source, dead.attempts);
        }
        format!("nothing holds it: it is delivered to the next receiver after {} messages before it", self.ahead)
    }
}
