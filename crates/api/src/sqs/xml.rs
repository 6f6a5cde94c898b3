//! Answers and refusals of the Query protocol: XML with flattened lists, as its model says.

use std::fmt::Write as _;

use super::error::SqsError;
use super::model::{
    ActionOutput, AttributeValue, Batch, Done, Failed, Map, Message, MessageAttributes, MoveTask, Queues, Sent,
};
use crate::corr::CorrId;

pub(super) const MEDIA_TYPE: &str = "text/xml";

const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// "No such queue" is said otherwise here.
const NO_QUEUE: &str = "The specified queue does not exist for this wsdl version.";

/// The document of an answer.
pub(super) fn answer(action: &str, answer: &ActionOutput, corr_id: &CorrId) -> Vec<u8> {
    let mut xml = Xml::new();
    xml.root(format_args!("{action}Response"), |xml| {
        if !matches!(answer, ActionOutput::Nothing) {
            xml.within(&format!("{action}Result"), |xml| result(xml, action, answer));
        }
        xml.within("ResponseMetadata", |xml| xml.text("RequestId", corr_id.as_str()));
    });
    xml.into_bytes()
}

/// The document of a refusal.
pub(super) fn error(error: &SqsError, corr_id: &CorrId) -> Vec<u8> {
    let message = if error.shape == "QueueDoesNotExist" { NO_QUEUE } else { &error.message };
    let mut xml = Xml::new();
    xml.root(format_args!("ErrorResponse"), |xml| {
        xml.within("Error", |xml| {
            xml.text("Type", if error.is_senders() { "Sender" } else { "Receiver" });
            xml.text("Code", error.code);
            xml.text("Message", message);
            xml.empty("Detail");
        });
        xml.text("RequestId", corr_id.as_str());
    });
    xml.into_bytes()
}

fn result(xml: &mut Xml, action: &str, answer: &ActionOutput) {
    match answer {
        ActionOutput::Nothing => {}
        ActionOutput::QueueUrl(answer) => xml.text("QueueUrl", &answer.queue_url),
        ActionOutput::Queues(Queues { queue_urls, next_token }) => urls(xml, queue_urls, next_token.as_deref()),
        ActionOutput::DeadLetterSources(answer) => urls(xml, &answer.queue_urls, answer.next_token.as_deref()),
        ActionOutput::Attributes(answer) => map(xml, "Attribute", "Name", &answer.attributes),
        ActionOutput::Tags(answer) => map(xml, "Tag", "Key", &answer.tags),
        ActionOutput::Sent(answer) => sent(xml, answer),
        ActionOutput::Batch(answer) => batch(xml, action, answer),
        ActionOutput::Received(answer) => {
            for one in &answer.messages {
                xml.within("Message", |xml| message(xml, one));
            }
        }
        ActionOutput::MoveStarted(answer) => xml.text("TaskHandle", &answer.task_handle),
        ActionOutput::Moves(answer) => {
            for task in &answer.results {
                xml.within("ListMessageMoveTasksResultEntry", |xml| move_task(xml, task));
            }
        }
        ActionOutput::MoveCanceled(answer) => {
            xml.number("ApproximateNumberOfMessagesMoved", answer.approximate_number_of_messages_moved);
        }
    }
}

fn urls(xml: &mut Xml, urls: &[String], next_token: Option<&str>) {
    for url in urls {
        xml.text("QueueUrl", url);
    }
    xml.text_if("NextToken", next_token);
}

fn map(xml: &mut Xml, entry: &str, key_name: &str, map: &Map) {
    for (key, value) in map {
        xml.within(entry, |xml| {
            xml.text(key_name, key);
            xml.text("Value", value);
        });
    }
}

fn sent(xml: &mut Xml, sent: &Sent) {
    xml.text_if("Id", sent.id.as_deref());
    xml.text("MessageId", &sent.message_id);
    xml.text("MD5OfMessageBody", &sent.md5_of_message_body);
    xml.text_if("MD5OfMessageAttributes", sent.md5_of_message_attributes.as_deref());
    xml.text_if("MD5OfMessageSystemAttributes", sent.md5_of_message_system_attributes.as_deref());
    xml.text_if("SequenceNumber", sent.sequence_number.as_deref());
}

fn batch(xml: &mut Xml, action: &str, batch: &Batch) {
    let entry = format!("{action}ResultEntry");
    for done in &batch.successful {
        xml.within(&entry, |xml| match done {
            Done::Sent(one) => sent(xml, one),
            Done::Settled { id } => xml.text("Id", id),
        });
    }
    for Failed { id, sender_fault, code, message } in &batch.failed {
        xml.within("BatchResultErrorEntry", |xml| {
            xml.text("Id", id);
            xml.text("SenderFault", if *sender_fault { "true" } else { "false" });
            xml.text("Code", code);
            xml.text("Message", message);
        });
    }
}

fn message(xml: &mut Xml, message: &Message) {
    xml.text("MessageId", &message.message_id);
    xml.text("ReceiptHandle", &message.receipt_handle);
    xml.text("MD5OfBody", &message.md5_of_body);
    xml.text("Body", &message.body);
    map(xml, "Attribute", "Name", &message.attributes);
    xml.text_if("MD5OfMessageAttributes", message.md5_of_message_attributes.as_deref());
    message_attributes(xml, &message.message_attributes);
}

fn message_attributes(xml: &mut Xml, attributes: &MessageAttributes) {
    for (name, AttributeValue { data_type, string_value, binary_value }) in attributes {
        xml.within("MessageAttribute", |xml| {
            xml.text("Name", name);
            xml.within("Value", |xml| {
                xml.text_if("StringValue", string_value.as_deref());
                xml.text_if("BinaryValue", binary_value.as_deref());
                xml.text_if("DataType", data_type.as_deref());
            });
        });
    }
}

fn move_task(xml: &mut Xml, task: &MoveTask) {
    xml.text_if("TaskHandle", task.task_handle.as_deref());
    xml.text("Status", task.status);
    xml.text("SourceArn", &task.source_arn);
    xml.text_if("DestinationArn", task.destination_arn.as_deref());
    if let Some(rate) = task.max_number_of_messages_per_second {
        xml.number("MaxNumberOfMessagesPerSecond", rate.into());
    }
    xml.number("ApproximateNumberOfMessagesMoved", task.approximate_number_of_messages_moved);
    if let Some(left) = task.approximate_number_of_messages_to_move {
        xml.number("ApproximateNumberOfMessagesToMove", left);
    }
    xml.text_if("FailureReason", task.failure_reason);
    xml.number("StartedTimestamp", task.started_timestamp);
}

/// A document being written; names are ours and never need escaping, text always goes through it.
struct Xml(String);

impl Xml {
    fn new() -> Self {
        Xml("<?xml version=\"1.0\"?>".to_owned())
    }

    fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    fn root(&mut self, name: std::fmt::Arguments<'_>, content: impl FnOnce(&mut Xml)) {
        self.tag(format_args!("<{name} xmlns=\"{NAMESPACE}\">"));
        content(self);
        self.tag(format_args!("</{name}>"));
    }

    fn within(&mut self, name: &str, content: impl FnOnce(&mut Xml)) {
        self.tag(format_args!("<{name}>"));
        content(self);
        self.tag(format_args!("</{name}>"));
    }

    fn empty(&mut self, name: &str) {
        self.tag(format_args!("<{name}/>"));
    }

    fn text(&mut self, name: &str, text: &str) {
        self.within(name, |xml| escape(&mut xml.0, text));
    }

    fn text_if(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn number(&mut self, name: &str, number: u64) {
        self.tag(format_args!("<{name}>{number}</{name}>"));
    }

    fn tag(&mut self, tag: std::fmt::Arguments<'_>) {
        self.0.write_fmt(tag).expect("a string grows");
    }
}

/// Readers take a bare carriage return for a line feed, so it is written as a reference; what XML has no way to write
/// at all, which only a refusal can repeat, becomes the replacement character.
fn escape(out: &mut String, text: &str) {
    out.reserve(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(needs_escape) {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut characters = special.chars();
        out.push_str(match characters.next() {
            Some('&') => "&amp;",
            Some('<') => "&lt;",
            Some('>') => "&gt;",
            Some('"') => "&quot;",
            Some('\r') => "&#13;",
            _ => "\u{fffd}",
        });
        rest = characters.as_str();
    }
    out.push_str(rest);
}

fn needs_escape(character: char) -> bool {
    match character {
        '&' | '<' | '>' | '"' | '\r' | '\u{fffe}' | '\u{ffff}' => true,
        '\t' | '\n' => false,
        other => other < ' ',
    }
}

#[cfg(test)]
mod tests;
