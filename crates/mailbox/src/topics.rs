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
}

impl StoredTopic {
    /// A topic made now.
    pub fn new(settings: TopicSettings, now: Millis) -> Self {
        StoredTopic { created_ms: now, modified_ms: now, settings }
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
        let Topic { created_ms, modified_ms, .. } = *topic;
        StoredTopic { created_ms, modified_ms, settings: (*topic.settings).clone() }
    }
}

impl Topic {
    /// Every partition of the topic.
    pub fn parts(&self) -> impl Iterator<Item = PartKey> + use<> {
        let topic = self.id;
        (0..self.settings.partitions).map(move |partition| PartKey { topic, partition })
    }

    /// The topic as operators see it.
    pub fn view(&self) -> TopicView {
        TopicView {
            name: self.name.clone(),
            settings: Arc::clone(&self.settings),
            created_ms: self.created_ms,
            modified_ms: self.modified_ms,
            dead_letters_of: self.source.clone(),
        }
    }

    /// The topic's own dead letters; none where their name would be too long.
    pub fn dead_letters(&self) -> Option<&Arc<Topic>> {
        self.dead_letters.as_ref()
    }
}

impl TopicId {
    /// The topic whose dead letters these would be, or the topic itself: both live on the same shard.
    pub(crate) fn home(self) -> u32 {
        self.0 & !DEAD_LETTERS
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
        let table = self.read();
        let home = table.by_id.get(&TopicId(id.home()))?;
        if id.0 == id.home() { Some(Arc::clone(home)) } else { home.dead_letters.clone() }
    }

    /// Where the dead messages of a topic go; nowhere for the dead letters of another topic.
    pub fn dead_letters_of(&self, topic: &Topic) -> Option<PartKey> {
        let target = match &topic.settings.dlq {
            _ if topic.source.is_some() => None,
            None => topic.dead_letters.as_ref().map(|dead| dead.id),
            Some(name) => self.get(&name.parse().ok()?).map(|target| target.id),
        };
        target.map(|topic| PartKey { topic, partition: 0 })
    }

    /// A topic that names this one for its dead letters.
    pub fn user_of_dead_letters(&self, name: &TopicName) -> Option<TopicName> {
        let table = self.read();
        let named = |topic: &&Arc<Topic>| topic.settings.dlq.as_deref() == Some(name.as_str());
        table.by_name.values().find(named).map(|topic| topic.name.clone())
    }

    /// All topics that name this one for their dead letters, in the order of their names.
    pub fn users_of_dead_letters(&self, name: &TopicName) -> Vec<TopicName> {
        let table = self.read();
        let named = |topic: &&Arc<Topic>| topic.settings.dlq.as_deref() == Some(name.as_str());
        table.by_name.values().filter(named).map(|topic| topic.name.clone()).collect()
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
        let from = match after {
            Some(name) => Bound::Excluded(name.clone()),
            None => Bound::Unbounded,
        };
        let table = self.read();
        let named = table.by_name.range((from, Bound::Unbounded)).map(|(_, topic)| topic);
        // Names are in order, so those with the prefix are next to each other.
        let starting = named.skip_while(|topic| topic.name.as_str() < prefix);
        starting.take_while(|topic| topic.name.as_str().starts_with(prefix)).take(limit).map(|t| t.view()).collect()
    }

    /// What must be written down to make this topic; none if it exists with just these settings.
    pub fn plan_new(&self, name: &TopicName, mut settings: TopicSettings) -> Result<Option<Planned>, Error> {
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
        check_settings(name, &settings)?;
        if table.by_name.len() >= limits::TOPICS_MAX {
            return Err(Error::busy(format_args!("the table of {} topics", limits::TOPICS_MAX)));
        }
        let own = name.dead_letters();
        if settings.dlq.is_none()
            && (own.as_str().len() > limits::TOPIC_NAME_BYTES_MAX || table.by_name.contains_key(&own))
        {
            settings.dlq = table.by_name.contains_key(&own).then(|| own.to_string());
        }
        table.id_max += 1;
        Ok(Some(Planned { id: TopicId(table.id_max), name: name.clone(), settings }))
    }

    /// What must be written down to change this topic's settings.
    pub fn plan_change(&self, name: &TopicName, settings: TopicSettings) -> Result<Planned, Error> {
        let topic = self.expect(name)?;
        if let Some(source) = &topic.source {
            let detail = format!("{name} holds the dead letters of topic {source} and has no settings of its own");
            return Err(Error::new(Kind::Conflict, detail));
        }
        check_settings(name, &settings)?;
        if settings.dlq != topic.settings.dlq
            && let Some(dlq) = &settings.dlq
            && dlq.parse().is_ok_and(|dlq| self.get(&dlq).is_none())
        {
            return Err(Error::schema(format!("dlq: topic {dlq} does not exist")));
        }
        if settings.partitions != topic.settings.partitions {
            let detail = format!("partitions: {} is fixed since topic {name} was made", topic.settings.partitions);
            return Err(Error::new(Kind::Conflict, detail));
        }
        if settings.groups != topic.settings.groups {
            return Err(Error::new(Kind::Conflict, format!("groups: fixed since topic {name} was made")));
        }
        Ok(Planned { id: topic.id, name: name.clone(), settings })
    }

    /// Puts in what has been written down, at run time or in recovery.
    pub fn put(&self, id: TopicId, name: TopicName, stored: StoredTopic) -> Arc<Topic> {
        let StoredTopic { created_ms, modified_ms, settings } = stored;
        let mut table = self.write();
        table.id_max = table.id_max.max(id.0);
        table.version_max += 1;
        let version = table.version_max;
        let created_ms = table.by_id.get(&id).map_or(created_ms, |old| old.created_ms);
        let modified_ms = modified_ms.max(created_ms);
        let own = name.dead_letters();
        // Kept even if another topic is named for them now: those that died before are still there.
        let dead_letters = (own.as_str().len() <= limits::TOPIC_NAME_BYTES_MAX).then(|| {
            let dead_settings = TopicSettings {
                max_attempts: 0,
                retention_ms: limits::RETENTION_MAX.as_millis() as u64,
                expired: Expired::Drop,
                groups: Groups::Fair,
                visibility_ms: settings.visibility_ms,
                payload_bytes_max: settings.payload_bytes_max,
                ..TopicSettings::default()
            };
            Arc::new(Topic {
                id: TopicId(id.0 | DEAD_LETTERS),
                name: own,
                settings: Arc::new(dead_settings),
                created_ms,
                modified_ms,
                version,
                dead_letters: None,
                source: Some(name.clone()),
            })
        });
        let topic = Topic {
            id,
            name: name.clone(),
            settings: Arc::new(settings),
            created_ms,
            modified_ms,
            version,
            dead_letters,
            source: None,
        };
        let topic = Arc::new(topic);
        table.by_name.insert(name, Arc::clone(&topic));
        table.by_id.insert(id, Arc::clone(&topic));
        topic
    }

    /// Takes a topic out, its own dead letters with it.
    pub fn remove(&self, id: TopicId) -> Option<Arc<Topic>> {
        let mut table = self.write();
        let topic = table.by_id.remove(&id)?;
        table.by_name.remove(&topic.name);
        self.moves.forget(id);
        self.newest.forget(id);
        Some(topic)
    }
}

impl Table {
    fn find(&self, name: &TopicName) -> Option<&Arc<Topic>> {
        self.by_name.get(name).or_else(|| {
            let base: TopicName = name.as_str().strip_suffix(".dlq")?.parse().ok()?;
            self.by_name.get(&base)?.dead_letters.as_ref()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TopicName {
        text.parse().expect("a name")
    }

    fn made(topics: &Topics, text: &str, settings: TopicSettings) -> Arc<Topic> {
        let planned = topics.plan_new(&name(text), settings).expect("allowed").expect("new");
        topics.put(planned.id, planned.name, StoredTopic::new(planned.settings, 1))
    }

    #[test]
    fn a_topic_has_its_own_dead_letters_unless_it_names_others() {
        let topics = Topics::default();
        let orders = made(&topics, "orders", TopicSettings::default());
        let dead = topics.expect(&name("orders.dlq")).expect("comes with the topic");
        assert_eq!(topics.dead_letters_of(&orders).map(|part| part.topic), Some(dead.id));
        assert_eq!(topics.dead_letters_of(&dead), None, "what is dead does not die again");
        assert_eq!((dead.id.home(), topics.len()), (orders.id.0, 1));
        assert_eq!(
            topics.plan_new(&name("orders.dlq"), TopicSettings::default()).expect_err("taken").kind,
            Kind::Conflict
        );

        let grave = made(&topics, "grave", TopicSettings::default());
        let others = TopicSettings { dlq: Some("grave".to_owned()), ..TopicSettings::default() };
        let jobs = made(&topics, "jobs", others);
        assert_eq!(topics.dead_letters_of(&jobs).map(|part| part.topic), Some(grave.id));
        assert!(topics.get(&name("jobs.dlq")).is_some(), "what died before another topic was named is still there");
        assert_eq!(topics.user_of_dead_letters(&name("grave")), Some(name("jobs")));
        assert_eq!(topics.user_of_dead_letters(&name("orders.dlq")), None);
        let others = TopicSettings { dlq: Some("grave".to_owned()), ..TopicSettings::default() };
        made(&topics, "a", others);
        assert_eq!(topics.users_of_dead_letters(&name("grave")), [name("a"), name("jobs")]);
        assert_eq!(topics.users_of_dead_letters(&name("nowhere")), []);
    }

    #[test]
    fn making_a_topic_again_is_fine_with_the_same_settings_only() {
        let topics = Topics::default();
        made(&topics, "a", TopicSettings::default());
        assert!(topics.plan_new(&name("a"), TopicSettings::default()).expect("the same").is_none());
        let other = TopicSettings { delay_ms: 5, ..TopicSettings::default() };
        assert_eq!(topics.plan_new(&name("a"), other.clone()).expect_err("not the same").kind, Kind::Conflict);
        assert_eq!(topics.plan_change(&name("a"), other).expect("a change").settings.delay_ms, 5);
        let buried = TopicSettings { dlq: Some("nowhere".to_owned()), ..TopicSettings::default() };
        assert_eq!(topics.plan_change(&name("a"), buried).expect_err("no such topic").kind, Kind::Schema);
        let split = TopicSettings { partitions: 2, ..TopicSettings::default() };
        assert_eq!(topics.plan_change(&name("a"), split).expect_err("fixed").kind, Kind::Conflict);
    }

    #[test]
    fn labels_are_bounded_as_they_are_written() {
        for (value, fits) in [("\"".repeat(24_000), true), ("\u{1}".repeat(24_000), false)] {
            let settings = TopicSettings { labels: [("policy".to_owned(), value)].into(), ..TopicSettings::default() };
            check_settings(&name("a"), &settings).expect("within the bound of labels as they are");
            assert_eq!(StoredTopic::new(settings, 1).text().is_ok(), fits);
        }
    }

    #[test]
    fn a_record_of_before_changes_were_timed_says_when_the_topic_was_made() {
        let mut old = serde_json::to_value(StoredTopic::new(TopicSettings::default(), 77)).expect("json");
        old.as_object_mut().expect("an object").remove("modified_ms").expect("it is written today");
        let topics = Topics::default();
        let stored = serde_json::from_value(old).expect("still read");
        assert_eq!(topics.put(TopicId(1), name("a"), stored).view().modified_ms, 77);
        let stored = StoredTopic { created_ms: 5, modified_ms: 99, settings: TopicSettings::default() };
        let view = topics.put(TopicId(1), name("a"), stored).view();
        assert_eq!((view.created_ms, view.modified_ms), (77, 99));
    }

    #[test]
    fn pages_of_topics_follow_each_other() {
        let topics = Topics::default();
        for text in ["b1", "a", "b2", "b3", "c"] {
            made(&topics, text, TopicSettings::default());
        }
        let names = |page: Vec<TopicView>| page.into_iter().map(|view| view.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(topics.list(None, "b", 2)), ["b1", "b2"]);
        assert_eq!(names(topics.list(Some(&name("b2")), "b", 2)), ["b3"]);
        assert_eq!(names(topics.list(None, "", 9)).len(), 5);
    }
}
