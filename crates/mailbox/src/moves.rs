//! Move tasks: what is being moved out of each topic and what was, as it is written down beside the topics.

use std::collections::HashMap;
use std::sync::Mutex;

use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::engine::lock;
use crate::types::{Millis, TopicId, TopicName};

/// Tasks remembered of one topic, the running one included.
pub(crate) const REMEMBERED_MAX: usize = 10;
/// Tasks that run at once.
pub(crate) const RUNNING_MAX: usize = 100;

/// What is to be moved where, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// The topic whose messages go.
    pub from: TopicName,
    /// Where they go; none means each to the topic it was for.
    pub to: Option<TopicName>,
    /// How many in a second; none means as fast as it goes.
    pub rate_per_second: Option<u32>,
}

/// Where a move stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveState {
    /// It is being carried out.
    Running,
    /// Every message that was there and with nobody has been moved.
    Completed,
    /// Somebody wants it to end.
    Canceling,
    /// Somebody ended it.
    Canceled,
    /// It could not go on.
    Failed,
}

/// Why a move could not go on. Older logs have the words of SQS for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveFailure {
    /// The topic that messages were to go to is not there.
    #[serde(alias = "AWS.SimpleQueueService.NonExistentQueue")]
    NoDestination,
    /// A message was to go to the topic it was for, and it was for none.
    #[serde(alias = "CouldNotDetermineMessageSource")]
    NoOrigin,
}

/// A move and its progress, as it is written down with its topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// Its number: no other move of this node has it.
    pub id: u64,
    /// Where messages go; none means each to the topic it was for.
    pub to: Option<TopicName>,
    /// How many in a second.
    pub rate_per_second: Option<u32>,
    /// Where it stands.
    pub state: MoveState,
    /// Messages moved.
    pub moved: u64,
    /// Messages there were when it began.
    pub to_move: u64,
    /// Why it could not go on.
    pub failure: Option<MoveFailure>,
    /// When it began.
    pub started_ms: Millis,
}

/// A move as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveView {
    /// The topic whose messages go.
    pub from: TopicName,
    /// The move.
    pub task: MoveTask,
}

/// The moves of every topic, the newest of each last.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    by_topic: Mutex<HashMap<TopicId, Vec<MoveTask>>>,
    /// There may be a move that nobody carries out yet.
    pub ordered: Notify,
    /// A move is wanted to end.
    pub canceled: Notify,
}

impl MoveState {
    /// Nothing more will be moved.
    pub const fn has_ended(self) -> bool {
        !matches!(self, MoveState::Running | MoveState::Canceling)
    }
}

impl Moves {
    /// The text of a topic's moves in its record.
    pub fn text(tasks: &[MoveTask]) -> Result<String, Error> {
        serde_json::to_string(tasks).map_err(|error| Error::schema(error.to_string()))
    }

    /// The moves of a topic, the newest last.
    pub fn of(&self, topic: TopicId) -> Vec<MoveTask> {
        lock(&self.by_topic).get(&topic).cloned().unwrap_or_default()
    }

    /// The move of a topic that has not ended.
    pub fn open(&self, topic: TopicId) -> Option<MoveTask> {
        lock(&self.by_topic).get(&topic)?.last().filter(|task| !task.state.has_ended()).cloned()
    }

    /// Topics with a move that has not ended.
    pub fn topics_with_open(&self) -> Vec<TopicId> {
        let table = lock(&self.by_topic);
        let is_open = |tasks: &[MoveTask]| tasks.last().is_some_and(|task| !task.state.has_ended());
        table.iter().filter(|(_, tasks)| is_open(tasks)).map(|(topic, _)| *topic).collect()
    }

    /// A number that no move has: later ones have larger ones, and the clock never goes back.
    pub fn next_id(&self, now: Millis) -> u64 {
        let newest = lock(&self.by_topic).values().filter_map(|tasks| tasks.last()).map(|task| task.id).max();
        newest.map_or(now, |newest| now.max(newest + 1))
    }

    /// Puts in what has been written down.
    pub fn put(&self, topic: TopicId, tasks: Vec<MoveTask>) {
        lock(&self.by_topic).insert(topic, tasks);
    }

    /// Puts in what a record says.
    pub fn put_text(&self, topic: TopicId, text: &str) -> Result<(), Error> {
        let tasks = serde_json::from_str(text).map_err(|error| Error::schema(format!("moves: {error}")))?;
        self.put(topic, tasks);
        Ok(())
    }

    /// So many messages more were moved. The record of each says so, so nothing else need be written down.
    pub fn count(&self, topic: TopicId, messages: u64) {
        let mut table = lock(&self.by_topic);
        let task = table.get_mut(&topic).and_then(|tasks| tasks.last_mut());
        if let Some(task) = task.filter(|task| !task.state.has_ended()) {
            task.moved += messages;
        }
    }

    /// A topic and its own dead letters are gone.
    pub fn forget(&self, topic: TopicId) {
        lock(&self.by_topic).retain(|of, _| of.home() != topic.home());
    }
}

/// Adds a move to those of its topic; refused while another has not ended.
pub(crate) fn begin(tasks: &mut Vec<MoveTask>, task: MoveTask) -> Result<MoveTask, Error> {
    if tasks.last().is_some_and(|last| !last.state.has_ended()) {
        return Err(Error::new(Kind::Conflict, "messages of this topic are being moved already"));
    }
    if tasks.len() >= REMEMBERED_MAX {
        tasks.drain(..=tasks.len() - REMEMBERED_MAX);
    }
    tasks.push(task.clone());
    Ok(task)
}

/// Changes where the move of this number stands; refused if it has ended.
pub(crate) fn change(
    tasks: &mut [MoveTask],
    id: u64,
    state: MoveState,
    failure: Option<MoveFailure>,
) -> Result<MoveTask, Error> {
    let task = tasks.iter_mut().find(|task| task.id == id);
    let task = task.ok_or_else(|| Error::new(Kind::NotFound, format!("move {id} does not exist")))?;
    if task.state.has_ended() {
        return Err(Error::new(Kind::Conflict, format!("move {id} has already ended")));
    }
    task.state = state;
    task.failure = failure;
    Ok(task.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicId = TopicId(4);

    fn task(id: u64, state: MoveState) -> MoveTask {
        let to = id.is_multiple_of(2).then(|| "there".parse().expect("a name"));
        MoveTask { id, to, rate_per_second: Some(7), state, moved: 0, to_move: 3, failure: None, started_ms: id }
    }

    #[test]
    fn reasons_are_read_in_old_and_new_words() {
        for (text, expected) in [
            ("no_destination", MoveFailure::NoDestination),
            ("AWS.SimpleQueueService.NonExistentQueue", MoveFailure::NoDestination),
            ("no_origin", MoveFailure::NoOrigin),
            ("CouldNotDetermineMessageSource", MoveFailure::NoOrigin),
        ] {
            let read: MoveFailure = serde_json::from_value(text.into()).expect("known");
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn one_move_of_a_topic_at_a_time_and_the_last_ones_are_remembered() {
        let mut tasks = Vec::new();
        for id in 1..=25 {
            begin(&mut tasks, task(id, MoveState::Running)).expect("none is open");
            let again = begin(&mut tasks, task(99, MoveState::Running)).expect_err("one is open");
            assert_eq!(again.kind, Kind::Conflict);
            change(&mut tasks, id, MoveState::Canceling, None).expect("it runs");
            assert!(begin(&mut tasks, task(99, MoveState::Running)).is_err(), "it has not ended yet");
            change(&mut tasks, id, MoveState::Failed, Some(MoveFailure::NoOrigin)).expect("it has not ended");
            let late = change(&mut tasks, id, MoveState::Canceling, None).expect_err("it has ended");
            assert_eq!(late.kind, Kind::Conflict);
        }
        let ids: Vec<u64> = tasks.iter().map(|task| task.id).collect();
        assert_eq!(ids, (16..=25).collect::<Vec<_>>());
        assert_eq!(change(&mut tasks, 3, MoveState::Canceled, None).expect_err("forgotten").kind, Kind::NotFound);
    }

    #[test]
    fn what_is_written_down_comes_back() {
        let tasks = vec![task(1, MoveState::Failed), task(2, MoveState::Canceling)];
        let (moves, again) = (Moves::default(), Moves::default());
        moves.put(TOPIC, tasks.clone());
        again.put_text(TOPIC, &Moves::text(&moves.of(TOPIC)).expect("text")).expect("its own text");
        assert_eq!((again.of(TOPIC), again.topics_with_open()), (tasks, vec![TOPIC]));
        assert!(again.put_text(TOPIC, "{}").is_err());
    }

    #[test]
    fn only_an_open_move_counts_and_numbers_are_never_given_again() {
        let moves = Moves::default();
        assert_eq!(moves.next_id(50), 50);
        moves.put(TOPIC, vec![task(50, MoveState::Running)]);
        assert_eq!((moves.next_id(50), moves.next_id(70)), (51, 70));
        moves.count(TOPIC, 2);
        moves.count(TopicId(5), 2);
        assert_eq!(moves.open(TOPIC).map(|task| task.moved), Some(2));
        let mut tasks = moves.of(TOPIC);
        change(&mut tasks, 50, MoveState::Completed, None).expect("it runs");
        moves.put(TOPIC, tasks);
        moves.count(TOPIC, 2);
        assert_eq!((moves.open(TOPIC), moves.of(TOPIC)[0].moved), (None, 2));
        moves.put(TopicId(TOPIC.0 | 1 << 31), vec![task(60, MoveState::Running)]);
        moves.forget(TOPIC);
        assert!(moves.of(TOPIC).is_empty() && moves.topics_with_open().is_empty(), "dead letters go with their topic");
    }
}
