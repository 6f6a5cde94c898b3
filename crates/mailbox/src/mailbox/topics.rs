//! Making, changing and removing topics.

use std::sync::Arc;

use futures_util::future::join_all;
use ron_auth::Subject;
use ron_kernel::Deadline;
use ron_types::Error;

use super::Mailbox;
use super::send::partition_of_group;
use crate::job::Turn;
use crate::topics::{Topic, TopicView};
use crate::types::{PartKey, PartStats, Summary, TopicName, TopicSettings};

/// Numbers of a topic.
#[derive(Clone, Debug)]
pub struct TopicStats {
    /// All partitions together.
    pub total: PartStats,
    /// Each partition with the shard that owns it.
    pub partitions: Vec<(u16, u16, PartStats)>,
}

impl Mailbox {
    /// Makes a topic that is of nobody's share; false if it exists with just these settings.
    pub async fn create_topic(
        &self,
        name: &TopicName,
        settings: TopicSettings,
        deadline: Deadline,
    ) -> Result<(TopicView, bool), Error> {
        self.create_topic_as(None, name, settings, deadline).await
    }

    /// Makes a topic for a subject, whose share of the node's topics it is of; false if it exists with just these
    /// settings. Without a subject, or for the operator, it is of nobody's.
    pub async fn create_topic_as(
        &self,
        by: Option<&Subject>,
        name: &TopicName,
        settings: TopicSettings,
        deadline: Deadline,
    ) -> Result<(TopicView, bool), Error> {
        // One that names itself is there as soon as it is made.
        if let Some(dlq) = settings.dlq.as_deref().filter(|dlq| *dlq != name.as_str()) {
            self.make_dead_letter_topic(by, dlq, deadline).await?;
        }
        let (topic, is_new) = self.make_topic(by, name, settings, deadline).await?;
        Ok((self.engine.topics.view(&topic), is_new))
    }

    pub(super) async fn make_topic(
        &self,
        by: Option<&Subject>,
        name: &TopicName,
        settings: TopicSettings,
        deadline: Deadline,
    ) -> Result<(Arc<Topic>, bool), Error> {
        let by = by.filter(|by| !by.is_operator).map(|by| &by.name);
        let (lsn, topic, is_new) = self.operation(|| self.engine.make_topic(name, settings, by))?;
        self.engine.durable(lsn, deadline).await?;
        Ok((topic, is_new))
    }

    /// A topic that is named for dead letters is made if it is not there, as the node's rules allow.
    pub async fn make_dead_letter_topic(
        &self,
        by: Option<&Subject>,
        name: &str,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let name = TopicName::read("dlq", name)?;
        if self.engine.topics.get(&name).is_some() {
            return Ok(());
        }
        let live = self.engine.live.get();
        if !live.value.auto_create || name.is_of_dead_letters() {
            return Err(Error::schema(format!("dlq: topic {name} does not exist")));
        }
        let settings = TopicSettings { max_attempts: 0, ..live.value.defaults.clone() };
        self.make_topic(by, &name, settings, deadline).await.map(drop)
    }

    /// Changes a topic's settings from what they are, with nobody in between. No topic for dead letters is made.
    pub async fn edit_topic(
        &self,
        name: &TopicName,
        change: impl FnOnce(&mut TopicSettings) -> Result<(), Error> + Send,
        deadline: Deadline,
    ) -> Result<TopicView, Error> {
        let (lsn, topic) = self.operation(|| self.engine.edit_topic(name, change))?;
        // So that a pause or a shorter retention holds once it is answered.
        let followed = self.until_followed(&topic, deadline);
        self.engine.durable(lsn, deadline).await?;
        followed.await;
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

    /// Removes a topic with all its messages and its own dead letters; a conflict if others send their dead there.
    pub async fn delete_topic(&self, name: &TopicName, deadline: Deadline) -> Result<(), Error> {
        self.remove_topic(name, None, deadline).await
    }

    /// The same whoever sends its dead there: those that do are changed so that they do not, but only once the topic
    /// is really going.
    pub async fn delete_topic_detaching(
        &self,
        name: &TopicName,
        detach: impl Fn(&mut TopicSettings) + Sync,
        deadline: Deadline,
    ) -> Result<(), Error> {
        self.remove_topic(name, Some(&detach), deadline).await
    }

    async fn remove_topic(
        &self,
        name: &TopicName,
        detach: Option<&(dyn Fn(&mut TopicSettings) + Sync)>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let topic = self.engine.topics.expect(name)?;
        if topic.source().is_some() {
            return Err(Error::schema(format!(
                "topic: {name} goes with the topic whose dead letters it holds; purge it instead"
            )));
        }
        let (lsn, topic) = self.operation(|| self.engine.remove_topic(name, detach))?;
        // From here on the shards let go of what it held by themselves, also if this caller leaves.
        let followed = self.until_followed(&topic, deadline);
        self.engine.durable(lsn, deadline).await?;
        followed.await;
        Ok(())
    }

    /// Waits until the shards of a topic have taken a turn and so followed its change. One that is too busy to be asked
    /// follows later: nothing depends on it.
    fn until_followed(&self, topic: &Topic, deadline: Deadline) -> impl Future<Output = ()> + use<> {
        let owners = self.engine.owners_of(topic).into_iter();
        let asked: Vec<_> = owners.map(|index| self.begin_on_shard(index, 0, deadline, |_| ())).collect();
        async move { drop(join_all(asked).await) }
    }

    /// Throws every message of a topic away; says how many there were.
    pub async fn purge(&self, name: &TopicName, deadline: Deadline) -> Result<u64, Error> {
        let topic = self.engine.topics.expect(name)?;
        let purge = |part: PartKey| move |turn: &mut Turn<'_>| turn.shard.purge(turn.now, turn.journal, part);
        Ok(self.on_all_parts(&topic, deadline, purge).await?.into_iter().sum())
    }

    /// Numbers of a topic.
    pub async fn stats(&self, name: &TopicName, deadline: Deadline) -> Result<TopicStats, Error> {
        let topic = self.engine.topics.expect(name)?;
        let look = |part: PartKey| move |turn: &mut Turn<'_>| Ok((turn.index as u16, turn.shard.stats(part)));
        let mut stats = TopicStats { total: PartStats::default(), partitions: Vec::new() };
        for (part, (shard, of_part)) in topic.parts().zip(self.on_all_parts(&topic, deadline, look).await?) {
            stats.total.add(&of_part);
            stats.partitions.push((part.partition, shard, of_part));
        }
        Ok(stats)
    }

    /// Asks for work on every partition of a topic, then waits for all of it: a wide topic takes as long as its slowest
    /// shard. All is done that can be; the first failure is the answer.
    async fn on_all_parts<R, F>(
        &self,
        topic: &Topic,
        deadline: Deadline,
        work: impl Fn(PartKey) -> F,
    ) -> Result<Vec<R>, Error>
    where
        R: Send + 'static,
        F: FnOnce(&mut Turn<'_>) -> Result<R, Error> + Send + 'static,
    {
        let begin = |part| self.begin_on_part(part, deadline, work(part));
        let begun: Vec<_> = self.operation(|| Ok(topic.parts().map(begin).collect()))?;
        let waiting = begun.into_iter().map(|begun| async { begun?.await });
        join_all(waiting).await.into_iter().collect()
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
