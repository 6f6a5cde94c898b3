//! Moves: orders to take messages out of a topic, dead letters above all. Each is written down beside its topic with
//! its progress, so that it goes on after a restart. The native surface and SQS show the same moves.

use ron_kernel::queue::Payload;
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};

use crate::mailbox::browse::Filter;
use crate::types::{Millis, TopicId, TopicName};

mod table;

pub(crate) use table::Moves;

/// Moves of the node that have not ended. All of them are in the reprocessor's hands, so that one that is paused or
/// waits keeps no place from another.
pub(crate) const OPEN_MAX: usize = 1024;
/// Moves of one topic that have not ended: those who look after one topic cannot use up the moves of the node.
pub(crate) const OPEN_OF_TOPIC_MAX: usize = 32;
/// Moves of one subject that have not ended: whoever looks after many topics leaves most of the node's to others.
pub(crate) const OPEN_OF_SUBJECT_MAX: usize = 256;
/// Topics that one order may name as origins: they must fit the head of a record beside the rest of its move.
const ORIGINS_MAX: usize = 1000;
/// Bytes of a filter as JSON: it must fit the head of a record beside the rest of its move.
const FILTER_BYTES_MAX: usize = 16 * 1024;

/// What is to be moved where, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// The topic whose messages go.
    pub from: TopicName,
    /// Where they go; none means each to the topic it was for.
    pub to: Option<TopicName>,
    /// Topics whose dead letters go; none means every message, whatever it was for.
    pub origins: Option<Vec<TopicName>>,
    /// Which messages go; the default means all.
    pub filter: Filter,
    /// Maximum messages moved in all.
    pub limit: Option<u64>,
    /// Messages moved in a second; none means as fast as it goes.
    pub rate_per_second: Option<u32>,
    /// What becomes of the order while another move wants the same messages.
    pub if_busy: IfBusy,
    /// What becomes of the move when a message cannot go where it should.
    pub on_failure: OnFailure,
    /// Subject whose order it is; none where nobody is told apart from others.
    pub ordered_by: Option<String>,
}

/// What becomes of an order while another move of its topic, that is not paused, wants the same messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfBusy {
    /// It is refused as a conflict, as SQS wants it.
    Refuse,
    /// It waits its turn.
    Wait,
}

/// What becomes of a move when a message cannot go where it should; the message stays in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The move ends as failed, as SQS wants it.
    #[default]
    Stop,
    /// The message is counted as failed and the move goes on with the next.
    Skip,
}

/// Where a move stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveState {
    /// Another move that wants the same messages comes first.
    Waiting,
    /// It is being carried out.
    Running,
    /// An operator paused it.
    Paused,
    /// Every message that was there, was meant and was with no consumer has been moved, or as many as the limit says.
    Completed,
    /// An operator ended it, and that is not yet done.
    Canceling,
    /// An operator ended it.
    Canceled,
    /// It could not go on.
    Failed,
}

/// What an operator does about a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveControl {
    /// Stop for now.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good.
    Cancel,
}

/// Why a message could not be moved. Older logs have the words of SQS for it.
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

/// A move and its progress, as it is written down with its topic. Fields with a default are not in older logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// The move's number, unique on this node; later ones are larger.
    pub id: u64,
    /// Where messages go; none means each to the topic it was for.
    pub to: Option<TopicName>,
    /// Number of that topic: it decides, so that a topic made anew with the name gets nothing. Older logs have only the
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_id: Option<TopicId>,
    /// Topics whose dead letters go; none means every message. Forgotten when the move ends, like the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<TopicId>>,
    /// Which messages go. Forgotten when the move ends, because nobody needs it then.
    #[serde(default, skip_serializing_if = "Filter::is_empty")]
    pub filter: Filter,
    /// Maximum messages moved in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Messages moved in a second.
    pub rate_per_second: Option<u32>,
    /// What becomes of the move when a message cannot go where it should.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Where it stands.
    pub state: MoveState,
    /// Messages moved. Recovery counts it from the record of each message, so it is right after a crash, too.
    pub moved: u64,
    /// Messages looked at, moved or not. As of the last record; a restart looks at what is left again.
    #[serde(default)]
    pub looked_at: u64,
    /// Messages that could not be moved. As of the last record, like `looked_at`.
    #[serde(default)]
    pub failed: u64,
    /// Messages there were when it began, meant or not.
    pub to_move: u64,
    /// Why it could not go on.
    pub failure: Option<MoveFailure>,
    /// Why the last message that could not be moved could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Subject that ordered it; none in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// When it was ordered; 0 in older logs, whose moves began at once.
    #[serde(default)]
    pub ordered_ms: Millis,
    /// When it began; 0 while it has not.
    pub started_ms: Millis,
}

/// A move as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveView {
    /// The topic whose messages go.
    pub from: TopicName,
    /// The move itself, as the log keeps it.
    pub task: MoveTask,
}

/// An order on its way to the reprocessor, which finds the rest in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderedMove {
    pub topic: TopicId,
    pub id: u64,
}

impl Payload for OrderedMove {}

impl MoveState {
    /// Nothing more will be moved.
    pub const fn has_ended(self) -> bool {
        matches!(self, MoveState::Completed | MoveState::Canceled | MoveState::Failed)
    }
}

impl MoveOrder {
    /// An order to move everything, each message to the topic it was for, that waits its turn and skips failures.
    pub fn all_of(from: TopicName) -> Self {
        MoveOrder {
            from,
            to: None,
            origins: None,
            filter: Filter::default(),
            limit: None,
            rate_per_second: None,
            if_busy: IfBusy::Wait,
            on_failure: OnFailure::Skip,
            ordered_by: None,
        }
    }

    /// Holds an order to its limits, naming the field that is out of them.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.to.as_ref() == Some(&self.from) {
            return Err(Error::schema("to: messages cannot be moved to the topic that holds them"));
        }
        if self.rate_per_second == Some(0) {
            return Err(Error::schema("rate_per_second: 0 is not between 1 and 4294967295"));
        }
        if self.limit == Some(0) {
            return Err(Error::schema(format!("limit: 0 is not between 1 and {}", u64::MAX)));
        }
        if self.origins.as_ref().is_some_and(|origins| origins.len() > ORIGINS_MAX) {
            return Err(Error::schema(format!("to: name one, because more than {ORIGINS_MAX} topics are meant")));
        }
        let bytes = serde_json::to_string(&self.filter).map_or(usize::MAX, |text| text.len());
        if bytes > FILTER_BYTES_MAX {
            return Err(Error::schema(format!("filter: {bytes} bytes are over {FILTER_BYTES_MAX}")));
        }
        Ok(())
    }

    /// The move that begins with this order; the numbers of the topics it names are still to be set.
    pub(crate) fn task(self, id: u64, to_move: u64, now: Millis, must_wait: bool) -> MoveTask {
        MoveTask {
            id,
            to: self.to,
            to_id: None,
            origins: None,
            filter: self.filter,
            limit: self.limit,
            rate_per_second: self.rate_per_second,
            on_failure: self.on_failure,
            state: if must_wait { MoveState::Waiting } else { MoveState::Running },
            moved: 0,
            looked_at: 0,
            failed: 0,
            to_move,
            failure: None,
            last_error: None,
            ordered_by: self.ordered_by,
            ordered_ms: now,
            started_ms: if must_wait { 0 } else { now },
        }
    }
}

impl MoveTask {
    /// The limit is reached.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.limit.is_some_and(|limit| self.moved >= limit)
    }

    /// As it is when it ends.
    pub(crate) fn ended(self, state: MoveState, failure: Option<MoveFailure>) -> Self {
        MoveTask { state, failure, filter: Filter::default(), origins: None, ..self }
    }

    /// Whether it must wait because another of these moves wants the same messages: one that runs, or one that waits
    /// and was ordered before. A paused one holds up nobody.
    pub(crate) fn must_wait(&self, others: &[MoveTask]) -> bool {
        others.iter().filter(|other| other.id != self.id && other.overlaps(self)).any(|other| match other.state {
            MoveState::Running | MoveState::Canceling => true,
            MoveState::Waiting => other.id < self.id,
            MoveState::Paused | MoveState::Completed | MoveState::Canceled | MoveState::Failed => false,
        })
    }

    fn overlaps(&self, other: &MoveTask) -> bool {
        match (&self.origins, &other.origins) {
            (Some(ours), Some(theirs)) => ours.iter().any(|origin| theirs.contains(origin)),
            _ => true,
        }
    }

    /// As it is after an operator did something about it, beside the other moves of its topic; a conflict if it has
    /// ended.
    pub(crate) fn controlled(self, control: MoveControl, others: &[MoveTask]) -> Result<Self, Error> {
        let has_begun = self.started_ms > 0;
        let state = match (control, self.state) {
            (_, state) if state.has_ended() => {
                return Err(Error::new(Kind::Conflict, format!("move {} has already ended", self.id)));
            }
            // Nobody goes back from an end that was answered as one.
            (_, MoveState::Canceling) => MoveState::Canceling,
            (MoveControl::Pause, _) => MoveState::Paused,
            (MoveControl::Resume, MoveState::Paused) if has_begun && !self.must_wait(others) => MoveState::Running,
            (MoveControl::Resume, MoveState::Paused) => MoveState::Waiting,
            (MoveControl::Resume, state) => state,
            (MoveControl::Cancel, _) if !has_begun => return Ok(self.ended(MoveState::Canceled, None)),
            (MoveControl::Cancel, _) => MoveState::Canceling,
        };
        Ok(MoveTask { state, ..self })
    }
}

impl MoveView {
    /// When everything will have been looked at, at the pace so far; none while that is not known.
    pub fn eta_ms(&self, now: Millis) -> Option<Millis> {
        let MoveTask { state, looked_at, to_move, started_ms, .. } = self.task;
        let spent = now.saturating_sub(started_ms);
        let is_known = state == MoveState::Running && looked_at > 0;
        is_known.then(|| now + spent.saturating_mul(to_move.saturating_sub(looked_at)) / looked_at)
    }
}

impl std::fmt::Display for MoveFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            MoveFailure::NoDestination => "the topic it should go to does not exist",
            MoveFailure::NoOrigin => "to: the message came from no other topic; name one",
        })
    }
}

/// The move of this number.
pub(crate) fn find(tasks: &[MoveTask], id: u64) -> Result<MoveTask, Error> {
    let found = tasks.iter().find(|task| task.id == id).cloned();
    found.ok_or_else(|| no_move(id))
}

pub(crate) fn no_move(id: u64) -> Error {
    Error::new(Kind::NotFound, format!("move {id} does not exist"))
}

#[cfg(test)]
mod tests;
