//! Attributes of queues: their bounds, what they become, and how they are shown again.

use serde_json::json;

use super::*;
use crate::sqs::options::SqsOptions;

const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:";

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn here() -> Namespace {
    Namespace::new(&SqsOptions::default(), "us-east-1")
}

fn queue() -> TopicName {
    "jobs".parse().expect("a name")
}

fn applied(pairs: &[(&str, &str)], is_fifo: bool) -> Result<TopicSettings, SqsError> {
    let mut settings = defaults(TopicSettings::default(), is_fifo);
    read(&map(pairs), is_fifo, &here())?.apply(&mut settings)?;
    Ok(settings)
}

#[test]
fn numbers_are_taken_within_their_range_and_shown_again() {
    for (name, min, max, default) in [
        ("VisibilityTimeout", 0, 43_200, "30"),
        ("DelaySeconds", 0, 900, "0"),
        ("MaximumMessageSize", 1_024, 1_048_576, "1048576"),
        ("MessageRetentionPeriod", 60, 1_209_600, "345600"),
        ("ReceiveMessageWaitTimeSeconds", 0, 20, "0"),
    ] {
        let untouched = applied(&[], false).expect("nothing to refuse");
        assert_eq!(shown(name, &queue(), &untouched, &here()).unwrap_or_default(), default, "{name}");
        for good in [min, max] {
            let settings = applied(&[(name, &good.to_string())], false).expect(name);
            assert_eq!(shown(name, &queue(), &settings, &here()), Some(good.to_string()), "{name}");
        }
        let (below, above) = ((i64::from(min) - 1).to_string(), (max + 1).to_string());
        for bad in [below.as_str(), &above, "", "x", "1.5", "+5", " 5", "99999999999999999999999"] {
            let error = applied(&[(name, bad)], false).expect_err(bad);
            assert_eq!((error.shape, error.code), ("InvalidAttributeValue", "InvalidAttributeValue"), "{name} {bad}");
            assert_eq!(error.message, format!("Invalid value for the parameter {name}."), "{bad}");
        }
    }
}

#[test]
fn attributes_that_cannot_be_set_are_not_known() {
    let read_only = COUNTS.into_iter().chain(FIXED);
    for (name, is_fifo) in read_only.flat_map(|name| [(name, false), (name, true)]).chain([
        ("FifoQueue", false),
        ("ContentBasedDeduplication", false),
        ("All", true),
        ("", false),
        ("visibilityTimeout", false),
    ]) {
        let error = applied(&[(name, "true")], is_fifo).expect_err(name);
        assert_eq!((error.shape, error.message), ("InvalidAttributeName", format!("Unknown Attribute {name}.").into()));
    }
    for name in ["DeduplicationScope", "FifoThroughputLimit"] {
        let error = applied(&[(name, "queue")], false).expect_err(name);
        let message = format!("You can specify the {name} only when FifoQueue is set to true.");
        assert_eq!((error.shape, error.message), ("InvalidAttributeName", message.into()));
    }
}

#[test]
fn attributes_of_first_in_first_out_queues() {
    let settings = applied(&[("FifoQueue", "true")], true).expect("a queue");
    let text = |name: &str, settings: &TopicSettings| shown(name, &queue(), settings, &here()).unwrap_or_default();
    for (name, value) in [
        ("FifoQueue", "true"),
        ("ContentBasedDeduplication", "false"),
        ("DeduplicationScope", "queue"),
        ("FifoThroughputLimit", "perQueue"),
    ] {
        assert_eq!(text(name, &settings), value);
    }
    assert_eq!((settings.groups, settings.partitions), (Groups::Fifo, 1));
    let high = [("DeduplicationScope", "messageGroup"), ("FifoThroughputLimit", "perMessageGroupId")];
    let settings = applied(&high, true).expect("they go together");
    assert_eq!(text("FifoThroughputLimit", &settings), "perMessageGroupId");
    for (pairs, message) in [
        (
            vec![("FifoThroughputLimit", "perMessageGroupId")],
            "The value perMessageGroupId is allowed only when the value for DeduplicationScope is messageGroup.",
        ),
        (
            vec![("FifoQueue", "false")],
            "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        ),
        (vec![("FifoQueue", "yes")], "Invalid value for the parameter FifoQueue."),
        (vec![("ContentBasedDeduplication", "1")], "Invalid value for the parameter ContentBasedDeduplication."),
        (vec![("DeduplicationScope", "group")], "Invalid value for the parameter DeduplicationScope."),
    ] {
        let error = applied(&pairs, true).expect_err(message);
        assert_eq!((error.shape, &*error.message), ("InvalidAttributeValue", message));
    }
}

#[test]
fn a_redrive_policy_says_how_often_and_where_to() {
    let policy =
        |count: serde_json::Value| json!({"deadLetterTargetArn": format!("{ARN}dead"), "maxReceiveCount": count});
    for count in [json!(1), json!("7"), json!(1000)] {
        let text = policy(count.clone()).to_string();
        let settings = applied(&[("RedrivePolicy", &text)], false).expect("a policy");
        let number = count.as_u64().unwrap_or(7);
        assert_eq!((u64::from(settings.max_attempts), settings.dlq.as_deref()), (number, Some("dead")));
        let expected = format!(r#"{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":{number}}}"#);
        assert_eq!(shown("RedrivePolicy", &queue(), &settings, &here()), Some(expected));
    }
    for (text, reason) in [
        ("no json".to_owned(), "Redrive policy is not a valid JSON map."),
        ("[]".to_owned(), "Redrive policy is not a valid JSON map."),
        ("{}".to_owned(), "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (
            json!({"deadLetterTargetArn": format!("{ARN}dead")}).to_string(),
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ),
        (
            policy(json!(0)).to_string(),
            "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            policy(json!(1001)).to_string(),
            "Invalid value for maxReceiveCount: 1001, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            policy(json!("x")).to_string(),
            "Invalid value for maxReceiveCount: x, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            json!({"deadLetterTargetArn": "dead", "maxReceiveCount": 1}).to_string(),
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            json!({"deadLetterTargetArn": 5, "maxReceiveCount": 1, "more": 1}).to_string(),
            "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].",
        ),
    ] {
        let error = applied(&[("RedrivePolicy", &text)], false).expect_err(reason);
        assert_eq!(error.code, "InvalidParameterValue");
        assert_eq!(error.message, format!("Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}"));
    }
}

#[test]
fn a_redrive_policy_is_taken_away_and_survives_its_target() {
    let text = format!(r#"{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":3}}"#);
    let mut settings = applied(&[("RedrivePolicy", &text)], false).expect("a policy");
    assert_eq!(lost_target(&settings), None);
    detach(&mut settings);
    assert_eq!((settings.max_attempts, &settings.dlq), (0, &None));
    assert_eq!(lost_target(&settings), Some("dead"));
    assert_eq!(shown("RedrivePolicy", &queue(), &settings, &here()), Some(text));
    let mut decided = settings.clone();
    reattach(&mut decided);
    assert_eq!((decided.max_attempts, lost_target(&decided)), (3, None));
    assert!(decided.labels.is_empty(), "{:?}", decided.labels);
    read(&map(&[("RedrivePolicy", "")]), false, &here()).and_then(|change| change.apply(&mut settings)).expect("empty");
    assert_eq!(shown("RedrivePolicy", &queue(), &settings, &here()), None);
    let native = TopicSettings::default();
    let own = format!(r#"{{"deadLetterTargetArn":"{ARN}jobs.dlq","maxReceiveCount":5}}"#);
    assert_eq!(shown("RedrivePolicy", &queue(), &native, &here()), Some(own));
}

#[test]
fn who_may_send_their_dead_is_said_by_the_target() {
    let one = format!(r#"{{"redrivePermission":"byQueue","sourceQueueArns":["{ARN}jobs"]}}"#);
    let eleven: Vec<String> = (0..11).map(|index| format!("{ARN}q{index}")).collect();
    let by_eleven = json!({"redrivePermission": "byQueue", "sourceQueueArns": eleven}).to_string();
    for (text, jobs, others) in [
        ("", true, true),
        (r#"{"redrivePermission":"allowAll"}"#, true, true),
        (r#"{"redrivePermission":"denyAll"}"#, false, false),
        (&one, true, false),
    ] {
        let target = applied(&[("RedriveAllowPolicy", text)], false).expect(text);
        let other: TopicName = "other".parse().expect("a name");
        assert_eq!(allows(&target, &here(), &queue()), jobs, "{text}");
        assert_eq!(allows(&target, &here(), &other), others, "{text}");
    }
    for text in [
        "x",
        "{}",
        r#"{"redrivePermission":"some"}"#,
        r#"{"redrivePermission":"byQueue"}"#,
        r#"{"redrivePermission":"byQueue","sourceQueueArns":[]}"#,
        r#"{"redrivePermission":"byQueue","sourceQueueArns":["jobs"]}"#,
        r#"{"redrivePermission":"denyAll","sourceQueueArns":[]}"#,
        r#"{"redrivePermission":"denyAll","more":1}"#,
        &by_eleven,
    ] {
        let error = applied(&[("RedriveAllowPolicy", text)], false).expect_err(text);
        let said = " for parameter RedriveAllowPolicy is invalid. Reason: ";
        assert!(error.code == "InvalidParameterValue" && error.message.contains(said), "{error:?}");
    }
}

#[test]
fn a_queue_shows_the_encryption_of_its_kind() {
    let text = |pairs: &[(&str, &str)], name| shown(name, &queue(), &applied(pairs, false).expect("read"), &here());
    let (sse, reuse, key) = ("SqsManagedSseEnabled", "KmsDataKeyReusePeriodSeconds", ("KmsMasterKeyId", "k"));
    assert_eq!(text(&[], sse).as_deref(), Some("true"), "new queues have it");
    assert_eq!(text(&[(sse, "TRUE")], sse).as_deref(), Some("true"));
    assert_eq!(text(&[(sse, "false")], sse).as_deref(), Some("false"));
    assert_eq!(text(&[(reuse, "60")], reuse), None, "there is no key to be used again");
    for seconds in ["60", "86400"] {
        assert_eq!(text(&[key, (reuse, seconds)], reuse).as_deref(), Some(seconds));
    }
    for bad in ["59", "86401", "", "x"] {
        let error = applied(&[key, (reuse, bad)], false).expect_err(bad);
        assert_eq!(error.message, format!("Invalid value for the parameter {reuse}."));
    }
}

#[test]
fn one_kind_of_encryption_ends_the_other() {
    let mut settings = applied(&[("SqsManagedSseEnabled", "true")], false).expect("on");
    let set = |settings: &mut TopicSettings, pair| read(&map(&[pair]), false, &here())?.apply(settings);
    set(&mut settings, ("KmsMasterKeyId", "alias/mine")).expect("a key");
    let text = |settings: &TopicSettings, name| shown(name, &queue(), settings, &here());
    assert_eq!(text(&settings, "KmsMasterKeyId").as_deref(), Some("alias/mine"));
    assert_eq!(text(&settings, "KmsDataKeyReusePeriodSeconds").as_deref(), Some("300"));
    assert_eq!(text(&settings, "SqsManagedSseEnabled").as_deref(), Some("false"));
    set(&mut settings, ("KmsMasterKeyId", "")).expect("no key");
    assert_eq!(text(&settings, "SqsManagedSseEnabled").as_deref(), Some("false"), "nobody switched it on again");
    set(&mut settings, ("KmsMasterKeyId", "alias/mine")).expect("a key");
    set(&mut settings, ("SqsManagedSseEnabled", "true")).expect("on");
    assert_eq!(text(&settings, "SqsManagedSseEnabled").as_deref(), Some("true"));
    assert_eq!(text(&settings, "KmsMasterKeyId"), None);
    let both = applied(&[("SqsManagedSseEnabled", "true"), ("KmsMasterKeyId", "k")], false).expect_err("both");
    assert_eq!(both.shape, "InvalidAttributeValue");
    assert!(applied(&[("Policy", "no json")], false).is_err() && applied(&[("Policy", "{}")], false).is_ok());
}

#[test]
fn a_queue_made_again_must_have_the_values_given() {
    let policy = format!(r#"{{"deadLetterTargetArn":"{ARN}dead","maxReceiveCount":3}}"#);
    let spaced = format!(r#"{{ "maxReceiveCount": "3", "deadLetterTargetArn": "{ARN}dead" }}"#);
    let there = applied(&[("DelaySeconds", "5"), ("RedrivePolicy", &policy)], false).expect("a queue");
    for (given, expected) in [
        (vec![], None),
        (vec![("DelaySeconds", "5")], None),
        (vec![("RedrivePolicy", spaced.as_str()), ("VisibilityTimeout", "30")], None),
        (vec![("DelaySeconds", "6")], Some("DelaySeconds")),
        (vec![("DelaySeconds", "5"), ("VisibilityTimeout", "31")], Some("VisibilityTimeout")),
        (vec![("RedrivePolicy", "")], Some("RedrivePolicy")),
    ] {
        let wanted = applied(&given, false).expect("read");
        assert_eq!(different(&map(&given), &queue(), &there, &wanted, &here()), expected, "{given:?}");
    }
}
