//! Tasks that move dead messages back, or elsewhere.

use base64::Engine as _;
use ron_auth::Action;
use ron_types::Kind;
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::{ADMIN, SEND};
use svc_mailbox::types::TopicName;
use svc_mailbox::{IfBusy, MoveControl, MoveFailure, MoveOrder, MoveState, MoveView, OnFailure, TopicView};
use uuid::Uuid;

use super::App;
use super::caller::Caller;
use super::error::SqsError;
use super::message::BASE64;
use super::model::{self, ActionOutput, MoveCanceled, MoveStarted, MoveTask, Moves};
use super::names;

const RATE_MAX: i64 = 500;
const RESULTS_MAX: i64 = 10;

pub(super) async fn start_message_move_task(
    app: &App,
    caller: &Caller,
    request: model::StartMessageMoveTask,
) -> Result<ActionOutput, SqsError> {
    let source = queue_for(app, caller, ADMIN, "SourceArn", request.source_arn.as_deref())?;
    let target = request.destination_arn.as_deref().filter(|arn| !arn.is_empty());
    let target = target.map(|arn| queue_for(app, caller, SEND, "DestinationArn", Some(arn))).transpose()?;
    let rate = request.max_number_of_messages_per_second;
    if let Some(rate) = rate.filter(|rate| !(1..=RATE_MAX).contains(rate)) {
        return Err(SqsError::out_of_range("MaxNumberOfMessagesPerSecond", rate, 1, RATE_MAX));
    }
    if app.mailbox.origins_of(&source.name).is_empty() {
        return Err(SqsError::invalid_value("Source queue must be configured as a Dead Letter Queue."));
    }
    if let Some(target) = &target {
        check_target(&source, target)?;
    }
    let origins = match &target {
        Some(_) => None,
        None => app.mailbox.origins_for(&source.name, |queue| caller.allow(app, SEND, queue).map(drop))?,
    };
    let order = MoveOrder {
        to: target.map(|target| target.name),
        origins,
        rate_per_second: rate.and_then(|rate| u32::try_from(rate).ok()),
        if_busy: IfBusy::Refuse,
        on_failure: OnFailure::Stop,
        ordered_by: Some(caller.sender.clone()),
        ..MoveOrder::all_of(source.name.clone())
    };
    let started = app.mailbox.start_move(order, caller.call.deadline).await.map_err(|error| match error.kind {
        Kind::Conflict => SqsError::invalid_value(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
        ),
        _ => error.into(),
    })?;
    Ok(ActionOutput::MoveStarted(MoveStarted { task_handle: handle_of(caller, &started) }))
}

fn check_target(source: &TopicView, target: &TopicView) -> Result<(), SqsError> {
    if target.name == source.name {
        return Err(SqsError::invalid_value("Source queue arn and destination queue arn cannot be the same."));
    }
    if target.settings.groups != source.settings.groups {
        return Err(SqsError::invalid_value("Source queue and destination queue must be of the same type."));
    }
    Ok(())
}

#[expect(clippy::unused_async, reason = "an action")]
pub(super) async fn list_message_move_tasks(
    app: &App,
    caller: &Caller,
    request: model::ListMessageMoveTasks,
) -> Result<ActionOutput, SqsError> {
    let source = queue_for(app, caller, ADMIN, "SourceArn", request.source_arn.as_deref())?;
    let count = request.max_results.unwrap_or(1);
    if !(1..=RESULTS_MAX).contains(&count) {
        return Err(SqsError::out_of_range("MaxResults", count, 1, RESULTS_MAX));
    }
    let views = app.mailbox.moves(&source.name);
    let results = views.iter().take(count as usize).map(|view| shown(caller, view)).collect();
    Ok(ActionOutput::Moves(Moves { results }))
}

pub(super) async fn cancel_message_move_task(
    app: &App,
    caller: &Caller,
    request: model::CancelMessageMoveTask,
) -> Result<ActionOutput, SqsError> {
    let handle = request.task_handle.filter(|handle| !handle.is_empty());
    let handle = handle.ok_or_else(|| SqsError::missing("TaskHandle"))?;
    let handle =
        Handle::read(&handle).ok_or_else(|| SqsError::invalid_value("Value for parameter TaskHandle is invalid."))?;
    let source = queue_for(app, caller, ADMIN, "SourceArn", Some(&handle.source_arn))?.name;
    let id = number_of_task(&source, &handle.task_id).ok_or_else(SqsError::no_move_task)?;
    let canceled = app.mailbox.control_move(&source, id, MoveControl::Cancel, caller.call.deadline).await;
    let canceled = canceled.map_err(|error| match error.kind {
        Kind::NotFound => SqsError::no_move_task(),
        Kind::Conflict => SqsError::unsupported("Only active tasks can be cancelled."),
        _ => error.into(),
    })?;
    Ok(ActionOutput::MoveCanceled(MoveCanceled { approximate_number_of_messages_moved: canceled.task.moved }))
}

/// The queue a request names by its ARN, if its caller may do this to it.
fn queue_for(
    app: &App,
    caller: &Caller,
    action: Action,
    parameter: &str,
    arn: Option<&str>,
) -> Result<TopicView, SqsError> {
    let arn = arn.filter(|arn| !arn.is_empty()).ok_or_else(|| SqsError::missing(parameter))?;
    if names::read_arn(arn).is_none() {
        return Err(SqsError::invalid_value(format!(
            "You must use this format to specify the {parameter}: \
             arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )));
    }
    let missing = || SqsError::no_resource(parameter);
    let name = caller.namespace.topic_of_arn(arn).ok_or_else(missing)?;
    caller.allow(app, action, name.as_str())?;
    app.mailbox.topic(&name).map_err(|_| missing())
}

/// Contents of a task handle, which clients see as opaque text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    /// A UUID where the node wrote it; any text where somebody else did.
    task_id: String,
    source_arn: String,
}

impl Handle {
    /// The contents of a handle with an ARN in it.
    fn read(text: &str) -> Option<Handle> {
        let handle: Handle = serde_json::from_slice(&BASE64.decode(text).ok()?).ok()?;
        names::read_arn(&handle.source_arn).is_some().then_some(handle)
    }

    fn write(&self) -> String {
        BASE64.encode(serde_json::to_vec(self).expect("texts are JSON"))
    }
}

fn handle_of(caller: &Caller, view: &MoveView) -> String {
    let task_id = id_of_task(&view.from, view.task.id).to_string();
    Handle { task_id, source_arn: caller.namespace.arn(view.from.as_str()) }.write()
}

/// Bits of a task's number in its id; the two above them belong to the format.
const NUMBER_BITS: u32 = 62;

/// The id of a task: a UUID whose first half stands for the queue and whose second half is the task's number, so that
/// an id tells its number without a table, and one of another queue is none of this.
fn id_of_task(source: &TopicName, number: u64) -> Uuid {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, source.as_str().as_bytes());
    let first = digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    // Version 8, which leaves the meaning of the other bits to whoever makes the id.
    let first = first & !0xf000 | 0x8000;
    Uuid::from_u64_pair(first, 0b10 << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1))
}

fn number_of_task(source: &TopicName, id: &str) -> Option<u64> {
    let id = Uuid::try_parse(id).ok()?;
    let number = id.as_u64_pair().1 & ((1 << NUMBER_BITS) - 1);
    (id_of_task(source, number) == id).then_some(number)
}

fn shown(caller: &Caller, view: &MoveView) -> MoveTask {
    let task = &view.task;
    let status = match task.state {
        // SQS knows no pause and no waiting: these are moves of the native surface.
        MoveState::Running | MoveState::Waiting | MoveState::Paused => "RUNNING",
        MoveState::Completed => "COMPLETED",
        MoveState::Canceling => "CANCELLING",
        MoveState::Canceled => "CANCELLED",
        MoveState::Failed => "FAILED",
    };
    let failure_reason = task.failure.map(|failure| match failure {
        MoveFailure::NoDestination => "AWS.SimpleQueueService.NonExistentQueue",
        MoveFailure::NoOrigin => "CouldNotDetermineMessageSource",
    });
    MoveTask {
        task_handle: (status == "RUNNING").then(|| handle_of(caller, view)),
        status,
        source_arn: caller.namespace.arn(view.from.as_str()),
        destination_arn: task.to.as_ref().map(|to| caller.namespace.arn(to.as_str())),
        max_number_of_messages_per_second: task.rate_per_second,
        approximate_number_of_messages_moved: task.moved,
        approximate_number_of_messages_to_move: Some(task.to_move),
        failure_reason,
        started_timestamp: task.started_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_its_task_and_its_queue() {
        let (dead, other): (TopicName, TopicName) = ("dead".parse().expect("a name"), "other".parse().expect("a name"));
        let source_arn = "arn:aws:sqs:eu-west-1:000000000000:dead".to_owned();
        for number in [0, 42, (1 << NUMBER_BITS) - 1] {
            let task_id = id_of_task(&dead, number).to_string();
            let text = Handle { task_id: task_id.clone(), source_arn: source_arn.clone() }.write();
            let handle = Handle::read(&text).expect("its own text");
            assert_eq!((&handle.task_id, &handle.source_arn), (&task_id, &source_arn));
            assert_eq!(number_of_task(&dead, &handle.task_id), Some(number));
            assert_eq!(number_of_task(&other, &handle.task_id), None, "a task of one queue is none of another");
            for garbage in ["", "garbage", "!", &text[..text.len() - 6], &BASE64.encode(r#"{"taskId":"x"}"#)] {
                assert!(Handle::read(garbage).is_none(), "{garbage}");
            }
        }
        for unknown in ["", "42", "10c20b0a-4b2c-4f4e-9a53-0b8e8f2b2d1c"] {
            assert_eq!(number_of_task(&dead, unknown), None, "{unknown}");
        }
    }
}
