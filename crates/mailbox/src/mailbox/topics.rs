//! Making, changing and removing topics.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::Mailbox;
use super::send::partition_of_group;
use crate::events::Event;
use crate::job::Turn;
use crate::topics::{Topic, TopicView};
use crate::types::{PartKey, PartStats, Summary, TopicName, TopicSettings};

/// How soon a busy shard is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Numbers of a topic.
#[derive(Clone, Debug)]
pub struct TopicStats {
    /// All partitions together.
    pub total: PartStats,
    /// Each partition with the shard that owns it.
    pub partitions: Vec<(u16, u16, PartStats)>,
}

impl Mailbox {
    /// Makes a topic; false if it exists with just these settings.
    pub async fn create_topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
        deadline: Deadline,
    ) -> Result<(TopicView, bool), Error> {
        // One that names itself is there as soon as it is made.
        if let Some(dlq) = settings.dlq.as_deref().filter(|dlq| *dlq != name.as_str()) {
            self.make_dead_letter_topic(dlq, deadline).await?;
        }
        let (topic, is_new) = self.make_topic(name, settings, deadline).await?;
        Ok((self.engine.topics.view(&topic), is_new))
    }

    pub(super) async fn make_topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
        deadline: Deadline,
    ) -> Result<(Arc<Topic>, bool), Error> {
        let now = self.engine.opened()?.clock.now();
        let (lsn, topic, is_new) = self.operation(|| self.engine.make_topic(name, settings, now))?;
        self.engine.durable(lsn, deadline).await?;
        if is_new {
            self.engine.events.publish(Event::TopicMade { topic: topic.name.clone() });
        }
        Ok((topic, is_new))
    }

    /// A topic that is named for dead letters is made if it is not there, as the node's rules allow.
    pub async fn make_dead_letter_topic(&self, name: &str, deadline: Deadline) -> Result<(), Error> {
        let name = TopicName::read("dlq", name)?;
        if self.engine.topics.get(&name).is_some() {
            return Ok(());
        }
        let live = self.engine.live.get();
        if !live.value.auto_create || name.is_of_dead_letters() {
            return Err(Error::schema(format!("dlq: topic {name} does not exist")));
        }
        let settings = TopicSettings { max_attempts: 0, ..live.value.defaults.clone() };
        self.make_topic(&name, settings, deadline).await.map(drop)
    }

    /// Changes a topic's settings from what they are, with nobody in between. No topic for dead letters is made.
    pub async fn edit_topic(
        &self,
        name: &TopicName,
        change: impl FnOnce(&mut TopicSettings) -> Result<(), Error> + Send,
        deadline: Deadline,
    ) -> Result<TopicView, Error> {
        let (lsn, topic) = self.operation(|| self.engine.edit_topic(name, change))?;
        self.engine.durable(lsn, deadline).await?;
        // Shards are told at once, so that a pause or a shorter retention does not wait for the next message.
        for part in topic.parts() {
            self.on_part_unpermitted(part, deadline, |_| Ok(())).await?;
        }
        Ok(self.engine.topics.view(&topic))
    }

    /// The topics that name this one for their dead letters, in the order of their names.
    pub fn sources_of(&self, dlq: &TopicName) -> Vec<TopicName> {
        let topics = &self.engine.topics;
        topics.get(dlq).map_or_else(Vec::new, |dlq| topics.users_of_dead_letters(dlq.id))
    }

    /// The topics whose dead letters may be here: those that name it for them, and the one that it comes with.
    pub fn origins_of(&self, letters: &TopicName) -> Vec<TopicName> {
        let mut origins = self.sources_of(letters);
        let owner = self.engine.topics.get(letters).and_then(|letters| letters.source().cloned());
        if let Some(owner) = owner
            && let Err(place) = origins.binary_search(&owner)
        {
            origins.insert(place, owner);
        }
        origins
    }

    /// Topics whose dead letters go back out of `letters` where no destination is named: every one that sends its dead
    /// there, and the caller needs the right to send to each. None, for a caller that may send to all topics, means
    /// every letter, also those of topics that send their dead elsewhere by now.
    pub fn origins_for<E>(
        &self,
        letters: &TopicName,
        may_send: impl Fn(&str) -> Result<(), E>,
    ) -> Result<Option<Vec<TopicName>>, E> {
        // The empty name stands for every topic.
        if may_send("").is_ok() {
            return Ok(None);
        }
        let origins = self.origins_of(letters);
        origins.iter().try_for_each(|origin| may_send(origin.as_str()))?;
        Ok(Some(origins))
    }

    /// The other topics that name this one, or its own dead letters, for theirs: it cannot go before them.
    pub fn dependents_of(&self, name: &TopicName) -> Vec<TopicName> {
        let topics = &self.engine.topics;
        topics.get(name).map_or_else(Vec::new, |topic| topics.dependents_of(topic.id))
    }

    /// Removes a topic with all its messages and its own dead letters.
    pub async fn delete_topic(&self, name: &TopicName, deadline: Deadline) -> Result<(), Error> {
        let topic = self.engine.topics.expect(name)?;
        if topic.source().is_some() {
            return Err(Error::schema(format!(
                "topic: {name} goes with the topic whose dead letters it holds; purge it instead"
            )));
        }
        let (lsn, topic) = self.operation(|| self.engine.remove_topic(name))?;
        let dead_letters = topic.dead_letters().into_iter().flat_map(|dead| dead.parts());
        for part in topic.parts().chain(dead_letters) {
            self.drop_part(part, deadline).await?;
        }
        self.engine.durable(lsn, deadline).await?;
        self.engine.events.publish(Event::TopicGone { topic: name.clone() });
        Ok(())
    }

    /// Forgets a partition whose topic is gone; the record that says so is written, so a busy shard is asked again.
    async fn drop_part(&self, part: PartKey, deadline: Deadline) -> Result<(), Error> {
        loop {
            let dropped = match self.engine.route(part) {
                Ok(index) => {
                    let drop_part = move |turn: &mut Turn<'_>| turn.shard.drop_part(turn.journal, part);
                    self.begin_on_shard(index, 0, deadline, drop_part).await
                }
                Err(error) => Err(error),
            };
            match dropped {
                Err(error) if error.kind == Kind::Busy && !deadline.has_passed() => {
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                dropped => return dropped,
            }
        }
    }

    /// Throws every message of a topic away; says how many there were.
    pub async fn purge(&self, name: &TopicName, deadline: Deadline) -> Result<u64, Error> {
        let mut purged = 0;
        for part in self.engine.topics.expect(name)?.parts() {
            purged += self.on_part(part, deadline, move |turn| turn.shard.purge(turn.now, turn.journal, part)).await?;
        }
        Ok(purged)
    }

    /// Numbers of a topic.
    pub async fn stats(&self, name: &TopicName, deadline: Deadline) -> Result<TopicStats, Error> {
        let topic = self.engine.topics.expect(name)?;
        let mut stats = TopicStats { total: PartStats::default(), partitions: Vec::new() };
        for part in topic.parts() {
            let of_part = self.on_part(part, deadline, move |turn| Ok(turn.shard.stats(part))).await?;
            stats.total.add(&of_part);
            stats.partitions.push((part.partition, self.engine.route(part)? as u16, of_part));
        }
        Ok(stats)
    }
}

/// Where a message goes in a topic: back to its own partition, or where its group is; otherwise any will do.
pub(crate) fn place_in(target: &Topic, summary: &Summary) -> PartKey {
    let own = summary.dead.as_ref().map(|dead| dead.source).filter(|source| source.topic == target.id);
    own.unwrap_or_else(|| {
        let partition = match &summary.group {
            Some(group) => partition_of_group(target, group),
            None => (summary.seq % u64::from(target.settings.partitions.max(1))) as u16,
        };
        PartKey { topic: target.id, partition }
    })
}

impl PartStats {
    /// Messages it holds.
    pub fn held(&self) -> u64 {
        self.ready + self.delayed + self.leased
    }

    fn add(&mut self, other: &PartStats) {
        self.ready += other.ready;
        self.delayed += other.delayed;
        self.leased += other.leased;
        self.bytes += other.bytes;
        self.groups += other.groups;
        self.keys += other.keys;
        self.oldest_ms = match (self.oldest_ms, other.oldest_ms) {
            (0, oldest) | (oldest, 0) => oldest,
            (one, two) => one.min(two),
        };
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.acked += other.acked;
        self.failed += other.failed;
        self.died += other.died;
        self.expired += other.expired;
        self.reorder_depth_max = self.reorder_depth_max.max(other.reorder_depth_max);
        self.breaker = self.breaker.worse(other.breaker);
    }
}
