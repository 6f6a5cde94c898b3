//! What may be set about a queue, and how it is kept in the settings of its topic.

mod redrive;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use svc_mailbox::types::{Expired, Groups, TopicName, TopicSettings};

use super::error::SqsError;
use super::model::Map;
use super::names::Namespace;
pub(super) use redrive::{Redrive, allows, detach};
pub(crate) use redrive::{lost_target, reattach};

/// Labels whose value a send or a receive looks at.
pub(super) const CONTENT_BASED: &str = "sqs.ContentBasedDeduplication";
pub(super) const DEDUPLICATION_SCOPE: &str = "sqs.DeduplicationScope";
pub(super) const WAIT_SECONDS: &str = "sqs.ReceiveMessageWaitTimeSeconds";
pub(super) const POLICY: &str = "sqs.Policy";
/// Prefix of the labels that hold tags; the key of the tag follows.
pub(super) const TAG: &str = "sqs.tag.";
const THROUGHPUT_LIMIT: &str = "sqs.FifoThroughputLimit";
const REDRIVE_ALLOW: &str = "sqs.RedriveAllowPolicy";
const KMS_KEY: &str = "sqs.KmsMasterKeyId";
const KMS_REUSE: &str = "sqs.KmsDataKeyReusePeriodSeconds";
const MANAGED_SSE: &str = "sqs.SqsManagedSseEnabled";
/// Seconds that are shown with a key whose owner names none.
const KMS_REUSE_DEFAULT: &str = "300";

pub(super) const VISIBILITY_SECONDS: RangeInclusive<u64> = 0..=43_200;
pub(super) const DELAY_SECONDS: RangeInclusive<u64> = 0..=900;
pub(super) const WAIT_SECONDS_RANGE: RangeInclusive<u64> = 0..=20;
/// Bytes of a message, and of all messages of a batch together.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;

/// Names that are read only: numbers of messages.
pub(super) const COUNTS: [&str; 3] =
    ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"];
/// The other names that are read only.
pub(super) const FIXED: [&str; 3] = ["CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"];
/// Attributes that a client may set.
pub(super) const SETTABLE: [&str; 15] = [
    "Policy",
    "VisibilityTimeout",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "DelaySeconds",
    "ReceiveMessageWaitTimeSeconds",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoThroughputLimit",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "SqsManagedSseEnabled",
];

/// Changes that a request asks for; what it does not name stays as it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    visibility_ms: Option<u64>,
    delay_ms: Option<u64>,
    retention_ms: Option<u64>,
    message_bytes_max: Option<u32>,
    /// Destination of dead messages; `Some(None)` for none.
    pub redrive: Option<Option<Redrive>>,
    /// Labels with their new value; none takes them away.
    labels: Vec<(&'static str, Option<String>)>,
}

/// Settings of a queue whose creator names none.
pub(super) fn defaults(node: TopicSettings, is_fifo: bool) -> TopicSettings {
    TopicSettings {
        visibility_ms: 30_000,
        max_attempts: 0,
        replay_window_ms: 300_000,
        retention_ms: 345_600_000,
        expired: Expired::Drop,
        delay_ms: 0,
        // A first-in-first-out queue knows a message again whatever its group, so all of it is in one place.
        partitions: if is_fifo { 1 } else { node.partitions },
        groups: if is_fifo { Groups::Fifo } else { Groups::Fair },
        dlq: None,
        payload_bytes_max: MESSAGE_BYTES_MAX,
        paused: false,
        labels: std::collections::BTreeMap::new(),
        ..node
    }
}

/// Reads attributes that are to be set, for a queue to be made or one that there is.
pub(super) fn read(attributes: &Map, is_fifo: bool, namespace: &Namespace) -> Result<Change, SqsError> {
    let mut change = Change::default();
    for (name, value) in attributes {
        change.read_one(name, value, is_fifo, namespace)?;
    }
    let given = |name: &str| attributes.get(name).map(String::as_str);
    if given("KmsMasterKeyId").is_some_and(|key| !key.is_empty())
        && given("SqsManagedSseEnabled").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        return Err(invalid_because(
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS \
             SSE.",
        ));
    }
    Ok(change)
}

impl Change {
    fn read_one(&mut self, name: &str, value: &str, is_fifo: bool, namespace: &Namespace) -> Result<(), SqsError> {
        match name {
            "VisibilityTimeout" => self.visibility_ms = Some(number(name, value, VISIBILITY_SECONDS)? * 1000),
            "DelaySeconds" => self.delay_ms = Some(number(name, value, DELAY_SECONDS)? * 1000),
            "MessageRetentionPeriod" => self.retention_ms = Some(number(name, value, 60..=1_209_600)? * 1000),
            "MaximumMessageSize" => {
                self.message_bytes_max = Some(number(name, value, 1_024..=u64::from(MESSAGE_BYTES_MAX))? as u32);
            }
            "ReceiveMessageWaitTimeSeconds" => {
                let seconds = number(name, value, WAIT_SECONDS_RANGE)?;
                self.label(WAIT_SECONDS, (seconds > 0).then(|| seconds.to_string()));
            }
            "RedrivePolicy" => self.redrive = Some(redrive::read(value, namespace)?),
            "RedriveAllowPolicy" => self.label(REDRIVE_ALLOW, redrive::read_allow(value)?),
            "Policy" => self.label(POLICY, read_policy(value)?),
            "FifoQueue" if is_fifo => match is_true(name, value)? {
                true => {}
                false => {
                    return Err(invalid_because(
                        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
                    ));
                }
            },
            "ContentBasedDeduplication" if is_fifo => {
                self.label(CONTENT_BASED, is_true(name, value)?.then(|| "true".to_owned()));
            }
            "DeduplicationScope" if is_fifo => {
                self.label(DEDUPLICATION_SCOPE, one_of(name, value, "queue", "messageGroup")?);
            }
            "FifoThroughputLimit" if is_fifo => {
                self.label(THROUGHPUT_LIMIT, one_of(name, value, "perQueue", "perMessageGroupId")?);
            }
            "DeduplicationScope" | "FifoThroughputLimit" => {
                let message = format!("You can specify the {name} only when FifoQueue is set to true.");
                return Err(SqsError::new("InvalidAttributeName", "InvalidAttributeName", message));
            }
            "KmsMasterKeyId" => self.label(KMS_KEY, (!value.is_empty()).then(|| value.to_owned())),
            "KmsDataKeyReusePeriodSeconds" => {
                let seconds = number(name, value, 60..=86_400)?;
                self.label(KMS_REUSE, Some(seconds.to_string()));
            }
            "SqsManagedSseEnabled" => {
                // Every queue has it that does not say otherwise, so only its absence is kept.
                let is_on = is_true(name, value)?;
                self.label(MANAGED_SSE, (!is_on).then(|| "false".to_owned()));
            }
            _ => return Err(SqsError::unknown_attribute(name)),
        }
        Ok(())
    }

    fn label(&mut self, name: &'static str, value: Option<String>) {
        self.labels.push((name, value));
    }

    /// Whether a label is among the changes, to be set or, if not `is_set`, to be taken away.
    fn has_label(&self, name: &str, is_set: bool) -> bool {
        self.labels.iter().any(|(changed, value)| *changed == name && value.is_some() == is_set)
    }

    /// Makes the change, and refuses what does not go together with what was set before.
    pub fn apply(&self, settings: &mut TopicSettings) -> Result<(), SqsError> {
        let set = |setting: &mut u64, value: Option<u64>| *setting = value.unwrap_or(*setting);
        set(&mut settings.visibility_ms, self.visibility_ms);
        set(&mut settings.delay_ms, self.delay_ms);
        set(&mut settings.retention_ms, self.retention_ms);
        settings.payload_bytes_max = self.message_bytes_max.unwrap_or(settings.payload_bytes_max);
        if let Some(redrive) = &self.redrive {
            redrive::set(settings, redrive.as_ref());
        }
        // One kind of encryption ends the other.
        if self.has_label(KMS_KEY, true) {
            settings.labels.insert(MANAGED_SSE.to_owned(), "false".to_owned());
        }
        if self.has_label(MANAGED_SSE, false) {
            settings.labels.remove(KMS_KEY);
            settings.labels.remove(KMS_REUSE);
        }
        for (name, value) in &self.labels {
            match value {
                Some(value) => settings.labels.insert((*name).to_owned(), value.clone()),
                None => settings.labels.remove(*name),
            };
        }
        check_together(settings)
    }
}

fn check_together(settings: &TopicSettings) -> Result<(), SqsError> {
    let labels = &settings.labels;
    if labels.contains_key(THROUGHPUT_LIMIT) && !labels.contains_key(DEDUPLICATION_SCOPE) {
        return Err(invalid_because(
            "The value perMessageGroupId is allowed only when the value for DeduplicationScope is messageGroup.",
        ));
    }
    if settings.delay_ms > settings.retention_ms {
        return Err(invalid_because(
            "Invalid value for the parameter DelaySeconds. Reason: Must not be longer than MessageRetentionPeriod.",
        ));
    }
    Ok(())
}

/// The value of an attribute that may be set, as it is shown.
pub(super) fn shown(name: &str, queue: &TopicName, settings: &TopicSettings, names: &Namespace) -> Option<String> {
    let is_fifo = settings.groups == Groups::Fifo;
    let label = |key: &str| settings.labels.get(key).cloned();
    let or = |key: &str, default: &str| Some(label(key).unwrap_or_else(|| default.to_owned()));
    match name {
        "VisibilityTimeout" => Some(seconds(settings.visibility_ms)),
        "DelaySeconds" => Some(seconds(settings.delay_ms)),
        "MessageRetentionPeriod" => Some(seconds(settings.retention_ms)),
        "MaximumMessageSize" => Some(settings.payload_bytes_max.to_string()),
        "ReceiveMessageWaitTimeSeconds" => or(WAIT_SECONDS, "0"),
        "RedrivePolicy" => redrive::shown(queue, settings, names),
        "RedriveAllowPolicy" => label(REDRIVE_ALLOW),
        "Policy" => label(POLICY),
        "FifoQueue" => is_fifo.then(|| "true".to_owned()),
        "ContentBasedDeduplication" if is_fifo => or(CONTENT_BASED, "false"),
        "DeduplicationScope" if is_fifo => or(DEDUPLICATION_SCOPE, "queue"),
        "FifoThroughputLimit" if is_fifo => or(THROUGHPUT_LIMIT, "perQueue"),
        "KmsMasterKeyId" => label(KMS_KEY),
        "KmsDataKeyReusePeriodSeconds" => label(KMS_KEY).and_then(|_| or(KMS_REUSE, KMS_REUSE_DEFAULT)),
        "SqsManagedSseEnabled" => or(MANAGED_SSE, "true"),
        _ => None,
    }
}

/// The first of the given attributes that a queue has with another value than wanted.
pub(super) fn different<'a>(
    given: &'a Map,
    queue: &TopicName,
    there: &TopicSettings,
    wanted: &TopicSettings,
    names: &Namespace,
) -> Option<&'a str> {
    let differs = |name: &&str| !is_same(shown(name, queue, there, names), shown(name, queue, wanted, names));
    given.keys().map(String::as_str).find(differs)
}

/// Documents are the same if they say the same, however they are written.
fn is_same(one: Option<String>, two: Option<String>) -> bool {
    let parsed = |text: &Option<String>| {
        let text = text.as_deref().filter(|text| text.starts_with('{'))?;
        serde_json::from_str::<serde_json::Value>(text).ok()
    };
    one == two || parsed(&one).is_some_and(|one| Some(one) == parsed(&two))
}

/// Whole seconds; part of one, which only the native surface can set, counts as one.
fn seconds(millis: u64) -> String {
    millis.div_ceil(1000).to_string()
}

fn number(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, SqsError> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_plain.then(|| value.parse().ok()).flatten();
    number.filter(|number| range.contains(number)).ok_or_else(|| SqsError::invalid_attribute_value(name))
}

fn is_true(name: &str, value: &str) -> Result<bool, SqsError> {
    match () {
        () if value.eq_ignore_ascii_case("true") => Ok(true),
        () if value.eq_ignore_ascii_case("false") => Ok(false),
        () => Err(SqsError::invalid_attribute_value(name)),
    }
}

/// None for the value that is the default.
fn one_of(name: &str, value: &str, default: &str, other: &str) -> Result<Option<String>, SqsError> {
    match value {
        _ if value == default => Ok(None),
        _ if value == other => Ok(Some(value.to_owned())),
        _ => Err(SqsError::invalid_attribute_value(name)),
    }
}

fn read_policy(value: &str) -> Result<Option<String>, SqsError> {
    if value.is_empty() {
        return Ok(None);
    }
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(value) {
        Ok(_) => Ok(Some(value.to_owned())),
        Err(_) => Err(SqsError::invalid_attribute_value("Policy")),
    }
}

fn invalid_because(message: &'static str) -> SqsError {
    SqsError::new("InvalidAttributeValue", "InvalidAttributeValue", message)
}
