//! What may be set about a queue, and what is shown of it.

use serde_json::{Value, json};

use crate::harness::{ARN, Node, invalid, missing};

async fn shown(node: &Node, url: &str, names: Value) -> Value {
    node.ok("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": names})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_shows_its_attributes_as_they_are_asked_for() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let mut all = shown(&node, &url, json!(["All"])).await;
    let now_s = ron_kernel::clock::unix_millis() / 1000;
    for name in ["CreatedTimestamp", "LastModifiedTimestamp"] {
        let taken = all["Attributes"].as_object_mut().and_then(|all| all.remove(name)).expect(name);
        let seconds: u64 = taken.as_str().and_then(|text| text.parse().ok()).expect("seconds");
        assert!(now_s.abs_diff(seconds) < 60, "{name} {seconds}");
    }
    assert_eq!(
        all["Attributes"],
        json!({
            "VisibilityTimeout": "30",
            "DelaySeconds": "0",
            "MaximumMessageSize": "1048576",
            "MessageRetentionPeriod": "345600",
            "ReceiveMessageWaitTimeSeconds": "0",
            "SqsManagedSseEnabled": "true",
            "QueueArn": format!("{ARN}jobs"),
            "ApproximateNumberOfMessages": "0",
            "ApproximateNumberOfMessagesNotVisible": "0",
            "ApproximateNumberOfMessagesDelayed": "0",
        })
    );
    assert_eq!(shown(&node, &url, json!([])).await, json!({}));
    assert_eq!(node.ok("GetQueueAttributes", json!({"QueueUrl": url})).await, json!({}));
    assert_eq!(shown(&node, &url, json!(["Policy", "RedrivePolicy"])).await, json!({}), "what is not set is left out");
    let two = shown(&node, &url, json!(["DelaySeconds", "QueueArn", "DelaySeconds"])).await;
    assert_eq!(two["Attributes"], json!({"DelaySeconds": "0", "QueueArn": format!("{ARN}jobs")}));
    for unknown in ["Nope", "all", ""] {
        let message = format!("Unknown Attribute {unknown}.");
        let request = json!({"QueueUrl": url, "AttributeNames": ["All", unknown]});
        let refusal = ("InvalidAttributeName", "InvalidAttributeName", 400, message.as_str());
        node.refused("GetQueueAttributes", request, refusal).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_messages_are_told_apart() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    for body in ["a", "b", "c"] {
        node.send(&url, body).await;
    }
    node.ok("SendMessage", json!({"QueueUrl": url, "MessageBody": "later", "DelaySeconds": 900})).await;
    node.receive(&url, json!({"MaxNumberOfMessages": 2})).await;
    let counts = shown(
        &node,
        &url,
        json!([
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed"
        ]),
    )
    .await;
    assert_eq!(
        counts["Attributes"],
        json!({
            "ApproximateNumberOfMessages": "1",
            "ApproximateNumberOfMessagesNotVisible": "2",
            "ApproximateNumberOfMessagesDelayed": "1",
        })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attribute_is_set_at_its_bounds_and_refused_beyond() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({"KmsMasterKeyId": "alias/mine"})).await;
    let set = |name: &str, value: &str| json!({"QueueUrl": url, "Attributes": {name: value}});
    for (name, min, max) in [
        ("VisibilityTimeout", 0_i64, 43_200_i64),
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1_024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ] {
        for value in [max, min] {
            assert_eq!(node.ok("SetQueueAttributes", set(name, &value.to_string())).await, json!({}));
            assert_eq!(node.attribute(&url, name).await, Some(value.to_string()), "{name}");
        }
        for value in [(min - 1).to_string(), (max + 1).to_string(), String::new(), "x".to_owned()] {
            let message = format!("Invalid value for the parameter {name}.");
            let refusal = ("InvalidAttributeValue", "InvalidAttributeValue", 400, message.as_str());
            node.refused("SetQueueAttributes", set(name, &value), refusal).await;
        }
    }
    for name in ["QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "FifoQueue", "Nope"] {
        let message = format!("Unknown Attribute {name}.");
        let refusal = ("InvalidAttributeName", "InvalidAttributeName", 400, message.as_str());
        node.refused("SetQueueAttributes", set(name, "true"), refusal).await;
    }
    let nothing = missing("The request must contain the parameter Attributes.");
    node.refused("SetQueueAttributes", json!({"QueueUrl": url}), nothing).await;
    node.refused("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": {}}), nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_refused_changes_nothing() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let request = json!({"QueueUrl": url, "Attributes": {"DelaySeconds": "7", "VisibilityTimeout": "x"}});
    let message = "Invalid value for the parameter VisibilityTimeout.";
    let refusal = ("InvalidAttributeValue", "InvalidAttributeValue", 400, message);
    node.refused("SetQueueAttributes", request, refusal).await;
    assert_eq!(node.attribute(&url, "DelaySeconds").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_keeps_order_has_attributes_of_its_own() {
    let node = Node::start().await;
    let url = node.queue("jobs.fifo", json!({"ContentBasedDeduplication": "true"})).await;
    let all = shown(&node, &url, json!(["All"])).await;
    for (name, value) in [
        ("FifoQueue", "true"),
        ("ContentBasedDeduplication", "true"),
        ("DeduplicationScope", "queue"),
        ("FifoThroughputLimit", "perQueue"),
    ] {
        assert_eq!(all["Attributes"][name], value);
    }
    let high = json!({"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"});
    node.ok("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": high})).await;
    let back = json!({"QueueUrl": url, "Attributes": {"DeduplicationScope": "queue"}});
    let message = "The value perMessageGroupId is allowed only when the value for DeduplicationScope is messageGroup.";
    let refusal = ("InvalidAttributeValue", "InvalidAttributeValue", 400, message);
    node.refused("SetQueueAttributes", back, refusal).await;
    let standard = node.queue("jobs", json!({})).await;
    let request = json!({"QueueUrl": standard, "Attributes": {"DeduplicationScope": "queue"}});
    let message = "You can specify the DeduplicationScope only when FifoQueue is set to true.";
    node.refused("SetQueueAttributes", request, ("InvalidAttributeName", "InvalidAttributeName", 400, message)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_dead_go_must_be_there_of_the_same_kind_and_willing() {
    let node = Node::start().await;
    let (url, dead) = (node.queue("jobs", json!({})).await, node.queue("dead", json!({})).await);
    node.queue("dead.fifo", json!({})).await;
    let policy = |target: &str| format!(r#"{{"deadLetterTargetArn":"{target}","maxReceiveCount":3}}"#);
    let set = |policy: &str| json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}});
    let refused =
        |policy: &str, reason: &str| format!("Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}");
    for (target, reason) in [
        ("none", "Dead letter target does not exist."),
        ("dead.fifo", "Dead-letter queue must be same type of queue as the source."),
    ] {
        let policy = policy(&format!("{ARN}{target}"));
        node.refused("SetQueueAttributes", set(&policy), invalid(&refused(&policy, reason))).await;
        let make = json!({"QueueName": "new", "Attributes": {"RedrivePolicy": policy}});
        node.refused("CreateQueue", make, invalid(&refused(&policy, reason))).await;
    }
    let elsewhere = policy("arn:aws:sqs:us-east-1:111111111111:dead");
    let reason = "Dead letter target does not exist.";
    node.refused("SetQueueAttributes", set(&elsewhere), invalid(&refused(&elsewhere, reason))).await;

    let good = policy(&format!("{ARN}dead"));
    let allow = |policy: Value| json!({"QueueUrl": dead, "Attributes": {"RedriveAllowPolicy": policy.to_string()}});
    let reason = "The dead-letter queue does not allow this queue as a source.";
    for unwilling in [
        json!({"redrivePermission": "denyAll"}),
        json!({"redrivePermission": "byQueue", "sourceQueueArns": [format!("{ARN}others")]}),
    ] {
        node.ok("SetQueueAttributes", allow(unwilling)).await;
        node.refused("SetQueueAttributes", set(&good), invalid(&refused(&good, reason))).await;
    }
    node.ok(
        "SetQueueAttributes",
        allow(json!({"redrivePermission": "byQueue", "sourceQueueArns": [format!("{ARN}jobs")]})),
    )
    .await;
    node.ok("SetQueueAttributes", set(&good)).await;
    assert_eq!(node.attribute(&url, "RedrivePolicy").await, Some(good));
    node.ok("SetQueueAttributes", set("")).await;
    assert_eq!(node.attribute(&url, "RedrivePolicy").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_kept_as_it_was_given() {
    let node = Node::start().await;
    let policy = r#"{"Version":"2012-10-17",  "Statement":[]}"#;
    let url = node.queue("jobs", json!({"Policy": policy, "SqsManagedSseEnabled": "false"})).await;
    assert_eq!(node.attribute(&url, "Policy").await.as_deref(), Some(policy));
    assert_eq!(node.attribute(&url, "SqsManagedSseEnabled").await.as_deref(), Some("false"));
    node.ok("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": {"Policy": ""}})).await;
    assert_eq!(node.attribute(&url, "Policy").await, None);
    let refusal = ("InvalidAttributeValue", "InvalidAttributeValue", 400, "Invalid value for the parameter Policy.");
    node.refused("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": {"Policy": "no"}}), refusal).await;
}
