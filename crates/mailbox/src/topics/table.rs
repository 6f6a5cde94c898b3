//! The table of topics: found by name, by number, by the name of their dead letters, by where those go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};

use super::{DEAD_LETTERS, StoredTopic, Topic, TopicView};
use crate::types::{Expired, Groups, TopicId, TopicName, TopicSettings};

/// All topics, by each of the ways in which one is looked for.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub by_name: BTreeMap<TopicName, Arc<Topic>>,
    pub by_id: HashMap<TopicId, Arc<Topic>>,
    /// Topics by the name of their own dead letters.
    pub by_dead_letters: HashMap<TopicName, TopicId>,
    /// Topics that send their dead to another, or to its own dead letters, by the number of that one.
    sources: HashMap<TopicId, BTreeSet<TopicName>>,
    /// How many topics there are of each subject that has a share.
    made_by: HashMap<Arc<str>, usize>,
    /// The highest number ever given: none is given twice, whatever became of its topic.
    pub id_max: u32,
    version_max: u64,
}

impl Table {
    pub fn find(&self, name: &TopicName) -> Option<&Arc<Topic>> {
        self.by_name.get(name).or_else(|| self.by_id.get(self.by_dead_letters.get(name)?)?.dead_letters.as_ref())
    }

    pub fn find_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        let home = self.by_id.get(&TopicId(id.home()))?;
        if id == home.id { Some(home) } else { home.dead_letters.as_ref() }
    }

    /// The topic that the dead of this one go to: by its number, never by its name.
    pub fn target_of<'a>(&'a self, topic: &'a Topic) -> Option<&'a Arc<Topic>> {
        match topic.dlq {
            _ if topic.source.is_some() => None,
            Some(dlq) => self.find_id(dlq),
            None if topic.settings.dlq.is_some() => None,
            None => topic.dead_letters.as_ref(),
        }
    }

    pub fn view(&self, topic: &Topic) -> TopicView {
        TopicView {
            name: topic.name.clone(),
            settings: Arc::clone(&topic.settings),
            created_ms: topic.created_ms,
            modified_ms: topic.modified_ms,
            dead_letters_of: topic.source.clone(),
            dead_letters: self.target_of(topic).map(|target| target.name.clone()),
        }
    }

    /// Those of the topics that send their dead to this one or to its own dead letters.
    pub fn sources_of(&self, target: TopicId, is_meant: impl Fn(&Topic) -> bool) -> Vec<TopicName> {
        let names = self.sources.get(&TopicId(target.home())).into_iter().flatten();
        names.filter(|name| self.by_name.get(*name).is_some_and(|source| is_meant(source))).cloned().collect()
    }

    /// Whether one more topic may be made, and by this subject: nobody has more of them than are left to all others, so
    /// that whoever comes next finds some.
    pub fn check_share(&self, by: Option<&Arc<str>>) -> Result<(), Error> {
        let max = limits::TOPICS_MAX;
        let left = max.saturating_sub(self.by_name.len());
        if left == 0 {
            let detail = format!("the node has as many topics as it may, {max}; deleting some of them makes room");
            return Err(Error::new(Kind::Busy, detail));
        }
        let made = by.and_then(|by| self.made_by.get(by)).copied().unwrap_or(0);
        match by {
            Some(by) if made >= left => {
                let detail = format!(
                    "{by} has its share of the node's {max} topics: {made} are its own and {left} are left to all \
                     others; deleting topics of its own makes room"
                );
                Err(Error::new(Kind::Busy, detail))
            }
            _ => Ok(()),
        }
    }

    /// A topic is in the table.
    fn count(&mut self, topic: &Topic) {
        if let Some(dlq) = topic.dlq {
            self.sources.entry(TopicId(dlq.home())).or_default().insert(topic.name.clone());
        }
        if let Some(by) = &topic.made_by {
            *self.made_by.entry(Arc::clone(by)).or_default() += 1;
        }
    }

    /// A topic is no longer in the table, or is about to be replaced.
    pub fn uncount(&mut self, topic: &Topic) {
        if let Some(target) = topic.dlq.map(|dlq| TopicId(dlq.home()))
            && let Some(names) = self.sources.get_mut(&target)
        {
            names.remove(&topic.name);
            if names.is_empty() {
                self.sources.remove(&target);
            }
        }
        if let Some(by) = &topic.made_by
            && let Some(made) = self.made_by.get_mut(by)
        {
            *made -= 1;
            if *made == 0 {
                self.made_by.remove(by);
            }
        }
    }

    /// Whether a new topic may have this name: it must neither be a name of dead letters nor make somebody's topic look
    /// like its own.
    pub fn check_name(&self, name: &TopicName) -> Result<(), Error> {
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
    pub fn link(&self, id: TopicId, name: &TopicName, settings: &TopicSettings) -> Result<Option<TopicId>, Error> {
        let Some(dlq) = &settings.dlq else { return Ok(None) };
        let target = TopicName::read("dlq", dlq)?;
        if target == *name {
            return Ok(Some(id));
        }
        let found = self.find(&target).map(|target| Some(target.id));
        found.ok_or_else(|| Error::schema(format!("dlq: topic {dlq} does not exist")))
    }

    pub fn put(&mut self, id: TopicId, name: TopicName, stored: StoredTopic) -> Arc<Topic> {
        let StoredTopic { created_ms, modified_ms, dlq, made_by, settings } = stored;
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
                made_by: None,
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
            made_by,
            dlq,
            dead_letters,
            source: None,
        });
        self.by_name.insert(name, Arc::clone(&topic));
        if let Some(old) = self.by_id.insert(id, Arc::clone(&topic)) {
            self.uncount(&old);
        }
        self.count(&topic);
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
