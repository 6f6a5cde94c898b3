//! Tasks that move dead messages back, or elsewhere.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use ron_auth::Action;
use ron_types::Kind;
use serde::{Deserialize, Serialize};
use svc_mailbox::capabilities::{ADMIN, SEND};
use svc_mailbox::types::TopicName;
use svc_mailbox::{IfBusy, MoveControl, MoveFailure, MoveOrder, MoveState, MoveView, OnFailure, TopicView};

use super::App;
use super::caller::Caller;
use super::error::SqsError;
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
        ..MoveOrder::all_of(source.name.clone())
    };
    let started = app.mailbox.start_move(order, caller.call.deadline).await.map_err(|error| match error.kind {
        Kind::Conflict => SqsError::invalid_value(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
        ),
        _ => error.into(),
    })?;
    Ok(ActionOutput::MoveStarted(MoveStarted { task_handle: handle_of(app, caller, &started) }))
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
    let results = views.iter().take(count as usize).map(|view| shown(app, caller, view)).collect();
    Ok(ActionOutput::Moves(Moves { results }))
}

pub(super) async fn cancel_message_move_task(
    app: &App,
    caller: &Caller,
    request: model::CancelMessageMoveTask,
) -> Result<ActionOutput, SqsError> {
    let handle = request.task_handle.filter(|handle| !handle.is_empty());
    let handle = handle.ok_or_else(|| SqsError::missing("TaskHandle"))?;
    let (source, id) = read_handle(&app.options.account_id, &handle)
        .ok_or_else(|| SqsError::invalid_value("Value for parameter TaskHandle is invalid."))?;
    caller.allow(app, ADMIN, source.as_str())?;
    let canceled = app.mailbox.control_move(&source, id, MoveControl::Cancel, caller.call.deadline).await;
    let canceled = canceled.map_err(|error| match error.kind {
        Kind::NotFound => {
            let shape = "ResourceNotFoundException";
            SqsError::new(shape, shape, "Task does not exist.").with_status(StatusCode::NOT_FOUND)
        }
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
        return Err(SqsError::invalid_parameter(parameter, arn, "Must be the ARN of a queue."));
    }
    let missing = || SqsError::no_resource(parameter);
    let name = names::queue_of_arn(&app.options.account_id, arn).ok_or_else(missing)?;
    caller.allow(app, action, name.as_str())?;
    app.mailbox.topic(&name).map_err(|_| missing())
}

/// Contents of a task handle, which clients see as opaque text.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    task_id: u64,
    source_arn: String,
}

fn handle_of(app: &App, caller: &Caller, view: &MoveView) -> String {
    let handle = Handle { task_id: view.task.id, source_arn: names::arn_of(app, caller, view.from.as_str()) };
    write_handle(&handle)
}

fn write_handle(handle: &Handle) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(handle).expect("a number and a text are JSON"))
}

fn read_handle(account_id: &str, text: &str) -> Option<(TopicName, u64)> {
    let handle: Handle = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    Some((names::queue_of_arn(account_id, &handle.source_arn)?, handle.task_id))
}

fn shown(app: &App, caller: &Caller, view: &MoveView) -> MoveTask {
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
        task_handle: (status == "RUNNING").then(|| handle_of(app, caller, view)),
        status,
        source_arn: names::arn_of(app, caller, view.from.as_str()),
        destination_arn: task.to.as_ref().map(|to| names::arn_of(app, caller, to.as_str())),
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
        let source_arn = "arn:aws:sqs:eu-west-1:000000000000:dead".to_owned();
        let text = write_handle(&Handle { task_id: 42, source_arn });
        assert_eq!(read_handle("000000000000", &text), Some(("dead".parse().expect("a name"), 42)));
        assert_eq!(read_handle("111111111111", &text), None);
        for garbage in ["", "garbage", "!", &text[..text.len() - 4]] {
            assert_eq!(read_handle("000000000000", garbage), None, "{garbage}");
        }
    }
}
