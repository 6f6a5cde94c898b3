//! The table of moves: by topic, and in the order of their numbers, so that none is looked for in all topics.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use ron_types::Error;
use serde::Deserialize;
use tokio::sync::Notify;

use super::{MoveFailure, MoveState, MoveTask, OrderedMove};
use crate::engine::lock;
use crate::types::{Millis, TopicId};

/// Ended moves remembered of one topic.
const REMEMBERED_MAX: usize = 10;
/// Characters remembered of the last failure.
const LAST_ERROR_CHARS_MAX: usize = 256;

/// The moves of every topic, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    table: Mutex<Table>,
    /// Some move was begun, changed or forgotten.
    pub changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    by_topic: HashMap<TopicId, Vec<MoveTask>>,
    /// Every move, by its number.
    all: BTreeSet<(u64, TopicId)>,
    /// Those that have not ended.
    open: BTreeSet<(u64, TopicId)>,
}

/// A topic's moves in a record: one of them, or all in older logs.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    One(Box<MoveTask>),
    All(Vec<MoveTask>),
}

impl Table {
    fn get(&self, topic: TopicId, id: u64) -> Option<&MoveTask> {
        self.by_topic.get(&topic)?.iter().find(|task| task.id == id)
    }

    fn put(&mut self, topic: TopicId, task: MoveTask) {
        let place = (task.id, topic);
        self.all.insert(place);
        if task.state.has_ended() {
            self.open.remove(&place);
        } else {
            self.open.insert(place);
        }
        let tasks = self.by_topic.entry(topic).or_default();
        match tasks.binary_search_by_key(&task.id, |known| known.id) {
            Ok(place) => tasks[place] = task,
            Err(place) => tasks.insert(place, task),
        }
    }

    /// Forgets the oldest move of a topic that has ended, if too many have.
    fn forget_oldest(&mut self, topic: TopicId) {
        let Some(tasks) = self.by_topic.get_mut(&topic) else { return };
        let ended = tasks.iter().filter(|task| task.state.has_ended()).count();
        if ended > REMEMBERED_MAX
            && let Some(oldest) = tasks.iter().position(|task| task.state.has_ended())
        {
            self.all.remove(&(tasks.remove(oldest).id, topic));
        }
    }

    fn forget(&mut self, topic: TopicId) {
        for task in self.by_topic.remove(&topic).unwrap_or_default() {
            self.all.remove(&(task.id, topic));
            self.open.remove(&(task.id, topic));
        }
    }
}

fn ordered(&(id, topic): &(u64, TopicId)) -> OrderedMove {
    OrderedMove { topic, id }
}

impl Moves {
    /// The text of a move in its record.
    pub fn text(task: &MoveTask) -> Result<String, Error> {
        serde_json::to_string(task).map_err(|error| Error::schema(error.to_string()))
    }

    /// The moves of a topic, the newest last.
    pub fn of(&self, topic: TopicId) -> Vec<MoveTask> {
        lock(&self.table).by_topic.get(&topic).cloned().unwrap_or_default()
    }

    /// Topics that have moves, in order.
    pub fn topics(&self) -> Vec<TopicId> {
        let mut topics: Vec<TopicId> = lock(&self.table).by_topic.keys().copied().collect();
        topics.sort_unstable();
        topics
    }

    /// One move of a topic.
    pub fn get(&self, topic: TopicId, id: u64) -> Option<MoveTask> {
        lock(&self.table).get(topic, id).cloned()
    }

    /// The topic of the move with this number.
    pub fn topic_of(&self, id: u64) -> Option<TopicId> {
        let table = lock(&self.table);
        table.all.range((id, TopicId(0))..=(id, TopicId(u32::MAX))).next().map(|(_, topic)| *topic)
    }

    /// Some moves ordered before that of this number, the newest first.
    pub fn before(&self, id: u64, max: usize) -> Vec<OrderedMove> {
        lock(&self.table).all.range(..(id, TopicId(0))).rev().take(max).map(ordered).collect()
    }

    /// Every move that has not ended, the oldest first.
    pub fn all_open(&self) -> Vec<OrderedMove> {
        lock(&self.table).open.iter().map(ordered).collect()
    }

    /// Number of moves that have not ended.
    pub fn open(&self) -> usize {
        lock(&self.table).open.len()
    }

    /// Number of moves of this subject that have not ended.
    pub fn open_of(&self, subject: &str) -> usize {
        let table = lock(&self.table);
        let open = table.open.iter().filter_map(|(id, topic)| table.get(*topic, *id));
        open.filter(|task| task.ordered_by.as_deref() == Some(subject)).count()
    }

    /// A number that no move has: later ones have larger ones, also after the clock was set back.
    pub fn next_id(&self, now: Millis) -> u64 {
        lock(&self.table).all.last().map_or(now, |(newest, _)| now.max(newest + 1))
    }

    /// Puts in what has been written down, and forgets the oldest of too many that have ended.
    pub fn put(&self, topic: TopicId, task: MoveTask) {
        let mut table = lock(&self.table);
        table.put(topic, task);
        table.forget_oldest(topic);
        drop(table);
        self.changed.notify_waiters();
    }

    /// Puts in what a record says.
    pub fn put_text(&self, topic: TopicId, text: &str) -> Result<(), Error> {
        match serde_json::from_str(text).map_err(|error| Error::schema(format!("moves: {error}")))? {
            Stored::One(task) => self.put(topic, *task),
            Stored::All(tasks) => {
                let mut table = lock(&self.table);
                table.forget(topic);
                tasks.into_iter().for_each(|task| table.put(topic, task));
            }
        }
        Ok(())
    }

    /// The move runs and may move another message.
    pub fn may_go_on(&self, topic: TopicId, id: u64) -> bool {
        let table = lock(&self.table);
        table.get(topic, id).is_some_and(|task| task.state == MoveState::Running && !task.is_at_limit())
    }

    /// Counts a message moved. The record of the message says it, so nothing else is written down.
    pub fn count(&self, topic: TopicId, id: u64) {
        self.change(topic, id, |task| task.moved += 1);
    }

    /// Counts a message moved, as its record says; older logs do not say by which move, and had one at a time.
    pub fn count_replayed(&self, topic: TopicId, moved_by: &str) {
        let first_open = |tasks: &Vec<MoveTask>| tasks.iter().find(|task| !task.state.has_ended()).map(|task| task.id);
        let open = || lock(&self.table).by_topic.get(&topic).and_then(first_open);
        if let Some(id) = moved_by.parse().ok().or_else(open) {
            self.count(topic, id);
        }
    }

    /// Counts what a step looked at and what could not be moved.
    pub fn count_seen(&self, topic: TopicId, id: u64, looked_at: u64, failures: &[MoveFailure]) {
        self.change(topic, id, |task| {
            task.looked_at += looked_at;
            task.failed += failures.len() as u64;
            if let Some(failure) = failures.last() {
                task.last_error = Some(failure.to_string().chars().take(LAST_ERROR_CHARS_MAX).collect());
            }
        });
    }

    /// A move looks at everything from the beginning: what is moved has been looked at.
    pub fn start_pass(&self, topic: TopicId, id: u64) {
        self.change(topic, id, |task| (task.looked_at, task.failed) = (task.moved, 0));
    }

    /// Changes the numbers of a move; neither its own number nor its state.
    fn change(&self, topic: TopicId, id: u64, change: impl FnOnce(&mut MoveTask)) {
        let mut table = lock(&self.table);
        if let Some(task) = table.by_topic.get_mut(&topic).and_then(|tasks| tasks.iter_mut().find(|task| task.id == id))
        {
            change(task);
        }
    }

    /// A topic and its own dead letters are gone.
    pub fn forget(&self, topic: TopicId) {
        let mut table = lock(&self.table);
        topic.with_dead_letters().for_each(|id| table.forget(id));
        drop(table);
        self.changed.notify_waiters();
    }
}
