//! Receiving: leases are taken on the shard's turn; bytes that are no longer in memory are read back afterwards.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ron_auth::Subject;
use ron_kernel::Deadline;
use ron_log::LogError;
use ron_types::limits::mailbox::{self as limits, SHARDS_MAX};
use ron_types::{Error, Kind};
use tokio::sync::oneshot;

use super::{Mailbox, answer};
use crate::bounds;
use crate::engine::{Routing, log_error};
use crate::envelope::{Envelope, hash_chain};
use crate::holders::LeaseHolder;
use crate::job::{Job, Turn};
use crate::receipt::Receipt;
use crate::receiving::{ClaimedMessages, PendingReceive, ReceiveAnswer, ReceiveTerms};
use crate::slot::settle;
use crate::topics::Topic;
use crate::types::{Attempt, Content, Dead, DeadReason, Leased, MessageId, Millis, PartKey, Seq, TopicName};

/// What a receiver asks for.
#[derive(Clone, Debug)]
pub struct Receive {
    /// How long the lease lasts; none means as the topic says, 0 that the message may be received again at once.
    pub visibility_ms: Option<u64>,
    /// Maximum messages in one answer.
    pub max_messages: usize,
    /// Maximum bytes of messages in one answer, as they lie in the log: payload, attributes, and some 50 bytes more.
    /// The first message is given whatever its size.
    pub max_bytes: usize,
    /// Milliseconds to wait for a message if there is none.
    pub wait_ms: u64,
    /// Who asks, for those who want to know who has a message.
    pub consumer: String,
}

/// A message handed to a receiver under a lease.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Id of the message.
    pub msg_id: MessageId,
    /// Topic the message was received from.
    pub topic: TopicName,
    /// When it was sent.
    pub sent_ms: Millis,
    /// The sender's idempotency key.
    pub idem_key: Option<String>,
    /// Payload of the message.
    pub payload: Bytes,
    /// BLAKE3 of the payload, checked.
    pub payload_hash: [u8; 32],
    /// Attributes in the sender's order.
    pub attrs: Vec<(String, String)>,
    /// What ties it to other messages and requests.
    pub corr_id: String,
    /// Group the sender gave the message.
    pub group: Option<Arc<str>>,
    /// The shard that owns it.
    pub shard: u16,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// BLAKE3 over topic, time, key, payload hash and attributes.
    pub hash_chain: [u8; 32],
    /// Proof of the lease.
    pub receipt: Receipt,
    /// The lease's number, rising for each message.
    pub fence: u32,
    /// When it was first delivered.
    pub first_received_ms: Millis,
    /// When the lease ends.
    pub until_ms: Millis,
    /// What became of earlier deliveries.
    pub history: Vec<Attempt>,
    /// Why it is dead, for a dead letter.
    pub dead: Option<DeadInfo>,
}

impl Delivery {
    /// Bytes it counts with: payload and attributes.
    pub fn bytes(&self) -> usize {
        bounds::counted_bytes(&self.payload, &self.attrs)
    }
}

/// Why a message is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadInfo {
    /// What the message died of.
    pub reason: DeadReason,
    /// The topic it was for.
    pub source: TopicName,
    /// Deliveries it had.
    pub attempts: u32,
    /// When it died.
    pub since_ms: Millis,
    /// What the last consumer said.
    pub last_error: String,
}

impl Mailbox {
    /// Leases messages for a subject; waits for the first if there is none and the caller wants to.
    pub async fn recv(
        &self,
        by: &Subject,
        topic: &TopicName,
        receive: Receive,
        deadline: Deadline,
    ) -> Result<Vec<Delivery>, Error> {
        self.recv_within(by, topic, receive, deadline, |_| Ok(())).await
    }

    /// The same for a caller whose memory is bounded: before one of the messages is read it has to find room for them,
    /// in bytes as they lie in the log. Where it has none their leases are given back, and no delivery is counted.
    pub async fn recv_within(
        &self,
        by: &Subject,
        topic: &TopicName,
        receive: Receive,
        deadline: Deadline,
        find_room: impl FnOnce(usize) -> Result<(), Error>,
    ) -> Result<Vec<Delivery>, Error> {
        let topic = self.engine.topics.expect(topic)?;
        bounds::check_receive(receive.max_messages, receive.wait_ms)?;
        bounds::check_visibility(receive.visibility_ms.unwrap_or(0), Duration::ZERO)?;
        let wait = Duration::from_millis(receive.wait_ms).min(deadline.remaining().saturating_sub(ANSWER_MARGIN));
        let place = if wait.is_zero() { None } else { Some(self.engine.receivers.take(&by.name, by.is_operator)?) };
        let asked = (receive, self.engine.holders.of(by));
        let claimed = self.claim(&topic, &asked, Deadline::after(wait), deadline).await?;
        // Messages that are read back wait for nothing any more.
        drop(place);
        find_room(claimed.leased().iter().map(|leased| leased.content.bytes()).sum())?;
        self.deliver(&topic, claimed, deadline).await
    }

    /// Whether a lease may be so short or so long: for surfaces that hold receivers to the node's shortest lease. The
    /// engine itself takes 0, which leases a message and lets it be received again at once.
    pub fn check_visibility(&self, visibility_ms: u64) -> Result<(), Error> {
        bounds::check_visibility(visibility_ms, self.engine.live.get().value.visibility_min)
    }

    /// Leases messages of whichever partition has some; waits for them at every shard that owns one. A receiver that
    /// was sent away asks again where the partitions are then.
    async fn claim(
        &self,
        topic: &Topic,
        asked: &Asked,
        wait: Deadline,
        deadline: Deadline,
    ) -> Result<ClaimedMessages, Error> {
        loop {
            let waits = !wait.has_passed();
            let answer = self.ask(topic, asked, waits).await?;
            let claimed = match waits {
                true => answer_until(answer, wait, self.engine.draining()).await,
                false => deadline.run("recv", answer).await?.ok(),
            };
            let wait_is_over = wait.has_passed() || self.engine.kernel.is_draining();
            match claimed {
                Some(Ok(claimed)) if claimed.leased().is_empty() && !wait_is_over => {}
                // A worker was lost: a waiting receiver asks its successor.
                None if waits && !wait_is_over => tokio::time::sleep(Duration::from_millis(20)).await,
                Some(claimed) => return claimed,
                None if waits => return Ok(ClaimedMessages::NONE),
                None => return Err(super::lost()),
            }
        }
    }

    /// Asks every shard that owns partitions of the topic, beginning at a different one each time; only then anything
    /// is waited for.
    async fn ask(
        &self,
        topic: &Topic,
        (receive, holder): &Asked,
        waits: bool,
    ) -> Result<oneshot::Receiver<ReceiveAnswer>, Error> {
        let routing = self.engine.routing()?;
        let partitions = topic.settings.partitions;
        let terms = ReceiveTerms {
            topic: topic.id,
            partitions,
            first: if partitions > 1 { (crate::random::draw() % u64::from(partitions)) as u16 } else { 0 },
            shards: routing.shards,
            max_messages: receive.max_messages,
            max_bytes: receive.max_bytes.clamp(1, limits::RECV_BYTES_MAX),
            visibility_ms: receive.visibility_ms,
            consumer: receive.consumer.as_str().into(),
            holder: holder.clone(),
            waits,
        };
        let (owners, count) = owners(&terms, routing);
        let (pending, answer) = PendingReceive::new(terms, count);
        let begin = || {
            let mut owed = Vec::new();
            for index in owners.into_iter().take(count) {
                owed.extend(self.engine.ask_and_settle(index, Job::Recv(pending.at_shard()))?);
                if pending.is_over() {
                    break;
                }
            }
            Ok(owed)
        };
        for lone in self.operation(begin)? {
            settle(Some(lone)).await;
        }
        Ok(answer)
    }

    /// Reads back what is no longer in memory and checks every message against its hash. Whatever happens to one of
    /// them, the others are delivered; the caller is told of a failure only if nothing is left to deliver.
    async fn deliver(
        &self,
        topic: &Arc<Topic>,
        claimed: ClaimedMessages,
        deadline: Deadline,
    ) -> Result<Vec<Delivery>, Error> {
        let leased = claimed.leased();
        let contents = leased.iter().map(|leased| leased.content.clone()).collect();
        let bodies = match self.read_back(contents).await {
            Ok(bodies) => bodies,
            Err(error) => leased.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut deliveries = Vec::with_capacity(leased.len());
        let (mut unread, mut failure) = (Vec::new(), None);
        for (leased, body) in leased.iter().zip(bodies) {
            match body.and_then(|body| self.delivery(topic, leased, &body)) {
                Ok(delivery) => deliveries.push(delivery),
                Err(error) if error.kind == Kind::Integrity => self.set_aside(leased, &error, deadline).await,
                Err(error) => {
                    unread.push((leased.part, leased.seq, leased.fence));
                    failure.get_or_insert(error);
                }
            }
        }
        let mut given_back = unread.clone();
        if let Some(error) = failure.as_ref().filter(|_| !unread.is_empty()) {
            self.give_back_unread(unread, error, deadline).await;
        }
        // Until here a caller that goes gives all of them back. Those that were unread are named once more: their shard
        // may not have been asked in time, and otherwise they are with nobody any more.
        given_back.extend(answer::split_off_without_room(&mut deliveries));
        claimed.keep_except(&given_back);
        failure.filter(|_| deliveries.is_empty()).map_or(Ok(deliveries), Err)
    }

    /// Messages that could not be read are not damaged, as far as anybody knows: no descriptor was free, or the disk
    /// did not answer. Their leases end at once and do not count, and the messages stay where they are.
    async fn give_back_unread(&self, unread: Vec<(PartKey, Seq, u32)>, error: &Error, deadline: Deadline) {
        let messages = unread.len();
        tracing::error!(messages, %error, "messages could not be read from the log; they are given back");
        self.engine.counts.reads_failed(messages as u64);
        let Some((part, _, _)) = unread.first().copied() else { return };
        // One receive leases from one partition.
        let items: Vec<_> = unread.into_iter().map(|(_, seq, fence)| (seq, fence)).collect();
        let work = move |turn: &mut Turn<'_>| turn.shard.give_back_unread(turn.now, turn.journal, part, &items);
        if let Err(error) = self.on_part_unpermitted(part, deadline, work).await {
            tracing::warn!(%error, "messages that could not be read come again without a pause");
        }
    }

    /// A message that is not what was sent is never handed out: it is set aside, and counted. Where that cannot be done
    /// it comes again when its lease ends; the others of the receive are delivered in any case.
    async fn set_aside(&self, leased: &Leased, error: &Error, deadline: Deadline) {
        let (part, seq, detail) = (leased.part, leased.seq, error.to_string());
        tracing::error!(seq, %detail, "a message is damaged and was set aside");
        self.engine.integrity_failed("delivery", 1);
        let set_aside = self.on_part_unpermitted(part, deadline, move |turn| {
            turn.shard.set_aside(turn.now, turn.journal, part, seq, &detail)
        });
        if let Err(error) = set_aside.await {
            tracing::error!(seq, %error, "a damaged message could not be set aside");
        }
    }

    /// The bytes of messages, in order.
    pub(super) async fn read_back(&self, contents: Vec<Content>) -> Result<Vec<Result<Bytes, Error>>, Error> {
        let log = &self.engine.opened()?.log;
        // What the system still has in memory is read here: cheaper than asking a thread that may wait.
        let at_once = contents.iter().map(|content| match content {
            Content::Hot(body) => Some(Ok(body.clone())),
            Content::Cold(position) => log.read_now(*position).map(|read| read.map(|record| record.body)),
        });
        if let Some(bodies) = at_once.collect::<Option<Vec<_>>>() {
            return Ok(bodies.into_iter().map(|body| body.map_err(log_error)).collect());
        }
        let log = log.clone();
        let read = move |content: Content| match content {
            Content::Hot(body) => Ok(body),
            Content::Cold(position) => log.read(position).map(|record| record.body),
        };
        let work = move || contents.into_iter().map(read).collect::<Vec<Result<Bytes, LogError>>>();
        let bodies = tokio::task::spawn_blocking(work).await;
        let bodies = bodies.map_err(|_| Error::canceled("reading messages back was given up"))?;
        Ok(bodies.into_iter().map(|body| body.map_err(log_error)).collect())
    }

    fn delivery(&self, topic: &Arc<Topic>, leased: &Leased, body: &Bytes) -> Result<Delivery, Error> {
        let envelope = Envelope::open(body)?;
        let chain =
            hash_chain(topic.name.as_str(), leased.sent_ms, envelope.idem_key, &envelope.payload_hash, &envelope.attrs);
        Ok(Delivery {
            msg_id: self.engine.secret.message_id(leased.sent_ms, leased.seq),
            topic: topic.name.clone(),
            sent_ms: leased.sent_ms,
            idem_key: envelope.idem_key.map(str::to_owned),
            payload_hash: envelope.payload_hash,
            attrs: owned(&envelope.attrs),
            corr_id: envelope.corr_id.unwrap_or_default().to_owned(),
            payload: envelope.payload,
            group: leased.group.clone(),
            shard: self.engine.routing.get().value.shard_of(leased.part) as u16,
            attempt: leased.attempt,
            hash_chain: chain,
            receipt: self.engine.secret.receipt(leased.part, leased.seq, leased.fence, leased.leased_ms),
            fence: leased.fence,
            first_received_ms: leased.first_leased_ms,
            until_ms: leased.until_ms,
            history: leased.history.clone(),
            dead: leased.dead.as_ref().map(|dead| self.dead_info(dead)),
        })
    }

    pub(super) fn dead_info(&self, dead: &Dead) -> DeadInfo {
        let source = self.engine.topics.by_id(dead.source.topic).map(|topic| topic.name.clone());
        DeadInfo {
            reason: dead.reason,
            source: source.unwrap_or_else(|| "deleted".parse().expect("a plain word is a name")),
            attempts: dead.attempts,
            since_ms: dead.since_ms,
            last_error: dead.last_error.to_string(),
        }
    }
}

/// Kept of a caller's deadline for reading and writing the answer.
const ANSWER_MARGIN: Duration = Duration::from_millis(100);

/// What a receiver asks for, and whom its leases are counted to.
type Asked = (Receive, Option<Arc<LeaseHolder>>);

/// The shards that own partitions of a topic, in the order of the partitions that are looked at first; how many.
fn owners(terms: &ReceiveTerms, routing: Routing) -> ([usize; SHARDS_MAX], usize) {
    let (mut owners, mut count) = ([0; SHARDS_MAX], 0);
    for part in terms.parts() {
        let owner = routing.shard_of(part);
        if !owners[..count].contains(&owner) {
            owners[count] = owner;
            count += 1;
        }
        if count == routing.shards {
            break;
        }
    }
    (owners, count)
}

/// Waits for an answer until the wait ends or the node drains; one that arrives in that very moment is still taken.
async fn answer_until(
    mut answer: oneshot::Receiver<ReceiveAnswer>,
    wait: Deadline,
    draining: impl Future<Output = ()>,
) -> Option<ReceiveAnswer> {
    tokio::select! {
        biased;
        answered = &mut answer => return answered.ok(),
        () = tokio::time::sleep_until(wait.instant()) => {}
        () = draining => {}
    }
    answer.close();
    Some(answer.try_recv().unwrap_or(Ok(ClaimedMessages::NONE)))
}

pub(super) fn owned(attrs: &[(&str, &str)]) -> Vec<(String, String)> {
    attrs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
