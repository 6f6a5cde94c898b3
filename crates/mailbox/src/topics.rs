//! The topics of the node: names, numbers and settings. One lock, held for a look or a change, never across a wait.

mod table;

use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashMap;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};

use crate::bounds::check_settings;
use crate::moves::Moves;
use crate::newest_records::NewestRecords;
use crate::shard::Shard;
use crate::types::{Millis, PartKey, TopicId, TopicName, TopicSettings};
use table::Table;

/// Which version of each topic's settings a shard has been told.
pub(crate) type SettingsSeen = HashMap<TopicId, u64>;

/// The number of a topic's own dead letters is the topic's with this bit set: they exist as long as the topic does,
/// need no record, and live on the same shard.
const DEAD_LETTERS: u32 = 1 << 31;

/// A topic's settings as JSON with escapes, which must fit the head of a record.
const STORED_BYTES_MAX: usize = 60 * 1024;

/// One topic.
#[derive(Debug)]
pub struct Topic {
    /// Number of the topic.
    pub id: TopicId,
    /// Name of the topic.
    pub name: TopicName,
    /// Settings of the topic.
    pub settings: Arc<TopicSettings>,
    /// When it was made.
    pub created_ms: Millis,
    /// When its settings were last changed.
    pub modified_ms: Millis,
    /// Rises with every change of its settings.
    pub version: u64,
    /// Name of the subject whose share of the node's topics it is of; none for the operator's and for older ones.
    made_by: Option<Arc<str>>,
    /// Number of the topic that its settings name for dead letters. It decides; the name beside it is only shown, so
    /// that nobody else's topic gets these dead letters by taking the name.
    dlq: Option<TopicId>,
    /// Its own dead letters: where its dead go, unless it names another topic for them.
    dead_letters: Option<Arc<Topic>>,
    /// The topic whose dead letters these are.
    source: Option<TopicName>,
}

/// A topic as its record keeps it.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredTopic {
    /// When it was made.
    pub created_ms: Millis,
    /// When its settings were last changed; 0 in records of before this was kept.
    #[serde(default)]
    pub modified_ms: Millis,
    /// Number of the topic that the settings name for dead letters; in records of before this was kept, the name
    /// decides once more ([`Topics::link_by_name`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dlq: Option<TopicId>,
    /// Name of the subject whose share of the node's topics it is of; not in records of before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Arc<str>>,
    /// Settings of the topic.
    pub settings: TopicSettings,
}

/// A topic as it is shown.
#[derive(Clone, Debug)]
pub struct TopicView {
    /// Name of the topic.
    pub name: TopicName,
    /// Settings of the topic.
    pub settings: Arc<TopicSettings>,
    /// When it was made.
    pub created_ms: Millis,
    /// When its settings were last changed; when it was made, if they never were.
    pub modified_ms: Millis,
    /// The topic whose dead letters these are.
    pub dead_letters_of: Option<TopicName>,
    /// The topic that its dead go to; none if that is gone, or if these are dead letters themselves.
    pub dead_letters: Option<TopicName>,
}

/// All topics.
#[derive(Debug, Default)]
pub struct Topics {
    table: RwLock<Table>,
    /// What is being moved out of them.
    pub(crate) moves: Moves,
    /// Where the log tells of them.
    pub(crate) newest: NewestRecords,
}

/// What is to be written down before a topic exists or changes.
#[derive(Debug)]
pub struct Planned {
    /// Number of the topic.
    pub id: TopicId,
    /// Name of the topic.
    pub name: TopicName,
    /// Settings the topic will have.
    pub settings: TopicSettings,
    /// Number of the topic that these settings name for dead letters.
    pub dlq: Option<TopicId>,
    /// Name of the subject whose share of the node's topics it is of.
    pub made_by: Option<Arc<str>>,
}

impl Planned {
    /// What its record will keep.
    pub fn stored(&self, created_ms: Millis, modified_ms: Millis) -> StoredTopic {
        let Planned { dlq, made_by, settings, .. } = self;
        StoredTopic { created_ms, modified_ms, dlq: *dlq, made_by: made_by.clone(), settings: settings.clone() }
    }
}

impl StoredTopic {
    /// A topic made now that names no other for its dead letters.
    pub fn new(settings: TopicSettings, now: Millis) -> Self {
        StoredTopic { created_ms: now, modified_ms: now, dlq: None, made_by: None, settings }
    }

    /// Its text in a record, if it fits one.
    pub fn text(&self) -> Result<String, Error> {
        let text = serde_json::to_string(self).map_err(|error| Error::schema(error.to_string()))?;
        match text.len() {
            len if len > STORED_BYTES_MAX => Err(Error::schema(format!(
                "labels: written with escapes they make {len} bytes, over {STORED_BYTES_MAX}"
            ))),
            _ => Ok(text),
        }
    }
}

impl From<&Topic> for StoredTopic {
    fn from(topic: &Topic) -> Self {
        let Topic { created_ms, modified_ms, dlq, .. } = *topic;
        let (made_by, settings) = (topic.made_by.clone(), (*topic.settings).clone());
        StoredTopic { created_ms, modified_ms, dlq, made_by, settings }
    }
}

impl Topic {
    /// Every partition of the topic.
    pub fn parts(&self) -> impl Iterator<Item = PartKey> + use<> {
        let topic = self.id;
        (0..self.settings.partitions).map(move |partition| PartKey { topic, partition })
    }

    /// The topic's own dead letters; none for dead letters themselves.
    pub fn dead_letters(&self) -> Option<&Arc<Topic>> {
        self.dead_letters.as_ref()
    }

    /// The topic whose dead letters these are.
    pub fn source(&self) -> Option<&TopicName> {
        self.source.as_ref()
    }
}

impl TopicId {
    /// The topic whose dead letters these would be, or the topic itself: both live on the same shard.
    pub(crate) fn home(self) -> u32 {
        self.0 & !DEAD_LETTERS
    }

    /// The topic and its own dead letters; both, whichever of them this is.
    pub(crate) fn with_dead_letters(self) -> impl Iterator<Item = TopicId> {
        [TopicId(self.home()), TopicId(self.0 | DEAD_LETTERS)].into_iter()
    }

    /// The topic's own dead letters; none for dead letters themselves.
    pub(crate) fn own_dead_letters(self) -> Option<TopicId> {
        (self.0 == self.home()).then_some(TopicId(self.0 | DEAD_LETTERS))
    }
}

impl Topics {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topic of this name.
    pub fn get(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.read().find(name).cloned()
    }

    /// The topic of this name, or a clear refusal.
    pub fn expect(&self, name: &TopicName) -> Result<Arc<Topic>, Error> {
        self.get(name).ok_or_else(|| Error::new(Kind::NotFound, format!("topic {name} does not exist")))
    }

    /// The topic of this number.
    pub fn by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.read().find_id(id).cloned()
    }

    /// Where the dead messages of a topic go; nowhere for the dead letters of another topic. A topic that names itself
    /// keeps them: they are tried without end.
    pub fn dead_letters_of(&self, topic: &Topic) -> Option<PartKey> {
        let target = self.read().target_of(topic).map(|target| target.id);
        target.filter(|target| *target != topic.id).map(|topic| PartKey { topic, partition: 0 })
    }

    /// The topic as operators see it.
    pub fn view(&self, topic: &Topic) -> TopicView {
        self.read().view(topic)
    }

    /// All topics that name this one for their dead letters, in the order of their names.
    pub fn users_of_dead_letters(&self, target: TopicId) -> Vec<TopicName> {
        self.read().sources_of(target, |source| source.dlq == Some(target))
    }

    /// The other topics that name this one, or its own dead letters, for theirs: it cannot go before them.
    pub fn dependents_of(&self, target: TopicId) -> Vec<TopicName> {
        self.read().sources_of(target, |source| source.id != target)
    }

    /// Tells a shard a topic's settings.
    pub(crate) fn tell(&self, shard: &mut Shard, topic: &Topic) {
        shard.settings(topic.id, Arc::clone(&topic.settings), self.dead_letters_of(topic));
    }

    /// Tells a shard a topic's settings if they have changed since it was last told.
    pub(crate) fn tell_if_new(&self, shard: &mut Shard, seen: &mut SettingsSeen, topic: &Topic) {
        if seen.insert(topic.id, topic.version) != Some(topic.version) {
            self.tell(shard, topic);
        }
    }

    /// How many there are, dead letters not counted.
    pub fn len(&self) -> usize {
        self.read().by_name.len()
    }

    /// A page of topics in the order of their names.
    pub fn list(&self, after: Option<&TopicName>, prefix: &str, limit: usize) -> Vec<TopicView> {
        // Names are in order, so those with the prefix are next to each other, and none before them is looked at.
        let from = match after {
            Some(name) if name.as_str() >= prefix => Bound::Excluded(name.as_str()),
            _ => Bound::Included(prefix),
        };
        let table = self.read();
        let named = table.by_name.range::<str, _>((from, Bound::Unbounded)).map(|(_, topic)| topic);
        let named = named.take_while(|topic| topic.name.as_str().starts_with(prefix));
        named.take(limit).map(|topic| table.view(topic)).collect()
    }

    /// What must be written down to make this topic; none if it exists with just these settings. It counts for the
    /// share of a subject, if one is named.
    pub fn plan_new(
        &self,
        name: &TopicName,
        settings: TopicSettings,
        by: Option<&Arc<str>>,
    ) -> Result<Option<Planned>, Error> {
        let mut table = self.write();
        if let Some(topic) = table.find(name) {
            return if let Some(source) = &topic.source {
                Err(Error::new(Kind::Conflict, format!("{name} holds the dead letters of topic {source}")))
            } else if *topic.settings == settings {
                Ok(None)
            } else {
                Err(Error::new(Kind::Conflict, format!("topic {name} exists with other settings")))
            };
        }
        check_settings(&settings)?;
        if table.id_max + 1 >= DEAD_LETTERS {
            return Err(Error::new(Kind::Degraded, "the numbers for topics are used up: no other can be made"));
        }
        table.check_share(by)?;
        table.check_name(name)?;
        let id = TopicId(table.id_max + 1);
        let dlq = table.link(id, name, &settings)?;
        table.id_max += 1;
        Ok(Some(Planned { id, name: name.clone(), settings, dlq, made_by: by.cloned() }))
    }

    /// What must be written down to change this topic's settings.
    pub fn plan_change(&self, name: &TopicName, settings: TopicSettings) -> Result<Planned, Error> {
        let topic = self.expect(name)?;
        if let Some(source) = &topic.source {
            let detail = format!("{name} holds the dead letters of topic {source} and has no settings of its own");
            return Err(Error::new(Kind::Conflict, detail));
        }
        check_settings(&settings)?;
        let dlq = match settings.dlq == topic.settings.dlq {
            true => topic.dlq,
            false => self.read().link(topic.id, name, &settings)?,
        };
        if settings.partitions != topic.settings.partitions {
            let detail = format!("partitions: {} is fixed since topic {name} was made", topic.settings.partitions);
            return Err(Error::new(Kind::Conflict, detail));
        }
        if settings.groups != topic.settings.groups {
            return Err(Error::new(Kind::Conflict, format!("groups: fixed since topic {name} was made")));
        }
        Ok(Planned { id: topic.id, name: name.clone(), settings, dlq, made_by: topic.made_by.clone() })
    }

    /// What must be written down to change settings from what they are, and when the topic was made.
    pub fn plan_edit(&self, name: &TopicName, change: &dyn Fn(&mut TopicSettings)) -> Result<(Planned, Millis), Error> {
        let topic = self.expect(name)?;
        let mut settings = (*topic.settings).clone();
        change(&mut settings);
        Ok((self.plan_change(name, settings)?, topic.created_ms))
    }

    /// Puts in what has been written down, at run time or in recovery.
    pub fn put(&self, id: TopicId, name: TopicName, stored: StoredTopic) -> Arc<Topic> {
        let mut table = self.write();
        let topic = table.put(id, name, stored);
        // Only older logs have a topic of somebody's with the name of another's dead letters. It keeps the name,
        // because its owner knows it by that; the dead letters get another.
        if let Some(shadowed) = table.by_dead_letters.remove(&topic.name)
            && let Some(source) = table.by_id.get(&shadowed).cloned()
        {
            table.put(source.id, source.name.clone(), StoredTopic::from(&*source));
        }
        topic
    }

    /// The highest number that any topic has or had.
    pub(crate) fn numbers_taken(&self) -> TopicId {
        TopicId(self.read().id_max)
    }

    /// Gives numbers up to this one to no topic any more: one that is gone may have had it, and dead letters, tokens of
    /// moves and links of other topics may still name it.
    pub(crate) fn skip_numbers(&self, taken: TopicId) {
        let mut table = self.write();
        table.id_max = table.id_max.max(taken.home());
    }

    /// Gives the links of older logs, which have only names, their numbers; to be asked once all topics are known.
    ///
    /// A topic that names `<itself>.dlq`, and finds a topic of somebody's there, was linked to it by the node and by
    /// nothing but the name: such a link is given up, and its dead go to its own dead letters again. Dead letters that
    /// the node made are known by their number, whatever has their name.
    pub(crate) fn link_by_name(&self) {
        let mut table = self.write();
        let unlinked = |topic: &&Arc<Topic>| topic.dlq.is_none() && topic.settings.dlq.is_some();
        let named: Vec<Arc<Topic>> = table.by_name.values().filter(unlinked).cloned().collect();
        for topic in named {
            let mut stored = StoredTopic::from(&*topic);
            stored.dlq = table.link(topic.id, &topic.name, &stored.settings).unwrap_or_default();
            let is_strangers = stored.dlq.is_some_and(|dlq| dlq.0 == dlq.home());
            if is_strangers && stored.settings.dlq.as_deref() == Some(topic.name.dead_letters().as_str()) {
                tracing::warn!(topic = %topic.name, "its dead letters no longer go to another's topic of their name");
                (stored.dlq, stored.settings.dlq) = (None, None);
            }
            table.put(topic.id, topic.name.clone(), stored);
        }
    }

    /// Forgets everything: what an earlier try to read the log has left.
    pub(crate) fn reset(&self) {
        *self.write() = Table::default();
        self.moves.topics().into_iter().for_each(|id| self.moves.forget(id));
        self.newest.reset();
    }

    /// Forgets moves of topics that are gone: older nodes wrote them again behind the record of the end, for ever.
    pub(crate) fn forget_moves_of_gone(&self) {
        let is_gone = |id: &TopicId| self.by_id(TopicId(id.home())).is_none();
        self.moves.topics().into_iter().filter(is_gone).for_each(|id| self.moves.forget(id));
    }

    /// Takes a topic out, its own dead letters with it.
    pub fn remove(&self, id: TopicId) -> Option<Arc<Topic>> {
        // Also where the topic is not known any more: the record that made it goes before the others that name it.
        self.moves.forget(id);
        self.newest.forget(id);
        let mut table = self.write();
        let topic = table.by_id.remove(&id)?;
        table.by_name.remove(&topic.name);
        table.uncount(&topic);
        if let Some(dead) = &topic.dead_letters {
            table.by_dead_letters.remove(&dead.name);
        }
        Some(topic)
    }
}

#[cfg(test)]
mod tests;
