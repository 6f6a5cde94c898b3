//! Sending: one message, or up to ten.

use svc_mailbox::capabilities::SEND;
use svc_mailbox::types::{Groups, TopicSettings};
use svc_mailbox::{Outgoing, Receipted};

use super::App;
use super::attributes::MESSAGE_BYTES_MAX;
use super::caller::Caller;
use super::error::SqsError;
use super::message::Draft;
use super::model::{self, ActionOutput, Batch, Done, Failed, Sent};
use super::names;

/// Maximum entries of a batch.
const ENTRIES_MAX: usize = 10;

pub(super) async fn send_message(
    app: &App,
    caller: &Caller,
    request: model::SendMessage,
) -> Result<ActionOutput, SqsError> {
    let (queue, subject) = names::queue_for(app, caller, SEND, request.queue_url.as_deref())?;
    let (outgoing, sent) = Draft::from(request).outgoing(&queue.settings, caller.origin())?;
    let bytes = outgoing.bytes();
    let receipted = app.mailbox.send(&subject, &queue.name, outgoing, caller.call.deadline).await;
    app.metered.sent(&subject, bytes, &receipted);
    Ok(ActionOutput::Sent(answered(sent, &receipted?, &queue.settings)))
}

pub(super) async fn send_message_batch(
    app: &App,
    caller: &Caller,
    request: model::SendMessageBatch,
) -> Result<ActionOutput, SqsError> {
    let (queue, subject) = names::queue_for(app, caller, SEND, request.queue_url.as_deref())?;
    let entries = request.entries.unwrap_or_default();
    check_ids("SendMessageBatchRequestEntry", entries.iter().map(|entry| entry.id.as_deref()))?;
    let mut drafts = Vec::with_capacity(entries.len());
    let mut size = 0;
    for mut entry in entries {
        let id = entry.id.take().unwrap_or_default();
        let draft = Draft::from(entry);
        draft.check_order_ids(&queue.settings)?;
        size += draft.size();
        drafts.push((id, draft));
    }
    if size > u64::from(MESSAGE_BYTES_MAX) {
        return Err(SqsError::batch_too_long(MESSAGE_BYTES_MAX.into(), size));
    }
    let (mut batch, mut outgoing, mut sending) = (Batch::default(), Vec::new(), Vec::new());
    for (id, draft) in drafts {
        match draft.outgoing(&queue.settings, caller.origin()) {
            Ok((message, sent)) => {
                outgoing.push(message);
                sending.push((id, sent));
            }
            Err(error) => batch.failed.push(failed(id, error)),
        }
    }
    if !outgoing.is_empty() {
        let bytes: Vec<usize> = outgoing.iter().map(Outgoing::bytes).collect();
        let outcomes = app.mailbox.send_batch(&subject, &queue.name, outgoing, caller.call.deadline).await;
        app.metered.sent_batch(&subject, &bytes, &outcomes);
        for ((id, sent), outcome) in sending.into_iter().zip(outcomes) {
            match outcome {
                Ok(receipted) => {
                    let sent = answered(sent, &receipted, &queue.settings);
                    batch.successful.push(Done::Sent(Sent { id: Some(id), ..sent }));
                }
                Err(error) => batch.failed.push(failed(id, error.into())),
            }
        }
    }
    Ok(ActionOutput::Batch(batch))
}

fn answered(sent: Sent, receipted: &Receipted, settings: &TopicSettings) -> Sent {
    let sequence_number = (settings.groups == Groups::Fifo).then(|| sequence_number(receipted.seq));
    Sent { message_id: receipted.msg_id.as_uuid(), sequence_number, ..sent }
}

/// The number of a message, as it is shown: always as long, so that it sorts as text.
pub(super) fn sequence_number(seq: u64) -> String {
    format!("{seq:020}")
}

/// Holds a batch to its rules; `entry` is what an entry is called.
pub(super) fn check_ids<'a>(entry: &str, ids: impl ExactSizeIterator<Item = Option<&'a str>>) -> Result<(), SqsError> {
    let count = ids.len();
    if count == 0 {
        return Err(SqsError::empty_batch(entry));
    }
    if count > ENTRIES_MAX {
        return Err(SqsError::too_many_entries(count));
    }
    let mut seen = Vec::with_capacity(count);
    for id in ids {
        let id = id.ok_or_else(|| SqsError::missing("Id"))?;
        if !names::is_plain(id) {
            return Err(SqsError::invalid_entry_id());
        }
        if seen.contains(&id) {
            return Err(SqsError::id_repeated(id));
        }
        seen.push(id);
    }
    Ok(())
}

/// Result of one entry of a batch that failed.
pub(super) fn failed(id: String, error: SqsError) -> Failed {
    let sender_fault = error.is_senders();
    Failed { id, sender_fault, code: error.code.to_owned(), message: error.message.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_held_to_their_rules() {
        let long = "x".repeat(81);
        let ten: Vec<String> = (0..10).map(|index| index.to_string()).collect();
        let eleven: Vec<String> = (0..11).map(|index| index.to_string()).collect();
        let some = |ids: &[&str]| check_ids("E", ids.iter().map(|id| Some(*id))).err();
        let owned = |ids: &[String]| check_ids("E", ids.iter().map(|id| Some(id.as_str()))).err();
        assert_eq!(owned(&ten), None);
        assert_eq!(some(&["a", "A", "a-b_9"]), None);
        assert_eq!(owned(&eleven), Some(SqsError::too_many_entries(11)));
        assert_eq!(some(&[]), Some(SqsError::empty_batch("E")));
        assert_eq!(some(&["a", "b", "a"]), Some(SqsError::id_repeated("a")));
        for bad in ["", "a b", "a.b", "ä", &long] {
            assert_eq!(some(&[bad]), Some(SqsError::invalid_entry_id()), "{bad}");
        }
        assert_eq!(check_ids("E", [None].into_iter()).err(), Some(SqsError::missing("Id")));
    }

    #[test]
    fn sequence_numbers_sort_as_text() {
        assert_eq!(sequence_number(7), "00000000000000000007");
        assert!(sequence_number(99) < sequence_number(100));
    }
}
