//! Settling: acknowledging, failing and prolonging deliveries, by their receipts.

use std::time::Duration;

use ron_kernel::Deadline;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};

use super::Mailbox;
use crate::bounds;
use crate::job::Turn;
use crate::receipt::Receipt;
use crate::shard::{Fencing, Nack, Nacked};
use crate::types::{MessageId, Millis, PartKey, TopicName};

impl Mailbox {
    /// Acknowledges deliveries: the messages are gone for good. Each has its own outcome, in order.
    pub async fn ack(&self, receipts: Vec<Receipt>, deadline: Deadline) -> Vec<Result<(), Error>> {
        self.ack_fenced(receipts, Fencing::Newest, deadline).await
    }

    /// As [`Mailbox::ack`], for a surface that promises that older receipts count too.
    pub async fn ack_fenced(
        &self,
        receipts: Vec<Receipt>,
        fencing: Fencing,
        deadline: Deadline,
    ) -> Vec<Result<(), Error>> {
        self.settle(receipts, deadline, move |turn, part, receipts| {
            let items: Vec<_> = receipts.iter().map(|receipt| (receipt.seq, receipt.fence)).collect();
            turn.shard.ack_fenced(turn.now, turn.journal, part, &items, fencing)
        })
        .await
    }

    /// Says that deliveries failed: the messages come again after a while, or die.
    pub async fn nack(
        &self,
        receipts: Vec<Receipt>,
        reason: &str,
        delay_ms: Option<u64>,
        reject: bool,
        deadline: Deadline,
    ) -> Vec<Result<Nacked, Error>> {
        if let Err(error) = bounds::check_nack_delay(delay_ms) {
            return all_refused(&receipts, &error);
        }
        let reason: String = reason.chars().take(limits::REASON_BYTES_MAX / 4).collect();
        self.settle(receipts, deadline, move |turn, part, receipts| {
            let nack = Nack { reason: &reason, delay_ms, reject };
            let each = receipts.iter().map(|receipt| {
                let draw = crate::random::draw();
                turn.shard.nack(turn.now, turn.journal, part, receipt.seq, receipt.fence, nack, draw)
            });
            each.collect()
        })
        .await
    }

    /// Gives leases a new end, counted from now; 0 gives the messages back at once.
    pub async fn extend(
        &self,
        receipts: Vec<Receipt>,
        visibility_ms: u64,
        deadline: Deadline,
    ) -> Vec<Result<Millis, Error>> {
        self.extend_fenced(receipts, visibility_ms, Fencing::Newest, deadline).await
    }

    /// As [`Mailbox::extend`], for a surface that promises that older receipts count too.
    pub async fn extend_fenced(
        &self,
        receipts: Vec<Receipt>,
        visibility_ms: u64,
        fencing: Fencing,
        deadline: Deadline,
    ) -> Vec<Result<Millis, Error>> {
        if let Err(error) = bounds::check_visibility(visibility_ms, Duration::ZERO) {
            return all_refused(&receipts, &error);
        }
        self.settle(receipts, deadline, move |turn, part, receipts| {
            let each = receipts.iter().map(|receipt| {
                let lease = (receipt.seq, receipt.fence);
                turn.shard.extend_fenced(turn.now, turn.journal, part, lease, visibility_ms, fencing)
            });
            each.collect()
        })
        .await
    }

    /// Whether the message of a delivery is still in its topic, in whatever state and with whomever.
    pub async fn is_held(&self, receipt: &Receipt, deadline: Deadline) -> Result<bool, Error> {
        self.engine.secret.check(receipt)?;
        let (part, seq) = (receipt.part, receipt.seq);
        if self.engine.topics.by_id(part.topic).is_none() {
            return Ok(false);
        }
        self.on_part(part, deadline, move |turn| Ok(turn.shard.is_held(part, seq))).await
    }

    /// The receipt of a message's current lease, for those who know it only by its id.
    pub async fn current_receipt(&self, id: MessageId, deadline: Deadline) -> Result<(TopicName, Receipt), Error> {
        let part = self.place_of(id, deadline).await?;
        let lease = self.on_part(part, deadline, move |turn| Ok(turn.shard.fence_of(part, id.seq))).await?;
        let fence = lease.ok_or_else(|| Error::new(Kind::NotFound, format!("message {id} is not with a consumer")))?;
        let receipt = self.engine.secret.receipt(part, id.seq, fence, self.now());
        Ok((self.topic_of_part(part)?.name.clone(), receipt))
    }

    /// Does `work` to each partition's receipts on its shard's turn, and puts the outcomes back in order.
    async fn settle<R: Send + 'static>(
        &self,
        receipts: Vec<Receipt>,
        deadline: Deadline,
        work: impl Fn(&mut Turn<'_>, PartKey, &[Receipt]) -> Vec<Result<R, Error>> + Clone + Send + 'static,
    ) -> Vec<Result<R, Error>> {
        if let Err(error) = bounds::check_call("receipts", receipts.len()) {
            return all_refused(&receipts, &error);
        }
        let mut outcomes: Vec<Option<Result<R, Error>>> = Vec::with_capacity(receipts.len());
        let mut by_part: Vec<(PartKey, Vec<usize>, Vec<Receipt>)> = Vec::new();
        for (place, receipt) in receipts.into_iter().enumerate() {
            if let Err(error) = self.engine.secret.check(&receipt) {
                outcomes.push(Some(Err(error)));
                continue;
            }
            outcomes.push(None);
            match by_part.iter_mut().find(|(part, _, _)| *part == receipt.part) {
                Some((_, places, group)) => {
                    places.push(place);
                    group.push(receipt);
                }
                None => by_part.push((receipt.part, vec![place], vec![receipt])),
            }
        }
        // Every shard is asked under one permit: a batch is settled as a whole or refused as a whole.
        let begin = || {
            let begun = by_part.into_iter().map(|(part, places, group)| {
                let work = work.clone();
                let asked = self.begin_on_part(part, deadline, move |turn| Ok(work(turn, part, &group)));
                async move {
                    match asked {
                        Ok(asked) => (places, asked.await),
                        Err(error) => (places, Err(error)),
                    }
                }
            });
            Ok(begun.collect::<Vec<_>>())
        };
        let asked = match self.operation(begin) {
            Ok(asked) => asked,
            Err(error) => {
                return outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(error.clone()))).collect();
            }
        };
        for (places, done) in futures_util::future::join_all(asked).await {
            match done {
                Ok(done) => places.into_iter().zip(done).for_each(|(place, result)| outcomes[place] = Some(result)),
                Err(error) => places.into_iter().for_each(|place| outcomes[place] = Some(Err(error.clone()))),
            }
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(super::lost()))).collect()
    }
}

fn all_refused<R>(receipts: &[Receipt], error: &Error) -> Vec<Result<R, Error>> {
    receipts.iter().map(|_| Err(error.clone())).collect()
}
