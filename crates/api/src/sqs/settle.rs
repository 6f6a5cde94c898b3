//! Deleting what was received, and changing for how long it is hidden: one message, or up to ten.
//!
//! On a queue that keeps no order every receipt handle of a message stays good while the message is there, also after
//! its time or once somebody else has received the message: AWS promises that, and clients retry with the handle they
//! have.

use ron_types::{Error, Kind};
use svc_mailbox::capabilities::ACK;
use svc_mailbox::types::Groups;
use svc_mailbox::{Fencing, Receipt, TopicView};

use super::App;
use super::attributes::VISIBILITY_SECONDS;
use super::caller::Caller;
use super::error::SqsError;
use super::model::{self, ActionOutput, Batch, Done, ReceiptEntry};
use super::names;
use super::send::{check_ids, failed};

/// A receipt handle with the receipt it was decoded to.
struct Given<'a> {
    handle: &'a str,
    receipt: Receipt,
    /// Time of the receive, in milliseconds since 1970.
    leased_ms: u64,
}

pub(super) async fn delete_message(
    app: &App,
    caller: &Caller,
    request: model::DeleteMessage,
) -> Result<ActionOutput, SqsError> {
    let (queue, subject) = names::queue_for(app, caller, ACK, request.queue_url.as_deref())?;
    let given = given(app, &queue, request.receipt_handle.as_deref())?;
    let mut outcomes = app.mailbox.ack_fenced(vec![given.receipt], Fencing::Any, caller.call.deadline).await;
    app.metered.acknowledged(&subject, &outcomes);
    deleted(app, caller, &queue, &given, outcomes.pop()).await?;
    Ok(ActionOutput::Nothing)
}

pub(super) async fn delete_message_batch(
    app: &App,
    caller: &Caller,
    request: model::DeleteMessageBatch,
) -> Result<ActionOutput, SqsError> {
    let (queue, subject) = names::queue_for(app, caller, ACK, request.queue_url.as_deref())?;
    let entries = request.entries.unwrap_or_default();
    check_ids("DeleteMessageBatchRequestEntry", entries.iter().map(|entry| entry.id.as_deref()))?;
    let read: Vec<_> = entries.iter().map(|entry| given(app, &queue, entry.receipt_handle.as_deref())).collect();
    let receipts = read.iter().flatten().map(|given| given.receipt).collect();
    let outcomes = app.mailbox.ack_fenced(receipts, Fencing::Any, caller.call.deadline).await;
    app.metered.acknowledged(&subject, &outcomes);
    let mut outcomes = outcomes.into_iter();
    let mut results = Vec::with_capacity(read.len());
    for given in read {
        results.push(match given {
            Ok(given) => deleted(app, caller, &queue, &given, outcomes.next()).await,
            Err(error) => Err(error),
        });
    }
    Ok(batch_of(entries, results))
}

pub(super) async fn change_message_visibility(
    app: &App,
    caller: &Caller,
    request: model::ChangeMessageVisibility,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ACK, request.queue_url.as_deref())?;
    let given = given(app, &queue, request.receipt_handle.as_deref())?;
    let visibility_ms = visibility_ms(app, request.visibility_timeout, &given)?;
    let receipts = vec![given.receipt];
    let outcome = app.mailbox.extend_fenced(receipts, visibility_ms, Fencing::Any, caller.call.deadline).await.pop();
    changed(app, caller, &queue, &given, outcome).await?;
    Ok(ActionOutput::Nothing)
}

pub(super) async fn change_message_visibility_batch(
    app: &App,
    caller: &Caller,
    request: model::ChangeMessageVisibilityBatch,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ACK, request.queue_url.as_deref())?;
    let entries = request.entries.unwrap_or_default();
    check_ids("ChangeMessageVisibilityBatchRequestEntry", entries.iter().map(|entry| entry.id.as_deref()))?;
    let read: Vec<_> = entries
        .iter()
        .map(|entry| {
            let given = given(app, &queue, entry.receipt_handle.as_deref())?;
            Ok((visibility_ms(app, entry.visibility_timeout, &given)?, given))
        })
        .collect();
    // One step for all that are to be hidden equally long, which mostly are all.
    let mut times: Vec<u64> = read.iter().flatten().map(|(time, _)| *time).collect();
    times.sort_unstable();
    times.dedup();
    let mut outcomes = Vec::with_capacity(times.len());
    for time in &times {
        let of_time = read.iter().flatten().filter(|(other, _)| other == time).map(|(_, given)| given.receipt);
        let receipts = of_time.collect();
        let changed = app.mailbox.extend_fenced(receipts, *time, Fencing::Any, caller.call.deadline).await;
        outcomes.push(changed.into_iter());
    }
    let mut results = Vec::with_capacity(read.len());
    for given in read {
        results.push(match given {
            Ok((time, given)) => {
                let outcome = times.binary_search(&time).ok().and_then(|place| outcomes[place].next());
                changed(app, caller, &queue, &given, outcome).await
            }
            Err(error) => Err(error),
        });
    }
    Ok(batch_of(entries, results))
}

/// Reads a receipt; one of another queue is none of this.
fn given<'a>(app: &App, queue: &TopicView, handle: Option<&'a str>) -> Result<Given<'a>, SqsError> {
    let handle = handle.filter(|handle| !handle.is_empty()).ok_or_else(|| SqsError::missing("ReceiptHandle"))?;
    let read = handle.parse::<Receipt>().and_then(|receipt| Ok((receipt, app.mailbox.topic_of(&receipt)?)));
    match read {
        Ok((receipt, (topic, leased_ms))) if topic == queue.name => Ok(Given { handle, receipt, leased_ms }),
        _ => Err(SqsError::receipt_invalid(handle)),
    }
}

/// For how long to hide a message from now on; all the times together are bounded.
fn visibility_ms(app: &App, visibility_timeout: Option<i64>, given: &Given<'_>) -> Result<u64, SqsError> {
    let wanted = visibility_timeout.ok_or_else(|| SqsError::missing("VisibilityTimeout"))?;
    let (min, max) = (*VISIBILITY_SECONDS.start(), *VISIBILITY_SECONDS.end());
    let seconds = u64::try_from(wanted).ok().filter(|seconds| VISIBILITY_SECONDS.contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        let reason = format!("Must be between {min} and {max}.");
        SqsError::invalid_parameter("VisibilityTimeout", wanted, reason)
    })?;
    let hidden_seconds = app.mailbox.now().saturating_sub(given.leased_ms) / 1000;
    if hidden_seconds + seconds > max {
        let reason = format!("Total VisibilityTimeout for the message is beyond the limit [{max} seconds]");
        return Err(SqsError::invalid_parameter("VisibilityTimeout", wanted, reason));
    }
    Ok(seconds * 1000)
}

/// Result of an acknowledgement that came too late: success where order is not kept, or where the message is gone.
async fn deleted(
    app: &App,
    caller: &Caller,
    queue: &TopicView,
    given: &Given<'_>,
    outcome: Option<Result<(), Error>>,
) -> Result<(), SqsError> {
    let is_fifo = queue.settings.groups == Groups::Fifo;
    if is_fifo {
        app.state.attempts.touch(&given.receipt);
    }
    match outcome.unwrap_or_else(unanswered) {
        Ok(()) => Ok(()),
        Err(error) if error.kind == Kind::NotFound => {
            match is_fifo && app.mailbox.is_held(&given.receipt, caller.call.deadline).await? {
                true => Err(SqsError::receipt_expired(given.handle)),
                false => Ok(()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

async fn changed(
    app: &App,
    caller: &Caller,
    queue: &TopicView,
    given: &Given<'_>,
    outcome: Option<Result<u64, Error>>,
) -> Result<(), SqsError> {
    if queue.settings.groups == Groups::Fifo {
        app.state.attempts.touch(&given.receipt);
    }
    match outcome.unwrap_or_else(unanswered) {
        Ok(_) => Ok(()),
        Err(error) if error.kind == Kind::NotFound => {
            match app.mailbox.is_held(&given.receipt, caller.call.deadline).await? {
                true => Err(SqsError::message_not_inflight()),
                false => Err(SqsError::message_not_available(given.handle)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn unanswered<T>() -> Result<T, Error> {
    Err(Error::new(Kind::Degraded, "the mailbox did not say what became of it"))
}

fn batch_of(entries: Vec<ReceiptEntry>, results: Vec<Result<(), SqsError>>) -> ActionOutput {
    let mut batch = Batch::default();
    for (entry, result) in entries.into_iter().zip(results) {
        let id = entry.id.unwrap_or_default();
        match result {
            Ok(()) => batch.successful.push(Done::Settled { id }),
            Err(error) => batch.failed.push(failed(id, error)),
        }
    }
    ActionOutput::Batch(batch)
}
