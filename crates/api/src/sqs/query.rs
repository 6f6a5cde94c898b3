//! The Query protocol: forms into requests, by the member names of its model.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use http::request::Parts;
use percent_encoding::percent_decode;

use super::Action;
use super::error::SqsError;
use super::model::{
    AddPermission, AttributeValue, CancelMessageMoveTask, ChangeMessageVisibility, ChangeMessageVisibilityBatch,
    CreateQueue, DeleteMessage, DeleteMessageBatch, GetQueueAttributes, GetQueueUrl, ListDeadLetterSourceQueues,
    ListMessageMoveTasks, ListQueues, Map, MessageAttributes, OfQueue, ReceiptEntry, ReceiveMessage, RemovePermission,
    SendEntry, SendMessage, SendMessageBatch, SetQueueAttributes, StartMessageMoveTask, TagQueue, UntagQueue,
};

/// Media type of a form.
pub(super) const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// Maximum pairs of one form. The largest request there is, ten messages with every attribute they may have, is well
/// below; each pair costs far more memory than its bytes.
const PAIRS_MAX: usize = 4096;

/// A form as it came, by name; of two values with one name the last counts.
#[derive(Debug, Default)]
pub(super) struct Form(BTreeMap<String, String>);

impl Form {
    /// Reads the query of the address and the body, which goes before it.
    pub(super) fn read(query: Option<&str>, body: &[u8]) -> Result<Self, SqsError> {
        let mut form = Form::default();
        let query = query.unwrap_or_default().as_bytes();
        if pairs(query).chain(pairs(body)).take(PAIRS_MAX + 1).count() > PAIRS_MAX {
            return Err(SqsError::malformed("The request has too many parameters."));
        }
        for (name, value) in pairs(query) {
            // A signature covers the pairs of a query in the order of their names and values. Were one of two values
            // chosen by its place, whoever saw the request could exchange them.
            if form.0.insert(decoded(name)?, decoded(value)?).is_some() {
                return Err(SqsError::malformed("The query names a parameter twice."));
            }
        }
        for (name, value) in pairs(body) {
            form.0.insert(decoded(name)?, decoded(value)?);
        }
        Ok(form)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Action that the form names.
    pub(super) fn action(&self) -> Result<Action, SqsError> {
        let name = self.get("Action").ok_or_else(SqsError::no_action)?;
        Action::parse(name).ok_or_else(|| SqsError::unknown_action(name))
    }

    /// The queue of the path stands in where the form names none.
    pub(super) fn default_queue_url(&mut self, queue_url: &str) {
        self.0.entry("QueueUrl".to_owned()).or_insert_with(|| queue_url.to_owned());
    }

    fn all(&self) -> FieldPath<'_> {
        FieldPath { form: self, prefix: String::new() }
    }
}

/// Whether the query of a request says which action it wants, known or not.
pub(super) fn names_action(parts: &Parts) -> bool {
    pairs(parts.uri.query().unwrap_or_default().as_bytes()).any(|(name, _)| name == b"Action")
}

/// The pairs of a form, still encoded.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=');
        equals.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]))
    })
}

fn decoded(text: &[u8]) -> Result<String, SqsError> {
    let spaced: Cow<'_, [u8]> = if text.contains(&b'+') {
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect()
    } else {
        Cow::Borrowed(text)
    };
    let text = percent_decode(&spaced).decode_utf8();
    text.map(Cow::into_owned).map_err(|_| SqsError::malformed("The request is not encoded as UTF-8."))
}

/// A member of a request: there, not there, or not what it should be.
type Member<T> = Result<Option<T>, SqsError>;

/// Everything in a form that begins alike.
struct FieldPath<'a> {
    form: &'a Form,
    prefix: String,
}

impl<'a> FieldPath<'a> {
    fn text(&self, name: &str) -> Member<String> {
        Ok(self.owned(name))
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        match self.prefix.as_str() {
            "" => self.form.get(name),
            prefix => self.form.get(&format!("{prefix}{name}")),
        }
    }

    fn number(&self, name: &str) -> Member<i64> {
        let number =
            |text: &str| text.parse().map_err(|_| SqsError::invalid_parameter(name, text, "Must be a number."));
        self.get(name).map(number).transpose()
    }

    /// `Name.1`, `Name.2` and so on; one alone may come without its number.
    fn texts(&self, name: &str) -> Member<Vec<String>> {
        let alone = self.owned(name);
        let numbered = self.numbers(name).into_iter().filter_map(|number| self.owned(&format!("{name}.{number}")));
        let texts: Vec<String> = alone.into_iter().chain(numbered).collect();
        Ok((!texts.is_empty()).then_some(texts))
    }

    /// `Name.1.…`, `Name.2.…` and so on; one alone may come without its number.
    fn parts(&self, name: &str) -> Vec<FieldPath<'a>> {
        let under = |suffix: &str| FieldPath { form: self.form, prefix: format!("{}{name}.{suffix}", self.prefix) };
        let numbers = self.numbers(name);
        if !numbers.is_empty() {
            return numbers.into_iter().map(|number| under(&format!("{number}."))).collect();
        }
        let alone = under("");
        if alone.names().next().is_some() { vec![alone] } else { Vec::new() }
    }

    /// The numbers behind a name, in their order: digits only, as `Name.10` comes after `Name.9`.
    fn numbers(&self, name: &str) -> BTreeSet<u32> {
        let list = FieldPath { form: self.form, prefix: format!("{}{name}.", self.prefix) };
        list.names().filter_map(|rest| rest.split('.').next()?.parse().ok()).collect()
    }

    /// Names of the fields below this prefix, without the prefix.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        let names = self.form.0.range(self.prefix.clone()..).map(|(name, _)| name.as_str());
        let prefix = self.prefix.clone();
        names.map_while(move |name| name.strip_prefix(prefix.as_str()))
    }

    fn map(&self, name: &str, key_name: &str) -> Member<Map> {
        let entry = |part: FieldPath<'a>| Some((part.owned(key_name)?, part.owned("Value").unwrap_or_default()));
        some_map(self.parts(name).into_iter().filter_map(entry).collect())
    }

    fn attributes(&self, name: &str) -> Member<MessageAttributes> {
        let entry = |part: FieldPath<'a>| {
            let value = AttributeValue {
                data_type: part.owned("Value.DataType"),
                string_value: part.owned("Value.StringValue"),
                binary_value: part.owned("Value.BinaryValue"),
            };
            Some((part.owned("Name")?, value))
        };
        some_map(self.parts(name).into_iter().filter_map(entry).collect())
    }

    fn entries<T: FromForm>(&self, name: &str) -> Member<Vec<T>> {
        let entries: Vec<T> = self.parts(name).iter().map(T::from_part).collect::<Result<_, _>>()?;
        Ok((!entries.is_empty()).then_some(entries))
    }
}

fn some_map<V>(map: BTreeMap<String, V>) -> Member<BTreeMap<String, V>> {
    Ok((!map.is_empty()).then_some(map))
}

/// Reads a request of type `T` from a form.
pub(super) fn decode<T: FromForm>(form: &Form) -> Result<T, SqsError> {
    T::from_part(&form.all())
}

/// A type that can be read from a form.
pub(super) trait FromForm: Sized {
    #[expect(private_interfaces)]
    fn from_part(part: &FieldPath<'_>) -> Result<Self, SqsError>;
}

/// Says for each member of each request how it is found in a form.
macro_rules! forms {
    ($($request:ident { $($field:ident: $how:ident($($argument:literal),+)),* $(,)? })*) => {$(
        impl FromForm for $request {
            #[expect(private_interfaces)]
            fn from_part(part: &FieldPath<'_>) -> Result<Self, SqsError> {
                Ok($request { $($field: part.$how($($argument),+)?),* })
            }
        }
    )*};
}

forms! {
    CreateQueue { queue_name: text("QueueName"), attributes: map("Attribute", "Name"), tags: map("Tag", "Key") }
    GetQueueUrl { queue_name: text("QueueName"), owner: text("QueueOwnerAWSAccountId") }
    ListQueues {
        queue_name_prefix: text("QueueNamePrefix"),
        next_token: text("NextToken"),
        max_results: number("MaxResults"),
    }
    OfQueue { queue_url: text("QueueUrl") }
    GetQueueAttributes { queue_url: text("QueueUrl"), attribute_names: texts("AttributeName") }
    SetQueueAttributes { queue_url: text("QueueUrl"), attributes: map("Attribute", "Name") }
    SendMessage {
        queue_url: text("QueueUrl"),
        message_body: text("MessageBody"),
        delay_seconds: number("DelaySeconds"),
        message_attributes: attributes("MessageAttribute"),
        message_system_attributes: attributes("MessageSystemAttribute"),
        message_deduplication_id: text("MessageDeduplicationId"),
        message_group_id: text("MessageGroupId"),
    }
    SendMessageBatch { queue_url: text("QueueUrl"), entries: entries("SendMessageBatchRequestEntry") }
    SendEntry {
        id: text("Id"),
        message_body: text("MessageBody"),
        delay_seconds: number("DelaySeconds"),
        message_attributes: attributes("MessageAttribute"),
        message_system_attributes: attributes("MessageSystemAttribute"),
        message_deduplication_id: text("MessageDeduplicationId"),
        message_group_id: text("MessageGroupId"),
    }
    ReceiveMessage {
        queue_url: text("QueueUrl"),
        attribute_names: texts("AttributeName"),
        message_system_attribute_names: texts("MessageSystemAttributeName"),
        message_attribute_names: texts("MessageAttributeName"),
        max_number_of_messages: number("MaxNumberOfMessages"),
        visibility_timeout: number("VisibilityTimeout"),
        wait_time_seconds: number("WaitTimeSeconds"),
        receive_request_attempt_id: text("ReceiveRequestAttemptId"),
    }
    DeleteMessage { queue_url: text("QueueUrl"), receipt_handle: text("ReceiptHandle") }
    DeleteMessageBatch { queue_url: text("QueueUrl"), entries: entries("DeleteMessageBatchRequestEntry") }
    ChangeMessageVisibility {
        queue_url: text("QueueUrl"),
        receipt_handle: text("ReceiptHandle"),
        visibility_timeout: number("VisibilityTimeout"),
    }
    ChangeMessageVisibilityBatch {
        queue_url: text("QueueUrl"),
        entries: entries("ChangeMessageVisibilityBatchRequestEntry"),
    }
    ReceiptEntry {
        id: text("Id"),
        receipt_handle: text("ReceiptHandle"),
        visibility_timeout: number("VisibilityTimeout"),
    }
    ListDeadLetterSourceQueues {
        queue_url: text("QueueUrl"),
        next_token: text("NextToken"),
        max_results: number("MaxResults"),
    }
    StartMessageMoveTask {
        source_arn: text("SourceArn"),
        destination_arn: text("DestinationArn"),
        max_number_of_messages_per_second: number("MaxNumberOfMessagesPerSecond"),
    }
    ListMessageMoveTasks { source_arn: text("SourceArn"), max_results: number("MaxResults") }
    CancelMessageMoveTask { task_handle: text("TaskHandle") }
    TagQueue { queue_url: text("QueueUrl"), tags: map("Tag", "Key") }
    UntagQueue { queue_url: text("QueueUrl"), tag_keys: texts("TagKey") }
    AddPermission {
        queue_url: text("QueueUrl"),
        label: text("Label"),
        account_ids: texts("AWSAccountId"),
        actions: texts("ActionName"),
    }
    RemovePermission { queue_url: text("QueueUrl"), label: text("Label") }
}
