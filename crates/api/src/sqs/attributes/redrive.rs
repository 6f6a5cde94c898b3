//! Where dead messages go, and which queues may send theirs.

use serde_json::{Map, Value};
use svc_mailbox::types::{TopicName, TopicSettings};

use super::REDRIVE_ALLOW;
use crate::sqs::error::SqsError;
use crate::sqs::names::{self, Namespace};

const RECEIVES_MAX: u64 = 1000;
const SOURCES_MAX: usize = 10;
/// Label of a queue whose dead letter queue was deleted: its former policy as `<receives> <name>`.
const DANGLING: &str = "sqs.RedrivePolicy";

/// A redrive policy as it was given; whether its target is there, and allows it, is not known yet.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::sqs) struct Redrive {
    text: String,
    /// Topic of the target; none if the ARN names a queue of another place.
    pub target: Option<TopicName>,
    receives_max: u32,
}

impl Redrive {
    /// Error for a policy that is refused for this reason.
    pub fn refused(&self, reason: &str) -> SqsError {
        SqsError::invalid_parameter("RedrivePolicy", &self.text, reason)
    }
}

/// Reads a redrive policy; none for the empty text that takes it away.
pub(super) fn read(text: &str, namespace: &Namespace) -> Result<Option<Redrive>, SqsError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |reason: &str| SqsError::invalid_parameter("RedrivePolicy", text, reason);
    let policy: Map<String, Value> =
        serde_json::from_str(text).map_err(|_| wrong("Redrive policy is not a valid JSON map."))?;
    if policy.keys().any(|key| key != "deadLetterTargetArn" && key != "maxReceiveCount") {
        return Err(wrong("Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount]."));
    }
    let lacks = |name: &str| wrong(&format!("Redrive policy does not contain mandatory attribute: {name}."));
    let arn = policy.get("deadLetterTargetArn").ok_or_else(|| lacks("deadLetterTargetArn"))?;
    let receives = policy.get("maxReceiveCount").ok_or_else(|| lacks("maxReceiveCount"))?;
    let said = match receives {
        Value::String(said) => said.clone(),
        said => said.to_string(),
    };
    let receives_max = said.parse().ok().filter(|receives| (1..=RECEIVES_MAX).contains(receives)).ok_or_else(|| {
        wrong(&format!("Invalid value for maxReceiveCount: {said}, valid values are from 1 to 1000 both inclusive."))
    })?;
    let arn = arn.as_str().filter(|arn| names::read_arn(arn).is_some());
    let arn = arn.ok_or_else(|| wrong("Invalid value for deadLetterTargetArn."))?;
    let target = namespace.topic_of_arn(arn);
    Ok(Some(Redrive { text: text.to_owned(), target, receives_max: receives_max as u32 }))
}

pub(super) fn set(settings: &mut TopicSettings, redrive: Option<&Redrive>) {
    settings.labels.remove(DANGLING);
    settings.max_attempts = redrive.map_or(0, |redrive| redrive.receives_max);
    settings.dlq = redrive.and_then(|redrive| redrive.target.as_ref()).map(TopicName::to_string);
}

/// The queue for the dead of these settings is being deleted: its users keep their policy, which then does nothing.
pub(in crate::sqs) fn detach(settings: &mut TopicSettings) {
    if let Some(target) = settings.dlq.take() {
        settings.labels.insert(DANGLING.to_owned(), format!("{} {target}", settings.max_attempts));
        settings.max_attempts = 0;
    }
}

/// Policy from before the dead letter queue was deleted: number of receives, and name of that queue.
fn dangling(settings: &TopicSettings) -> Option<(u32, &str)> {
    let (receives, target) = settings.labels.get(DANGLING)?.split_once(' ')?;
    Some((receives.parse().ok()?, target))
}

/// The queue for the dead of these settings, if it was deleted from under them.
pub(crate) fn lost_target(settings: &TopicSettings) -> Option<&str> {
    dangling(settings).filter(|_| settings.max_attempts == 0).map(|(_, target)| target)
}

/// Forgets the deleted dead letter queue once another is set: messages die after as many receives as before.
pub(crate) fn reattach(settings: &mut TopicSettings) {
    if let Some((receives, _)) = dangling(settings).filter(|_| settings.max_attempts == 0) {
        settings.max_attempts = receives;
    }
    settings.labels.remove(DANGLING);
}

pub(super) fn shown(queue: &TopicName, settings: &TopicSettings, names: &Namespace) -> Option<String> {
    let (receives, target) = match (settings.max_attempts, &settings.dlq) {
        (0, _) => {
            let (receives, target) = dangling(settings)?;
            (receives, target.to_owned())
        }
        (receives, Some(target)) => (receives, target.clone()),
        // The dead letters that every topic of the native surface has.
        (receives, None) => (receives, queue.dead_letters().to_string()),
    };
    let arn = names.arn(&target);
    Some(format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{receives}}}"#))
}

/// Checks who may send dead messages; none for everybody, who may if nothing is said.
pub(super) fn read_allow(text: &str) -> Result<Option<String>, SqsError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |reason: &str| SqsError::invalid_parameter("RedriveAllowPolicy", text, reason);
    let policy: Map<String, Value> =
        serde_json::from_str(text).map_err(|_| wrong("Redrive allow policy is not a valid JSON map."))?;
    if policy.keys().any(|key| key != "redrivePermission" && key != "sourceQueueArns") {
        return Err(wrong("Only following attributes are supported: [redrivePermission, sourceQueueArns]."));
    }
    let sources = policy.get("sourceQueueArns");
    match policy.get("redrivePermission").and_then(Value::as_str) {
        Some("allowAll" | "denyAll") if sources.is_none() => {}
        Some("allowAll" | "denyAll") => {
            return Err(wrong("sourceQueueArns is only allowed when redrivePermission is byQueue."));
        }
        Some("byQueue") => {
            let arns = sources.and_then(Value::as_array).filter(|arns| (1..=SOURCES_MAX).contains(&arns.len()));
            let arns = arns.ok_or_else(|| wrong("sourceQueueArns must have 1 to 10 ARNs."))?;
            if !arns.iter().all(|arn| arn.as_str().is_some_and(|arn| names::read_arn(arn).is_some())) {
                return Err(wrong("sourceQueueArns has a value that is not the ARN of a queue."));
            }
        }
        Some(_) => return Err(wrong("redrivePermission must be one of allowAll, denyAll, byQueue.")),
        None => return Err(wrong("Redrive allow policy does not contain mandatory attribute: redrivePermission.")),
    }
    Ok(Some(text.to_owned()))
}

/// Whether the owner of a queue for the dead takes those of this source.
pub(in crate::sqs) fn allows(target: &TopicSettings, names: &Namespace, source: &TopicName) -> bool {
    let policy = target.labels.get(REDRIVE_ALLOW).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(policy) = policy else { return true };
    match policy["redrivePermission"].as_str() {
        Some("denyAll") => false,
        Some("byQueue") => policy["sourceQueueArns"].as_array().is_some_and(|arns| {
            let is_source = |arn: &str| names.topic_of_arn(arn).as_ref() == Some(source);
            arns.iter().filter_map(Value::as_str).any(is_source)
        }),
        _ => true,
    }
}
