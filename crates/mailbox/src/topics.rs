//! The topics of the node: names, numbers and settings. One lock, held for a look or a change, never across a wait.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashMap;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};

use crate::bounds::check_settings;
use crate::moves::Moves;
use crate::newest_records::NewestRecords;
use crate::shard::Shard;
use crate::types::{Expired, Groups, Millis, PartKey, TopicId, TopicName, TopicSettings};

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

#[derive(Debug, Default)]
struct Table {
    by_name: BTreeMap<TopicName, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    /// Topics by the name of their own dead letters.
    by_dead_letters: HashMap<TopicName, TopicId>,
    id_max: u32,
    version_max: u64,
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
}

impl Planned {
    /// What its record will keep.
    pub fn stored(&self, created_ms: Millis, modified_ms: Millis) -> StoredTopic {
        StoredTopic { created_ms, modified_ms, dlq: self.dlq, settings: self.settings.clone() }
    }
}

impl StoredTopic {
    /// A topic made now that names no other for its dead letters.
    pub fn new(settings: TopicSettings, now: Millis) -> Self {
        StoredTopic { created_ms: now, modified_ms: now, dlq: None, settings }
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
        StoredTopic { created_ms, modified_ms, dlq, settings: (*topic.settings).clone() }
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
        self.read().names_of(|topic| topic.dlq == Some(target))
    }

    /// The other topics that name this one, or its own dead letters, for theirs: it cannot go before them.
    pub fn dependents_of(&self, target: TopicId) -> Vec<TopicName> {
        let names = |topic: &Topic| topic.dlq.is_some_and(|dlq| dlq.home() == target.home());
        self.read().names_of(|topic| topic.id != target && names(topic))
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

    /// What must be written down to make this topic; none if it exists with just these settings.
    pub fn plan_new(&self, name: &TopicName, settings: TopicSettings) -> Result<Option<Planned>, Error> {
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
        if table.by_name.len() >= limits::TOPICS_MAX {
            return Err(Error::busy(format_args!("the table of {} topics", limits::TOPICS_MAX)));
        }
        table.check_name(name)?;
        let id = TopicId(table.id_max + 1);
        let dlq = table.link(id, name, &settings)?;
        table.id_max += 1;
        Ok(Some(Planned { id, name: name.clone(), settings, dlq }))
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
        Ok(Planned { id: topic.id, name: name.clone(), settings, dlq })
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

    /// Takes a topic out, its own dead letters with it.
    pub fn remove(&self, id: TopicId) -> Option<Arc<Topic>> {
        let mut table = self.write();
        let topic = table.by_id.remove(&id)?;
        table.by_name.remove(&topic.name);
        if let Some(dead) = &topic.dead_letters {
            table.by_dead_letters.remove(&dead.name);
        }
        self.moves.forget(id);
        self.newest.forget(id);
        Some(topic)
    }
}

impl Table {
    fn find(&self, name: &TopicName) -> Option<&Arc<Topic>> {
        self.by_name.get(name).or_else(|| self.by_id.get(self.by_dead_letters.get(name)?)?.dead_letters.as_ref())
    }

    fn find_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        let home = self.by_id.get(&TopicId(id.home()))?;
        if id == home.id { Some(home) } else { home.dead_letters.as_ref() }
    }

    /// The topic that the dead of this one go to: by its number, never by its name.
    fn target_of<'a>(&'a self, topic: &'a Topic) -> Option<&'a Arc<Topic>> {
        match topic.dlq {
            _ if topic.source.is_some() => None,
            Some(dlq) => self.find_id(dlq),
            None if topic.settings.dlq.is_some() => None,
            None => topic.dead_letters.as_ref(),
        }
    }

    fn view(&self, topic: &Topic) -> TopicView {
        TopicView {
            name: topic.name.clone(),
            settings: Arc::clone(&topic.settings),
            created_ms: topic.created_ms,
            modified_ms: topic.modified_ms,
            dead_letters_of: topic.source.clone(),
            dead_letters: self.target_of(topic).map(|target| target.name.clone()),
        }
    }

    fn names_of(&self, is_meant: impl Fn(&Topic) -> bool) -> Vec<TopicName> {
        self.by_name.values().filter(|topic| is_meant(topic)).map(|topic| topic.name.clone()).collect()
    }

    /// Whether a new topic may have this name: it must neither be a name of dead letters nor make somebody's topic look
    /// like its own.
    fn check_name(&self, name: &TopicName) -> Result<(), Error> {
        if name.is_of_dead_letters() {
            return Err(Error::schema(format!(
                "topic: {name} would be the name of another topic's dead letters, which come with that topic; nothing \
                 else may end in .dlq"
            )));
        }
        let own = name.dead_letters();
        match self.find(&own) {
            Some(_) => Err(Error::new(
                Kind::Conflict,
                format!("topic {own} is not the dead letters of {name} but has their name; remove it first"),
            )),
            None => Ok(()),
        }
    }

    /// The number of the topic that settings name for dead letters.
    fn link(&self, id: TopicId, name: &TopicName, settings: &TopicSettings) -> Result<Option<TopicId>, Error> {
        let Some(dlq) = &settings.dlq else { return Ok(None) };
        let target = TopicName::read("dlq", dlq)?;
        if target == *name {
            return Ok(Some(id));
        }
        let found = self.find(&target).map(|target| Some(target.id));
        found.ok_or_else(|| Error::schema(format!("dlq: topic {dlq} does not exist")))
    }

    fn put(&mut self, id: TopicId, name: TopicName, stored: StoredTopic) -> Arc<Topic> {
        let StoredTopic { created_ms, modified_ms, dlq, settings } = stored;
        self.id_max = self.id_max.max(id.0);
        self.version_max += 1;
        let version = self.version_max;
        let created_ms = self.by_id.get(&id).map_or(created_ms, |old| old.created_ms);
        let modified_ms = modified_ms.max(created_ms);
        // Kept even if another topic is named for them now: those that died before are still there.
        let dead_letters = self.name_dead_letters(id, &name).map(|own| {
            self.by_dead_letters.insert(own.clone(), id);
            Arc::new(Topic {
                id: TopicId(id.0 | DEAD_LETTERS),
                name: own,
                settings: Arc::new(dead_settings(&settings)),
                created_ms,
                modified_ms,
                version,
                dlq: None,
                dead_letters: None,
                source: Some(name.clone()),
            })
        });
        let topic = Arc::new(Topic {
            id,
            name: name.clone(),
            settings: Arc::new(settings),
            created_ms,
            modified_ms,
            version,
            dlq,
            dead_letters,
            source: None,
        });
        self.by_name.insert(name, Arc::clone(&topic));
        self.by_id.insert(id, Arc::clone(&topic));
        topic
    }

    /// The name of a topic's own dead letters: the one they have, the usual one, or one by the topic's number where the
    /// usual one is too long or, in an older log, somebody else's.
    fn name_dead_letters(&self, id: TopicId, name: &TopicName) -> Option<TopicName> {
        let known = self.by_id.get(&id).and_then(|old| old.dead_letters.as_ref()).map(|dead| dead.name.clone());
        let by_number = || format!("topic-{}.dlq", id.0).parse().ok();
        let is_free = |own: &TopicName| {
            let is_others = self.by_dead_letters.get(own).is_some_and(|of| *of != id);
            own.as_str().len() <= limits::TOPIC_NAME_BYTES_MAX && !self.by_name.contains_key(own) && !is_others
        };
        let names = known.into_iter().chain([name.dead_letters()]).chain(by_number());
        names.into_iter().find(is_free)
    }
}

/// The settings of a topic's own dead letters: kept as long as anything is, and never dead again.
fn dead_settings(of: &TopicSettings) -> TopicSettings {
    TopicSettings {
        max_attempts: 0,
        retention_ms: limits::RETENTION_MAX.as_millis() as u64,
        expired: Expired::Drop,
        groups: Groups::Fair,
        visibility_ms: of.visibility_ms,
        payload_bytes_max: of.payload_bytes_max,
        ..TopicSettings::default()
    }
}

#[cfg(test)]
mod tests;
