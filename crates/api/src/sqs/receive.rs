//! Receiving: what is asked for of each message, and nothing else, is shown.

mod shown;

use ron_auth::Subject;
use svc_mailbox::capabilities::RECV;
use svc_mailbox::types::{Groups, TopicSettings};
use svc_mailbox::{Delivery, Receive, TopicView};

use super::App;
use super::attributes::{VISIBILITY_SECONDS, WAIT_SECONDS, WAIT_SECONDS_RANGE};
use super::caller::Caller;
use super::error::SqsError;
use super::message::checked_id;
use super::model::{self, ActionOutput, Received};
use super::names;
use crate::mailbox::written_bytes;
use shown::RequestedFields;

/// Maximum messages of one receive.
const MESSAGES_MAX: i64 = 10;

/// Parameters of a receive, read and checked.
struct Asked {
    max_messages: usize,
    visibility_ms: Option<u64>,
    wait_ms: u64,
}

pub(super) async fn receive_message(
    app: &App,
    caller: &Caller,
    request: model::ReceiveMessage,
) -> Result<ActionOutput, SqsError> {
    let (queue, subject) = names::queue_for(app, caller, RECV, request.queue_url.as_deref())?;
    let asked = Asked::read(&request, &queue.settings)?;
    let wanted = RequestedFields::read(&request)?;
    let deliveries = match attempt_id(request.receive_request_attempt_id, &queue.settings)? {
        Some(id) => receive_again(app, caller, &queue, &subject, &asked, id).await?,
        None => receive(app, caller, &queue, &subject, &asked).await?,
    };
    let messages = deliveries.into_iter().map(|delivery| wanted.show(caller, &queue.settings, delivery));
    Ok(ActionOutput::Received(Received { messages: messages.collect() }))
}

impl Asked {
    fn read(request: &model::ReceiveMessage, settings: &TopicSettings) -> Result<Self, SqsError> {
        let max_messages = request.max_number_of_messages.unwrap_or(1);
        if !(1..=MESSAGES_MAX).contains(&max_messages) {
            return Err(SqsError::out_of_range("MaxNumberOfMessages", max_messages, 1, MESSAGES_MAX));
        }
        let visibility = request.visibility_timeout.map(|given| {
            let seconds = u64::try_from(given).ok().filter(|seconds| VISIBILITY_SECONDS.contains(seconds));
            let max = *VISIBILITY_SECONDS.end() as i64;
            seconds.ok_or_else(|| SqsError::out_of_range("VisibilityTimeout", given, 0, max))
        });
        let wait = match request.wait_time_seconds {
            // The native surface lets any text be a label.
            None => settings
                .labels
                .get(WAIT_SECONDS)
                .and_then(|seconds| seconds.parse().ok())
                .filter(|seconds| WAIT_SECONDS_RANGE.contains(seconds))
                .unwrap_or(0),
            Some(given) => {
                let seconds = u64::try_from(given).ok().filter(|seconds| WAIT_SECONDS_RANGE.contains(seconds));
                let reason = "Must be >= 0 and <= 20, if provided.";
                seconds.ok_or_else(|| SqsError::invalid_parameter("WaitTimeSeconds", given, reason))?
            }
        };
        Ok(Asked {
            max_messages: max_messages as usize,
            visibility_ms: visibility.transpose()?.map(|seconds| seconds * 1000),
            wait_ms: wait * 1000,
        })
    }
}

fn attempt_id(id: Option<String>, settings: &TopicSettings) -> Result<Option<String>, SqsError> {
    match id {
        None => Ok(None),
        Some(id) if settings.groups == Groups::Fair => Err(SqsError::not_for_this_queue("ReceiveRequestAttemptId", id)),
        Some(id) => checked_id("ReceiveRequestAttemptId", id).map(Some),
    }
}

async fn receive(
    app: &App,
    caller: &Caller,
    queue: &TopicView,
    subject: &Subject,
    asked: &Asked,
) -> Result<Vec<Delivery>, SqsError> {
    let corr_id = caller.call.corr_id.as_str();
    let receive = Receive {
        visibility_ms: asked.visibility_ms,
        max_messages: asked.max_messages,
        max_bytes: usize::MAX,
        wait_ms: asked.wait_ms,
        consumer: [&*subject.name, " ", corr_id].concat(),
    };
    caller.call.has_answer_room()?;
    let _waiting = (asked.wait_ms > 0).then(|| caller.call.wait()).transpose()?;
    let find_room = |bytes| caller.call.hold_answer(bytes);
    let deliveries = app.mailbox.recv_within(subject, &queue.name, receive, caller.call.deadline, find_room).await?;
    if let Err(refusal) = caller.call.hold_answer(deliveries.iter().map(written_bytes).sum()) {
        app.mailbox.undeliver(&deliveries);
        return Err(refusal.into());
    }
    app.metered.received(&subject.name, &deliveries);
    // Whoever waits is told of no limit, nor are those who take messages in order.
    if deliveries.is_empty() && asked.wait_ms == 0 && queue.settings.groups == Groups::Fair {
        let stats = app.mailbox.stats(&queue.name, caller.call.deadline).await?;
        let max = queue.settings.inflight_max;
        if stats.total.leased >= u64::from(max) {
            let message = format!("Too many messages are in flight: this queue allows {max}.");
            return Err(SqsError::over_limit(message));
        }
    }
    Ok(deliveries)
}

/// The same answer as before for the same attempt, as long as nothing has happened to its messages; they are hidden
/// anew. All others are received.
async fn receive_again(
    app: &App,
    caller: &Caller,
    queue: &TopicView,
    subject: &Subject,
    asked: &Asked,
    id: String,
) -> Result<Vec<Delivery>, SqsError> {
    if let Some(deliveries) = remembered(app, caller, queue, asked, &id).await? {
        return Ok(deliveries);
    }
    let deliveries = receive(app, caller, queue, subject, asked).await?;
    if deliveries.is_empty() {
        // A client that gave up on its first request sends the second while the node may still be at the first.
        return Ok(remembered(app, caller, queue, asked, &id).await?.unwrap_or_default());
    }
    app.state.attempts.put(&queue.name, id, app.mailbox.now(), &deliveries);
    Ok(deliveries)
}

/// What this attempt was answered before, hidden anew; none where something has happened to its messages. A caller that
/// has not taken the answers it was given is refused before anything is hidden, and can ask again.
async fn remembered(
    app: &App,
    caller: &Caller,
    queue: &TopicView,
    asked: &Asked,
    id: &str,
) -> Result<Option<Vec<Delivery>>, SqsError> {
    let remembered = app.state.attempts.get(&queue.name, id, app.mailbox.now());
    let Some(deliveries) = remembered else { return Ok(None) };
    caller.call.hold_answer(deliveries.iter().map(written_bytes).sum())?;
    let visibility_ms = asked.visibility_ms.unwrap_or(queue.settings.visibility_ms);
    let receipts = deliveries.iter().map(|delivery| delivery.receipt).collect();
    let hidden = app.mailbox.extend(receipts, visibility_ms, caller.call.deadline).await;
    Ok(hidden.iter().all(Result::is_ok).then_some(deliveries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqs::attributes;

    fn asked(request: model::ReceiveMessage) -> Result<(usize, Option<u64>, u64), SqsError> {
        let mut settings = attributes::defaults(TopicSettings::default(), false);
        settings.labels.insert(WAIT_SECONDS.to_owned(), "7".to_owned());
        Asked::read(&request, &settings).map(|asked| (asked.max_messages, asked.visibility_ms, asked.wait_ms))
    }

    #[test]
    fn numbers_are_held_to_their_bounds() {
        let base = model::ReceiveMessage::default;
        assert_eq!(asked(base()), Ok((1, None, 7000)), "the queue says how long to wait");
        for (count, wait, visibility) in [(1, 0, 0), (10, 20, 43_200)] {
            let request = model::ReceiveMessage {
                max_number_of_messages: Some(count),
                wait_time_seconds: Some(wait),
                visibility_timeout: Some(visibility),
                ..base()
            };
            let expected = (count as usize, Some(visibility as u64 * 1000), wait as u64 * 1000);
            assert_eq!(asked(request), Ok(expected));
        }
        for value in [-1, 0, 11, i64::MIN, i64::MAX] {
            let request = model::ReceiveMessage { max_number_of_messages: Some(value), ..base() };
            assert_eq!(
                asked(request),
                Err(SqsError::invalid_value(format!(
                    "Value {value} for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if \
                 provided."
                )))
            );
        }
        for value in [-1, 21, i64::MIN, i64::MAX] {
            let request = model::ReceiveMessage { wait_time_seconds: Some(value), ..base() };
            assert_eq!(
                asked(request),
                Err(SqsError::invalid_value(format!(
                    "Value {value} for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided."
                )))
            );
        }
        for value in [-1, 43_201, i64::MIN, i64::MAX] {
            let request = model::ReceiveMessage { visibility_timeout: Some(value), ..base() };
            assert_eq!(
                asked(request),
                Err(SqsError::invalid_value(format!(
                    "Value {value} for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200, if \
                 provided."
                )))
            );
        }
    }

    #[test]
    fn a_label_that_is_no_time_to_wait_is_none() {
        for (label, wait_ms) in [("20", 20_000), ("21", 0), ("18446744073709551615", 0), ("-1", 0), ("soon", 0)] {
            let mut settings = TopicSettings::default();
            settings.labels.insert(WAIT_SECONDS.to_owned(), label.to_owned());
            let asked = Asked::read(&model::ReceiveMessage::default(), &settings);
            assert_eq!(asked.map(|asked| asked.wait_ms), Ok(wait_ms), "{label}");
        }
    }

    #[test]
    fn attempt_ids_are_for_queues_that_keep_order() {
        let (fair, fifo) = (TopicSettings::default(), attributes::defaults(TopicSettings::default(), true));
        assert_eq!(attempt_id(None, &fair), Ok(None));
        assert_eq!(attempt_id(Some("a!".into()), &fifo), Ok(Some("a!".to_owned())));
        assert!(attempt_id(Some("a".into()), &fair).is_err_and(|error| error.message.contains("queue type")));
        for bad in [String::new(), "a b".to_owned(), "x".repeat(129)] {
            assert!(attempt_id(Some(bad), &fifo).is_err_and(|error| error.message.contains("1 to 128 in length")));
        }
    }
}
