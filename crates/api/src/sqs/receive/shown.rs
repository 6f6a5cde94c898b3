//! A message as a receiver wants to see it.

use base64::Engine as _;
use svc_mailbox::Delivery;
use svc_mailbox::types::{Groups, TopicSettings};

use crate::sqs::attributes::{COUNTS, FIXED, SETTABLE};
use crate::sqs::caller::Caller;
use crate::sqs::digest::{self, AttributesDigest};
use crate::sqs::error::SqsError;
use crate::sqs::message::{BASE64, DEDUPLICATION_ID, SENDER, TRACE, TYPE, illegal_character, is_attribute_name};
use crate::sqs::model::{AttributeValue, Map, Message, MessageAttributes, ReceiveMessage};
use crate::sqs::send::sequence_number;

/// Says that a body is base64 because what was sent is no text; only the native surface can send such.
const ENCODING: &str = "macronode.encoding";

/// Attributes that the node supplies for a message.
const SYSTEM: [&str; 9] = [
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
];

/// Attributes of each message that a receiver asks for.
pub(super) struct RequestedFields {
    /// A bit for each name in the list of them.
    system: u16,
    attributes: Names,
}

/// Message attributes that are asked for.
enum Names {
    None,
    All,
    Some(Vec<String>),
}

impl RequestedFields {
    pub fn read(request: &ReceiveMessage) -> Result<Self, SqsError> {
        let mut system = 0;
        let (old, new) = (&request.attribute_names, &request.message_system_attribute_names);
        for name in old.iter().chain(new).flatten() {
            match SYSTEM.iter().position(|known| known == name) {
                Some(place) => system |= 1 << place,
                None if name == "All" => system = u16::MAX,
                // Those of a queue stand in the same list of the model and mean nothing here.
                None if COUNTS.iter().chain(&FIXED).chain(&SETTABLE).any(|known| known == name) => {}
                None => return Err(SqsError::unknown_attribute(name)),
            }
        }
        let names = request.message_attribute_names.as_deref().unwrap_or_default();
        let attributes = match names {
            [] => Names::None,
            names if names.iter().any(|name| name == "All" || name == ".*") => Names::All,
            names => Names::Some(names.to_vec()),
        };
        Ok(RequestedFields { system, attributes })
    }

    pub fn show(&self, caller: &Caller, settings: &TopicSettings, delivery: Delivery) -> Message {
        let attributes = match self.system {
            0 => Map::new(),
            _ => self.system_attributes(caller, settings, &delivery),
        };
        let Delivery { msg_id, receipt, payload, attrs, .. } = delivery;
        let text = String::from_utf8(payload.into());
        let text = text.map_err(|error| error.into_bytes()).and_then(|text| match illegal_character(&text) {
            Some(_) => Err(text.into_bytes()),
            None => Ok(text),
        });
        let (body, is_base64) = match text {
            Ok(text) => (text, false),
            Err(bytes) => (BASE64.encode(bytes), true),
        };
        let (message_attributes, md5_of_message_attributes) = self.attributes.show(&attrs, is_base64);
        Message {
            message_id: msg_id.as_uuid(),
            receipt_handle: receipt.to_string(),
            md5_of_body: digest::md5_of(body.as_bytes()),
            body,
            attributes,
            md5_of_message_attributes,
            message_attributes,
        }
    }

    fn system_attributes(&self, caller: &Caller, settings: &TopicSettings, delivery: &Delivery) -> Map {
        let is_fifo = settings.groups == Groups::Fifo;
        let kept = |name: &str| delivery.attrs.iter().find(|(kept, _)| kept == name).map(|(_, value)| value.clone());
        let value_of = |name: &str| match name {
            "SenderId" => kept(SENDER),
            "SentTimestamp" => Some(delivery.sent_ms.to_string()),
            "ApproximateReceiveCount" => Some(delivery.attempt.to_string()),
            "ApproximateFirstReceiveTimestamp" => Some(delivery.first_received_ms.to_string()),
            "SequenceNumber" => is_fifo.then(|| sequence_number(delivery.msg_id.seq)),
            "MessageDeduplicationId" if is_fifo => delivery.idem_key.clone(),
            "MessageDeduplicationId" => kept(DEDUPLICATION_ID),
            "MessageGroupId" => delivery.group.as_deref().map(str::to_owned),
            "AWSTraceHeader" => kept(TRACE),
            "DeadLetterQueueSourceArn" => delivery.dead.as_ref().map(|dead| caller.namespace.arn(dead.source.as_str())),
            _ => None,
        };
        let asked = SYSTEM.iter().enumerate().filter(|(place, _)| self.system & (1 << place) != 0);
        asked.filter_map(|(_, name)| Some(((*name).to_owned(), value_of(name)?))).collect()
    }
}

impl Names {
    fn includes(&self, name: &str) -> bool {
        let matches = |asked: &String| match asked.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => asked == name,
        };
        match self {
            Names::None => false,
            Names::All => true,
            Names::Some(names) => names.iter().any(matches),
        }
    }

    /// The attributes asked for, with the digest of just those.
    fn show(&self, attrs: &[(String, String)], is_base64: bool) -> (MessageAttributes, Option<String>) {
        let mut shown = MessageAttributes::new();
        if is_base64 {
            // Not asked for, but without it nobody could make sense of the body.
            shown.insert(ENCODING.to_owned(), text_value("String", "base64"));
        }
        if !matches!(self, Names::None) {
            for (name, value) in attrs {
                if !name.starts_with('$') && self.includes(name) {
                    shown.extend(shown_value(name, value, attrs).map(|value| (name.clone(), value)));
                }
            }
        }
        if shown.is_empty() {
            return (shown, None);
        }
        let mut digest = AttributesDigest::default();
        for (name, value) in &shown {
            let data_type = value.data_type.as_deref().unwrap_or_default();
            match (&value.string_value, &value.binary_value) {
                (Some(text), _) => digest.text(name, data_type, text),
                (None, Some(base64)) => digest.bytes(name, data_type, &BASE64.decode(base64).unwrap_or_default()),
                (None, None) => {}
            }
        }
        (shown, digest.finish())
    }
}

/// An attribute as it was sent; one of the native surface is a string, and not shown if no attribute can be called so.
fn shown_value(name: &str, value: &str, attrs: &[(String, String)]) -> Option<AttributeValue> {
    let data_type = attrs.iter().find(|(kept, _)| kept.strip_prefix(TYPE) == Some(name));
    let data_type = data_type.map_or("String", |(_, data_type)| data_type.as_str());
    if data_type.starts_with("Binary") && BASE64.decode(value).is_ok() {
        let (data_type, binary_value) = (Some(data_type.to_owned()), Some(value.to_owned()));
        return Some(AttributeValue { data_type, string_value: None, binary_value });
    }
    let is_good = !value.is_empty() && is_attribute_name(name) && illegal_character(value).is_none();
    let data_type = if data_type.starts_with("Binary") { "String" } else { data_type };
    is_good.then(|| text_value(data_type, value))
}

fn text_value(data_type: &str, value: &str) -> AttributeValue {
    AttributeValue { data_type: Some(data_type.to_owned()), string_value: Some(value.to_owned()), binary_value: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn shown(asked: &[&str], attrs: &[(&str, &str)]) -> (Vec<(String, String)>, Option<String>) {
        let request = ReceiveMessage { message_attribute_names: Some(names(asked)), ..ReceiveMessage::default() };
        let attrs: Vec<_> = attrs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let wanted = RequestedFields::read(&request).expect("any names are taken");
        let (shown, digest) = wanted.attributes.show(&attrs, false);
        let shown = shown.into_iter().map(|(name, value)| (name, value.data_type.unwrap_or_default()));
        (shown.collect(), digest)
    }

    #[test]
    fn message_attributes_are_shown_only_if_asked_for() {
        let attrs = [("foo.a", "1"), ("$type.foo.a", "Number"), ("foo.b", "x"), ("fob", "y"), ("$sender", "me")];
        for (asked, expected) in [
            (&[] as &[&str], &[] as &[(&str, &str)]),
            (&["All"], &[("fob", "String"), ("foo.a", "Number"), ("foo.b", "String")]),
            (&[".*"], &[("fob", "String"), ("foo.a", "Number"), ("foo.b", "String")]),
            (&["foo.*"], &[("foo.a", "Number"), ("foo.b", "String")]),
            (&["foo.b", "nothing"], &[("foo.b", "String")]),
            (&["fo"], &[]),
            (&["$sender"], &[]),
        ] {
            let (shown, digest) = shown(asked, &attrs);
            let expected: Vec<_> =
                expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(shown, expected, "{asked:?}");
            assert_eq!(digest.is_some(), !expected.is_empty(), "{asked:?}");
        }
        let (_, digest) = shown(&["Foo"], &[("Foo", "Bar"), ("More", "x")]);
        assert_eq!(digest.as_deref(), Some("ae7155c6026991b6d54b11589678bf9c"), "only of what is shown");
    }

    #[test]
    fn attributes_of_the_native_surface_are_strings_where_their_names_allow_it() {
        let attrs = [("good", "x"), ("bad name", "x"), ("AWS.x", "x"), ("empty", ""), ("control", "\u{1}")];
        assert_eq!(shown(&["All"], &attrs).0, [("good".to_owned(), "String".to_owned())]);
        let odd = [("b", "*"), ("$type.b", "Binary")];
        assert_eq!(shown(&["All"], &odd).0, [("b".to_owned(), "String".to_owned())], "its bytes are none");
    }

    #[test]
    fn names_the_node_does_not_know_are_refused() {
        let read = |old: &[&str], new: &[&str]| {
            let request = ReceiveMessage {
                attribute_names: Some(names(old)),
                message_system_attribute_names: Some(names(new)),
                ..ReceiveMessage::default()
            };
            RequestedFields::read(&request).map(|wanted| wanted.system)
        };
        assert_eq!(read(&[], &[]), Ok(0));
        assert_eq!(read(&["SenderId"], &["SentTimestamp"]), Ok(3));
        assert_eq!(read(&["All"], &[]), Ok(u16::MAX));
        assert_eq!(read(&["VisibilityTimeout"], &["DeadLetterQueueSourceArn"]), Ok(256));
        assert_eq!(read(&[], &["Nope"]), Err(SqsError::unknown_attribute("Nope")));
    }
}
