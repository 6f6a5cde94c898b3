//! Tags and permissions of queues: kept with the queue and shown again, nothing more.

use serde_json::{Value, json};
use svc_mailbox::capabilities::ADMIN;
use svc_mailbox::types::{TopicName, TopicSettings};

use super::App;
use super::attributes::{POLICY, TAG};
use super::caller::Caller;
use super::error::SqsError;
use super::model::{self, ActionOutput, Map, Tags};
use super::{names, queues};

const TAGS_MAX: usize = 50;
const KEY_CHARACTERS_MAX: usize = 128;
const VALUE_CHARACTERS_MAX: usize = 256;
const ACTIONS_MAX: usize = 7;
const KEY_RULE: &str = "Tag keys must be between 1 and 128 characters in length.";

/// Actions that others than the owner may be allowed.
const ACTIONS: [&str; 9] = [
    "*",
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "ChangeMessageVisibility",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
];
/// Actions that nobody but the owner can do.
const OWNERS_ACTIONS: [&str; 12] = [
    "AddPermission",
    "CancelMessageMoveTask",
    "CreateQueue",
    "DeleteQueue",
    "ListMessageMoveTasks",
    "ListQueues",
    "ListQueueTags",
    "RemovePermission",
    "SetQueueAttributes",
    "StartMessageMoveTask",
    "TagQueue",
    "UntagQueue",
];

pub(super) async fn tag_queue(app: &App, caller: &Caller, request: model::TagQueue) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    let tags = request.tags.filter(|tags| !tags.is_empty()).ok_or_else(|| SqsError::missing("Tags"))?;
    let name = queue.name.clone();
    queues::edit(app, caller, &queue, |settings| add(settings, tags, &name)).await?;
    Ok(ActionOutput::Nothing)
}

pub(super) async fn untag_queue(
    app: &App,
    caller: &Caller,
    request: model::UntagQueue,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    let keys = request.tag_keys.ok_or_else(|| SqsError::missing("TagKeys"))?;
    if keys.is_empty() || !keys.iter().all(|key| is_key(key)) {
        return Err(SqsError::invalid_value(KEY_RULE));
    }
    let remove = |settings: &mut TopicSettings| {
        for key in &keys {
            settings.labels.remove(&[TAG, key].concat());
        }
        Ok(())
    };
    queues::edit(app, caller, &queue, remove).await?;
    Ok(ActionOutput::Nothing)
}

#[expect(clippy::unused_async, reason = "an action")]
pub(super) async fn list_queue_tags(
    app: &App,
    caller: &Caller,
    request: model::OfQueue,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    let labels = queue.settings.labels.iter();
    let tags = labels.filter_map(|(key, value)| Some((key.strip_prefix(TAG)?.to_owned(), value.clone())));
    Ok(ActionOutput::Tags(Tags { tags: tags.collect() }))
}

fn is_key(key: &str) -> bool {
    (1..=KEY_CHARACTERS_MAX).contains(&key.chars().count())
}

/// Checks tags and adds them to those the queue has.
pub(super) fn add(settings: &mut TopicSettings, tags: Map, queue: &TopicName) -> Result<(), SqsError> {
    for (key, value) in tags {
        if !is_key(&key) {
            return Err(SqsError::invalid_value(KEY_RULE));
        }
        if value.chars().count() > VALUE_CHARACTERS_MAX {
            return Err(SqsError::invalid_value("Tag values must be between 0 and 256 characters in length."));
        }
        if key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:")) {
            return Err(SqsError::invalid_value("Tag keys that start with 'aws:' are reserved."));
        }
        settings.labels.insert([TAG, &key].concat(), value);
    }
    if settings.labels.keys().filter(|key| key.starts_with(TAG)).count() > TAGS_MAX {
        return Err(SqsError::invalid_value(format!("Too many tags added for queue {queue}.")));
    }
    Ok(())
}

pub(super) async fn add_permission(
    app: &App,
    caller: &Caller,
    request: model::AddPermission,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    let arn = caller.namespace.arn(queue.name.as_str());
    let permission = Permission::read(request)?;
    queues::edit(app, caller, &queue, |settings| permission.add_to(settings, &arn)).await?;
    Ok(ActionOutput::Nothing)
}

pub(super) async fn remove_permission(
    app: &App,
    caller: &Caller,
    request: model::RemovePermission,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    let label = request.label.filter(|label| !label.is_empty()).ok_or_else(|| SqsError::missing("Label"))?;
    queues::edit(app, caller, &queue, |settings| remove_from(settings, &label)).await?;
    Ok(ActionOutput::Nothing)
}

/// A statement to be added to a policy.
#[derive(Debug)]
struct Permission {
    label: String,
    accounts: Vec<String>,
    actions: Vec<String>,
}

impl Permission {
    fn read(request: model::AddPermission) -> Result<Self, SqsError> {
        let label = request.label.filter(|label| !label.is_empty()).ok_or_else(|| SqsError::missing("Label"))?;
        if !names::is_plain(&label) {
            let reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
            return Err(SqsError::invalid_parameter("Label", label, reason));
        }
        let accounts = request.account_ids.filter(|accounts| !accounts.is_empty());
        let accounts = accounts.ok_or_else(|| SqsError::missing("AWSAccountIds"))?;
        let is_account = |text: &String| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(wrong) = accounts.iter().find(|account| !is_account(account)) {
            return Err(SqsError::invalid_parameter("PrincipalId", format_args!("[{wrong}]"), "Unable to verify."));
        }
        let actions = request.actions.filter(|actions| !actions.is_empty());
        let actions = actions.ok_or_else(|| SqsError::missing("Actions"))?;
        if actions.len() > ACTIONS_MAX {
            let message = format!("{} Actions were found, maximum allowed is {ACTIONS_MAX}.", actions.len());
            return Err(SqsError::over_limit(message));
        }
        for action in &actions {
            if ACTIONS.contains(&action.as_str()) {
                continue;
            }
            let reason = match OWNERS_ACTIONS.contains(&action.as_str()) {
                true => "Only the queue owner is allowed to invoke this action.",
                false => "Please refer to the appropriate WSDL for a list of valid actions.",
            };
            return Err(SqsError::invalid_parameter("ActionName", format_args!("SQS:{action}"), reason));
        }
        Ok(Permission { label, accounts, actions })
    }

    fn add_to(&self, settings: &mut TopicSettings, arn: &str) -> Result<(), SqsError> {
        let mut policy = policy_of(settings).unwrap_or_else(
            || json!({"Version": "2008-10-17", "Id": format!("{arn}/SQSDefaultPolicy"), "Statement": []}),
        );
        let statements = statements_of(&mut policy);
        if statements.iter().any(|statement| statement["Sid"] == self.label.as_str()) {
            return Err(SqsError::invalid_parameter("Label", &self.label, "Already exists."));
        }
        let principals = self.accounts.iter().map(|account| format!("arn:aws:iam::{account}:root"));
        statements.push(json!({
            "Sid": self.label,
            "Effect": "Allow",
            "Principal": {"AWS": one_or_many(principals.collect())},
            "Action": one_or_many(self.actions.iter().map(|action| format!("SQS:{action}")).collect()),
            "Resource": arn,
        }));
        settings.labels.insert(POLICY.to_owned(), policy.to_string());
        Ok(())
    }
}

fn remove_from(settings: &mut TopicSettings, label: &str) -> Result<(), SqsError> {
    let unknown = || SqsError::invalid_parameter("Label", label, "can't find label on existing policy.");
    let mut policy = policy_of(settings).ok_or_else(unknown)?;
    let statements = statements_of(&mut policy);
    let before = statements.len();
    statements.retain(|statement| statement["Sid"] != label);
    match statements.len() {
        after if after == before => return Err(unknown()),
        0 => settings.labels.remove(POLICY),
        _ => settings.labels.insert(POLICY.to_owned(), policy.to_string()),
    };
    Ok(())
}

fn policy_of(settings: &TopicSettings) -> Option<Value> {
    settings.labels.get(POLICY).and_then(|text| serde_json::from_str(text).ok()).filter(Value::is_object)
}

/// A policy may have one statement that is no list.
fn statements_of(policy: &mut Value) -> &mut Vec<Value> {
    let statements = &mut policy["Statement"];
    if !statements.is_array() {
        let only = statements.take();
        *statements = Value::Array(if only.is_null() { Vec::new() } else { vec![only] });
    }
    statements.as_array_mut().expect("it was made one just now")
}

fn one_or_many(mut texts: Vec<String>) -> Value {
    match texts.len() {
        1 => texts.remove(0).into(),
        _ => texts.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:jobs";

    fn asked(label: &str, accounts: &[&str], actions: &[&str]) -> model::AddPermission {
        let owned = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        model::AddPermission {
            queue_url: None,
            label: Some(label.to_owned()),
            account_ids: owned(accounts),
            actions: owned(actions),
        }
    }

    fn queue() -> TopicName {
        "jobs".parse().expect("a name")
    }

    #[test]
    fn permissions_are_kept_as_statements_of_the_policy() {
        let mut settings = TopicSettings::default();
        let add = |settings: &mut TopicSettings, label: &str, accounts: &[&str], actions: &[&str]| {
            Permission::read(asked(label, accounts, actions))?.add_to(settings, ARN)
        };
        add(&mut settings, "one", &["111122223333"], &["SendMessage"]).expect("added");
        add(&mut settings, "two", &["111122223333", "444455556666"], &["*", "GetQueueUrl"]).expect("added");
        let policy = policy_of(&settings).expect("a policy");
        assert_eq!(policy["Statement"][0]["Principal"]["AWS"], "arn:aws:iam::111122223333:root");
        assert_eq!(policy["Statement"][0]["Action"], "SQS:SendMessage");
        assert_eq!(policy["Statement"][0]["Resource"], ARN);
        assert_eq!(policy["Statement"][1]["Action"], json!(["SQS:*", "SQS:GetQueueUrl"]));
        let again = add(&mut settings, "one", &["111122223333"], &["*"]).expect_err("taken");
        assert_eq!(again.message, "Value one for parameter Label is invalid. Reason: Already exists.");
        let unknown = remove_from(&mut settings, "three").expect_err("not there");
        assert_eq!(
            unknown.message,
            "Value three for parameter Label is invalid. Reason: can't find label on existing policy."
        );
        remove_from(&mut settings, "one").expect("removed");
        remove_from(&mut settings, "two").expect("removed");
        assert_eq!(policy_of(&settings), None);
        settings.labels.insert(POLICY.to_owned(), r#"{"Statement":{"Sid":"only"}}"#.to_owned());
        add(&mut settings, "one", &["111122223333"], &["*"]).expect("beside the one that was no list");
        assert_eq!(policy_of(&settings).expect("a policy")["Statement"][0]["Sid"], "only");
    }

    #[test]
    fn permissions_are_held_to_their_rules() {
        let eight = ["*"; 8];
        let long = "x".repeat(81);
        for (request, code, message) in [
            (asked("", &["111122223333"], &["*"]), "MissingParameter", "The request must contain the parameter Label."),
            (asked("a", &[], &["*"]), "MissingParameter", "The request must contain the parameter AWSAccountIds."),
            (asked("a", &["111122223333"], &[]), "MissingParameter", "The request must contain the parameter Actions."),
            (asked("a", &["111122223333"], &eight), "OverLimit", "8 Actions were found, maximum allowed is 7."),
            (
                asked("a", &["x"], &["*"]),
                "InvalidParameterValue",
                "Value [x] for parameter PrincipalId is invalid. Reason: Unable to verify.",
            ),
            (
                asked("a", &["111122223333"], &["TagQueue"]),
                "InvalidParameterValue",
                "Value SQS:TagQueue for parameter ActionName is invalid. Reason: Only the queue owner is allowed to \
                 invoke this action.",
            ),
            (
                asked("a", &["111122223333"], &["Nope"]),
                "InvalidParameterValue",
                "Value SQS:Nope for parameter ActionName is invalid. Reason: Please refer to the appropriate WSDL for \
                 a list of valid actions.",
            ),
            (
                asked("a b", &["111122223333"], &["*"]),
                "InvalidParameterValue",
                "Value a b for parameter Label is invalid. Reason: Can only include alphanumeric characters, hyphens, \
                 or underscores. 1 to 80 in length",
            ),
        ] {
            let error = Permission::read(request).expect_err(message);
            assert_eq!((error.code, &*error.message), (code, message));
        }
        assert!(Permission::read(asked(&long, &["111122223333"], &["*"])).is_err());
        assert!(Permission::read(asked(&long[..80], &["111122223333"], &["*"; 7])).is_ok());
    }

    #[test]
    fn a_queue_has_fifty_tags_at_most() {
        let tags = |range: std::ops::Range<u32>| range.map(|index| (format!("k{index}"), "v".to_owned())).collect();
        let mut settings = TopicSettings::default();
        add(&mut settings, tags(0..50), &queue()).expect("fifty");
        add(&mut settings, tags(10..20), &queue()).expect("the same again");
        let error = add(&mut settings, tags(50..51), &queue()).expect_err("one more");
        assert_eq!(error.message, "Too many tags added for queue jobs.");
    }

    #[test]
    fn tags_are_held_to_their_lengths() {
        let one = |key: &str, value: &str| {
            let tags = Map::from([(key.to_owned(), value.to_owned())]);
            add(&mut TopicSettings::default(), tags, &queue()).map_err(|error| error.message.into_owned())
        };
        let key = "Tag keys must be between 1 and 128 characters in length.".to_owned();
        let value = "Tag values must be between 0 and 256 characters in length.".to_owned();
        assert_eq!(one(&"ä".repeat(128), &"ö".repeat(256)), Ok(()));
        assert_eq!(one("k", ""), Ok(()));
        assert_eq!(one(&"k".repeat(129), "v"), Err(key.clone()));
        assert_eq!(one("", "v"), Err(key));
        assert_eq!(one("k", &"v".repeat(257)), Err(value));
        assert!(one("aws:x", "v").is_err());
    }
}
