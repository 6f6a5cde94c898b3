//! The requests and answers of all actions, once for both protocols: names and types are those of the service model.
//! Every member is optional here: what is missing is refused by the handler, in the service's words.

use std::collections::BTreeMap;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer, forward_to_deserialize_any};

/// Names in the order of their text, so that answers are the same every time.
pub(crate) type Map = BTreeMap<String, String>;

/// A message attribute: `StringValue` for `String` and `Number`, `BinaryValue` (base64 in JSON) for `Binary`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase", default, remote = "Self")]
pub(crate) struct AttributeValue {
    pub data_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<String>,
}

impl<'de> Deserialize<'de> for AttributeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AttributeValue::deserialize(ObjectOnly(deserializer))
    }
}

impl Serialize for AttributeValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        AttributeValue::serialize(self, serializer)
    }
}

pub(crate) type MessageAttributes = BTreeMap<String, AttributeValue>;

/// Reads structures from objects alone: what is derived would also take a list of values in the order of the fields.
struct ObjectOnly<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

macro_rules! requests {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$field_attribute:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
        #[serde(rename_all = "PascalCase", default, remote = "Self")]
        pub(crate) struct $name { $($(#[$field_attribute])* pub $field: Option<$type>,)* }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::deserialize(ObjectOnly(deserializer))
            }
        }
    )*};
}

requests! {
    CreateQueue { queue_name: String, attributes: Map, #[serde(rename = "tags")] tags: Map }
    GetQueueUrl { queue_name: String, #[serde(rename = "QueueOwnerAWSAccountId")] owner: String }
    ListQueues { queue_name_prefix: String, next_token: String, max_results: i64 }
    /// DeleteQueue, PurgeQueue, ListQueueTags.
    OfQueue { queue_url: String }
    GetQueueAttributes { queue_url: String, attribute_names: Vec<String> }
    SetQueueAttributes { queue_url: String, attributes: Map }
    SendMessage {
        queue_url: String,
        message_body: String,
        delay_seconds: i64,
        message_attributes: MessageAttributes,
        message_system_attributes: MessageAttributes,
        message_deduplication_id: String,
        message_group_id: String,
    }
    SendMessageBatch { queue_url: String, entries: Vec<SendEntry> }
    SendEntry {
        id: String,
        message_body: String,
        delay_seconds: i64,
        message_attributes: MessageAttributes,
        message_system_attributes: MessageAttributes,
        message_deduplication_id: String,
        message_group_id: String,
    }
    ReceiveMessage {
        queue_url: String,
        attribute_names: Vec<String>,
        message_system_attribute_names: Vec<String>,
        message_attribute_names: Vec<String>,
        max_number_of_messages: i64,
        visibility_timeout: i64,
        wait_time_seconds: i64,
        receive_request_attempt_id: String,
    }
    DeleteMessage { queue_url: String, receipt_handle: String }
    DeleteMessageBatch { queue_url: String, entries: Vec<ReceiptEntry> }
    ChangeMessageVisibility { queue_url: String, receipt_handle: String, visibility_timeout: i64 }
    ChangeMessageVisibilityBatch { queue_url: String, entries: Vec<ReceiptEntry> }
    /// An entry of the two above; `VisibilityTimeout` only in the second.
    ReceiptEntry { id: String, receipt_handle: String, visibility_timeout: i64 }
    ListDeadLetterSourceQueues { queue_url: String, next_token: String, max_results: i64 }
    StartMessageMoveTask { source_arn: String, destination_arn: String, max_number_of_messages_per_second: i64 }
    ListMessageMoveTasks { source_arn: String, max_results: i64 }
    CancelMessageMoveTask { task_handle: String }
    TagQueue { queue_url: String, tags: Map }
    UntagQueue { queue_url: String, tag_keys: Vec<String> }
    AddPermission {
        queue_url: String,
        label: String,
        #[serde(rename = "AWSAccountIds")] account_ids: Vec<String>,
        actions: Vec<String>,
    }
    RemovePermission { queue_url: String, label: String }
}

/// An answer: every member that is empty is left out, because clients take an empty list for a different thing.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(untagged)]
pub(crate) enum ActionOutput {
    /// An answer without members.
    #[default]
    Nothing,
    QueueUrl(QueueUrl),
    Queues(Queues),
    DeadLetterSources(DeadLetterSources),
    Attributes(Attributes),
    Tags(Tags),
    Sent(Sent),
    Batch(Batch),
    Received(Received),
    MoveStarted(MoveStarted),
    Moves(Moves),
    MoveCanceled(MoveCanceled),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct QueueUrl {
    pub queue_url: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Queues {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_urls: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// The member has a small first letter here, and may be empty.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeadLetterSources {
    #[serde(rename = "queueUrls")]
    pub queue_urls: Vec<String>,
    #[serde(rename = "NextToken", skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Attributes {
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub attributes: Map,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Tags {
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub tags: Map,
}

/// A message taken in; in a batch it has the id of its entry.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Sent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub message_id: String,
    #[serde(rename = "MD5OfMessageBody")]
    pub md5_of_message_body: String,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_system_attributes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<String>,
}

/// What became of each entry. The model calls both lists required, but the service leaves out an empty one.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Batch {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub successful: Vec<Done>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
}

/// Result of one entry of a batch that succeeded.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Done {
    Sent(Sent),
    Settled {
        #[serde(rename = "Id")]
        id: String,
    },
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Failed {
    pub id: String,
    pub sender_fault: bool,
    pub code: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Received {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Message {
    pub message_id: String,
    pub receipt_handle: String,
    #[serde(rename = "MD5OfBody")]
    pub md5_of_body: String,
    pub body: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub attributes: Map,
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
    #[serde(skip_serializing_if = "MessageAttributes::is_empty")]
    pub message_attributes: MessageAttributes,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MoveStarted {
    pub task_handle: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MoveCanceled {
    pub approximate_number_of_messages_moved: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Moves {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<MoveTask>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MoveTask {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_handle: Option<String>,
    pub status: &'static str,
    pub source_arn: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_arn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_number_of_messages_per_second: Option<u32>,
    pub approximate_number_of_messages_moved: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approximate_number_of_messages_to_move: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<&'static str>,
    pub started_timestamp: u64,
}
