//! Messages received too often, the queues they go to, and the tasks that move them on.

use std::time::Duration;

use ron_kernel::Deadline;
use serde_json::{Value, json};
use svc_mailbox::types::TopicSettings;

use crate::harness::{ARN, Node, Refusal, invalid, missing, name, text};

/// A queue whose messages die after one receive, and the queue they go to.
async fn mortal(node: &Node, suffix: &str) -> (String, String) {
    let dead = node.queue(&format!("dead{suffix}"), json!({})).await;
    let policy = json!({"deadLetterTargetArn": format!("{ARN}dead{suffix}"), "maxReceiveCount": "1"}).to_string();
    let attributes = json!({"RedrivePolicy": policy, "VisibilityTimeout": "0"});
    (node.queue(&format!("jobs{suffix}"), attributes).await, dead)
}

/// Sends messages and receives them until they are dead.
async fn bury(node: &Node, url: &str, bodies: &[&str]) {
    for body in bodies {
        node.send(url, body).await;
    }
    for _ in 0..2 {
        node.receive(url, json!({"MaxNumberOfMessages": 10})).await;
    }
}

async fn tasks(node: &Node, source: &str) -> Vec<Value> {
    let listed = node.ok("ListMessageMoveTasks", json!({"SourceArn": source, "MaxResults": 10})).await;
    listed["Results"].as_array().cloned().unwrap_or_default()
}

/// Waits until the newest task of a queue has ended.
async fn ended(node: &Node, source: &str) -> Value {
    crate::harness::within(async {
        loop {
            let task = tasks(node, source).await.remove(0);
            if task["Status"] != "RUNNING" && task["Status"] != "CANCELLING" {
                return task;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_received_too_often_goes_where_its_queue_says() {
    let node = Node::start().await;
    let (url, dead) = mortal(&node, "").await;
    let attributes = json!({"Foo": {"DataType": "Number", "StringValue": "7"}});
    let message = json!({"QueueUrl": url, "MessageBody": "hi", "MessageAttributes": attributes});
    let sent = node.ok("SendMessage", message).await;
    assert_eq!(node.receive(&url, json!({})).await.len(), 1);
    assert!(node.receive(&url, json!({})).await.is_empty(), "the second receive would be one too many");
    let asked = json!({"AttributeNames": ["All"], "MessageAttributeNames": ["All"]});
    let message = node.one(&dead, asked).await;
    assert_eq!((&message["MessageId"], &message["Body"]), (&sent["MessageId"], &json!("hi")));
    assert_eq!(message["MessageAttributes"], attributes);
    assert_eq!(message["Attributes"]["DeadLetterQueueSourceArn"], json!(format!("{ARN}jobs")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sources_of_a_queue_for_the_dead_are_listed() {
    let node = Node::start().await;
    let dead = node.queue("dead", json!({})).await;
    assert_eq!(node.ok("ListDeadLetterSourceQueues", json!({"QueueUrl": dead})).await, json!({"queueUrls": []}));
    let policy = json!({"deadLetterTargetArn": format!("{ARN}dead"), "maxReceiveCount": 5}).to_string();
    for name in ["c", "a", "b"] {
        node.queue(name, json!({"RedrivePolicy": policy})).await;
    }
    let url = |name: &str| format!("http://node:9000/000000000000/{name}");
    let first = node.ok("ListDeadLetterSourceQueues", json!({"QueueUrl": dead, "MaxResults": 2})).await;
    assert_eq!(first["queueUrls"], json!([url("a"), url("b")]));
    let next = json!({"QueueUrl": dead, "MaxResults": 2, "NextToken": first["NextToken"]});
    assert_eq!(node.ok("ListDeadLetterSourceQueues", next).await, json!({"queueUrls": [url("c")]}));
    for wrong in [0, 1001] {
        let message = format!(
            "Value {wrong} for parameter MaxResults is invalid. Reason: Must be between 1 and 1000, if provided."
        );
        let request = json!({"QueueUrl": dead, "MaxResults": wrong});
        node.refused("ListDeadLetterSourceQueues", request, invalid(&message)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_for_the_dead_may_go_before_those_who_use_it() {
    let node = Node::start().await;
    let (url, dead) = mortal(&node, "").await;
    let policy = node.attribute(&url, "RedrivePolicy").await;
    node.ok("DeleteQueue", json!({"QueueUrl": dead})).await;
    assert_eq!(node.attribute(&url, "RedrivePolicy").await, policy, "it is still said");
    bury(&node, &url, &["a"]).await;
    assert_eq!(node.bodies(&url).await, ["a"], "and does nothing");
    node.queue("dead", json!({})).await;
    node.ok("SetQueueAttributes", json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}})).await;
    node.receive(&url, json!({})).await;
    assert_eq!(node.one(&dead, json!({})).await["Body"], "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_moved_back_to_where_they_came_from() {
    let node = Node::start().await;
    let (url, dead) = mortal(&node, "").await;
    bury(&node, &url, &["a", "b", "c"]).await;
    let source = format!("{ARN}dead");
    let started = node.ok("StartMessageMoveTask", json!({"SourceArn": source})).await;
    let handle: Value = {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.decode(text(&started["TaskHandle"])).expect("base64");
        serde_json::from_slice(&text).expect("JSON")
    };
    assert_eq!(handle["sourceArn"], json!(source));
    assert!(uuid::Uuid::try_parse(handle["taskId"].as_str().expect("a text")).is_ok(), "{handle}");
    let task = ended(&node, &source).await;
    assert_eq!(
        (&task["Status"], &task["ApproximateNumberOfMessagesMoved"], &task["SourceArn"]),
        (&json!("COMPLETED"), &json!(3), &json!(source))
    );
    assert_eq!((task.get("TaskHandle"), task.get("DestinationArn")), (None, None));
    assert!(task["StartedTimestamp"].as_u64().is_some_and(|at| at > 1_500_000_000_000));
    assert_eq!(node.attribute(&dead, "ApproximateNumberOfMessages").await.as_deref(), Some("0"));
    let mut bodies = node.bodies(&url).await;
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_are_moved_elsewhere_as_fast_as_they_may_until_somebody_ends_it() {
    let node = Node::start().await;
    let (url, _) = mortal(&node, "").await;
    let other = node.queue("others", json!({})).await;
    bury(&node, &url, &["a", "b", "c", "d", "e"]).await;
    // The region of an ARN does not matter.
    let (source, target) = (format!("{ARN}dead"), "arn:aws:sqs:eu-west-1:000000000000:others");
    let order = json!({"SourceArn": source, "DestinationArn": target, "MaxNumberOfMessagesPerSecond": 1});
    let started = node.ok("StartMessageMoveTask", order.clone()).await;
    let running = "There is already a task running. Only one active task is allowed for a source queue arn at a given \
                   time.";
    node.refused("StartMessageMoveTask", order, invalid(running)).await;
    let task = tasks(&node, &source).await.remove(0);
    assert_eq!((&task["Status"], &task["TaskHandle"]), (&json!("RUNNING"), &started["TaskHandle"]));
    assert_eq!(task["DestinationArn"], json!(format!("{ARN}others")));
    assert_eq!(task["MaxNumberOfMessagesPerSecond"], 1);
    assert_eq!(task["ApproximateNumberOfMessagesToMove"], 5);
    let cancel = json!({"TaskHandle": started["TaskHandle"]});
    let canceled = node.ok("CancelMessageMoveTask", cancel.clone()).await;
    assert!(canceled["ApproximateNumberOfMessagesMoved"].is_u64());
    assert_eq!(ended(&node, &source).await["Status"], "CANCELLED");
    let over: Refusal<'_> = (
        "UnsupportedOperation",
        "AWS.SimpleQueueService.UnsupportedOperation",
        400,
        "Only active tasks can be cancelled.",
    );
    node.refused("CancelMessageMoveTask", cancel, over).await;
    let again = json!({"SourceArn": source, "DestinationArn": target, "MaxNumberOfMessagesPerSecond": 500});
    node.ok("StartMessageMoveTask", again).await;
    assert_eq!(ended(&node, &source).await["Status"], "COMPLETED");
    assert_eq!(tasks(&node, &source).await.len(), 2);
    let newest = node.ok("ListMessageMoveTasks", json!({"SourceArn": source})).await;
    assert_eq!(newest["Results"].as_array().map(Vec::len), Some(1), "one if nobody says how many");
    assert_eq!(node.attribute(&other, "ApproximateNumberOfMessages").await.as_deref(), Some("5"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_fails_where_a_message_has_nowhere_to_go() {
    let node = Node::start().await;
    let (url, _) = mortal(&node, "").await;
    let (other, _) = mortal(&node, "2").await;
    let policy = json!({"deadLetterTargetArn": format!("{ARN}dead"), "maxReceiveCount": 1}).to_string();
    node.ok("SetQueueAttributes", json!({"QueueUrl": other, "Attributes": {"RedrivePolicy": policy}})).await;
    bury(&node, &url, &["a"]).await;
    node.ok("DeleteQueue", json!({"QueueUrl": url})).await;
    let source = format!("{ARN}dead");
    node.ok("StartMessageMoveTask", json!({"SourceArn": source})).await;
    let task = ended(&node, &source).await;
    let told = (text(&task["Status"]), text(&task["FailureReason"]));
    assert_eq!(told, ("FAILED".to_owned(), "AWS.SimpleQueueService.NonExistentQueue".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_task_is_said() {
    let node = Node::start().await;
    mortal(&node, "").await;
    node.queue("plain", json!({})).await;
    node.queue("line.fifo", json!({})).await;
    let (dead, plain) = (format!("{ARN}dead"), format!("{ARN}plain"));
    let gone =
        |parameter: &str| format!("The resource that you specified for the {parameter} parameter doesn't exist.");
    let (no_source, no_target) = (gone("SourceArn"), gone("DestinationArn"));
    fn not_found(message: &str) -> Refusal<'_> {
        ("ResourceNotFoundException", "ResourceNotFoundException", 404, message)
    }
    let start = |more: Value| crate::harness::merged(json!({"SourceArn": dead}), more);
    let rate = |rate: i64| {
        let reason = "Must be between 1 and 500, if provided.";
        format!("Value {rate} for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: {reason}")
    };
    let (slow, fast) = (rate(0), rate(501));
    let (few, many) = (
        "Value 0 for parameter MaxResults is invalid. Reason: Must be between 1 and 10, if provided.",
        "Value 11 for parameter MaxResults is invalid. Reason: Must be between 1 and 10, if provided.",
    );
    let no_arn = "You must use this format to specify the SourceArn: \
                  arn:<partition>:<service>:<region>:<account-id>:<resource-id>";
    let handle = |task: &str, source: &str| {
        use base64::Engine as _;
        let text = json!({"taskId": task, "sourceArn": source}).to_string();
        json!({"TaskHandle": base64::engine::general_purpose::STANDARD.encode(text)})
    };
    let unknown_task = "0d4c2a4e-5d1f-4f63-9b0a-6f0b7a1c2d3e";
    let needs_source = missing("The request must contain the parameter SourceArn.");
    node.all_refused(vec![
        ("StartMessageMoveTask", json!({}), needs_source),
        ("ListMessageMoveTasks", json!({}), needs_source),
        ("StartMessageMoveTask", json!({"SourceArn": "dead"}), invalid(no_arn)),
        ("ListMessageMoveTasks", json!({"SourceArn": "dead"}), invalid(no_arn)),
        ("StartMessageMoveTask", json!({"SourceArn": format!("{ARN}none")}), not_found(&no_source)),
        ("ListMessageMoveTasks", json!({"SourceArn": format!("{ARN}none")}), not_found(&no_source)),
        ("StartMessageMoveTask", json!({"SourceArn": "arn:aws:sqs:x:1:dead"}), not_found(&no_source)),
        ("StartMessageMoveTask", start(json!({"DestinationArn": format!("{ARN}none")})), not_found(&no_target)),
        (
            "StartMessageMoveTask",
            json!({"SourceArn": plain}),
            invalid("Source queue must be configured as a Dead Letter Queue."),
        ),
        (
            "StartMessageMoveTask",
            start(json!({"DestinationArn": dead})),
            invalid("Source queue arn and destination queue arn cannot be the same."),
        ),
        (
            "StartMessageMoveTask",
            start(json!({"DestinationArn": format!("{ARN}line.fifo")})),
            invalid("Source queue and destination queue must be of the same type."),
        ),
        ("StartMessageMoveTask", start(json!({"MaxNumberOfMessagesPerSecond": 0})), invalid(&slow)),
        ("StartMessageMoveTask", start(json!({"MaxNumberOfMessagesPerSecond": 501})), invalid(&fast)),
        ("ListMessageMoveTasks", start(json!({"MaxResults": 0})), invalid(few)),
        ("ListMessageMoveTasks", start(json!({"MaxResults": 11})), invalid(many)),
        ("CancelMessageMoveTask", json!({}), missing("The request must contain the parameter TaskHandle.")),
        (
            "CancelMessageMoveTask",
            json!({"TaskHandle": "garbage"}),
            invalid("Value for parameter TaskHandle is invalid."),
        ),
        (
            "CancelMessageMoveTask",
            handle(unknown_task, "not-an-arn"),
            invalid("Value for parameter TaskHandle is invalid."),
        ),
        ("CancelMessageMoveTask", handle(unknown_task, &dead), not_found("Task does not exist.")),
        ("CancelMessageMoveTask", handle("nonsense", &dead), not_found("Task does not exist.")),
        ("CancelMessageMoveTask", handle(unknown_task, &format!("{ARN}none")), not_found(&no_source)),
        ("CancelMessageMoveTask", handle(unknown_task, "arn:aws:sqs:x:1:dead"), not_found(&no_source)),
    ])
    .await;
    assert_eq!(node.ok("ListMessageMoveTasks", json!({"SourceArn": dead})).await, json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_may_name_itself_for_its_dead_and_an_empty_policy_takes_the_name_away() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({"VisibilityTimeout": "0"})).await;
    let policy = format!(r#"{{"deadLetterTargetArn":"{ARN}jobs","maxReceiveCount":1}}"#);
    let set = |policy: &str| json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}});
    node.ok("SetQueueAttributes", set(&policy)).await;
    assert_eq!(node.attribute(&url, "RedrivePolicy").await.as_ref(), Some(&policy));
    let sources = node.ok("ListDeadLetterSourceQueues", json!({"QueueUrl": url})).await;
    assert_eq!(sources, json!({"queueUrls": [url]}));
    bury(&node, &url, &["a"]).await;
    assert_eq!(node.bodies(&url).await, ["a"], "what dies there is there");
    node.ok("SetQueueAttributes", set("")).await;
    assert_eq!(node.attribute(&url, "RedrivePolicy").await, None);
    node.ok("SetQueueAttributes", set(&policy)).await;
    node.ok("DeleteQueue", json!({"QueueUrl": url})).await;
}

/// The queue goes though one of those that send their dead there has no room for a word of it; what it says then does
/// nothing, as for the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_for_the_dead_goes_from_under_a_queue_that_cannot_be_changed() {
    let node = Node::start().await;
    let (first, dead) = mortal(&node, "").await;
    let attributes = json!({"RedrivePolicy": node.attribute(&first, "RedrivePolicy").await, "VisibilityTimeout": "0"});
    let second = node.queue("last", attributes).await;
    let full = |settings: &mut TopicSettings| {
        let used: usize = settings.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        settings.labels.insert("long".to_owned(), "x".repeat(24 * 1024 - 4 - used));
        Ok(())
    };
    let deadline = Deadline::after(Duration::from_secs(20));
    node.mailbox.edit_topic(&name("last"), full, deadline).await.expect("it fits");
    node.ok("DeleteQueue", json!({"QueueUrl": dead})).await;
    for (nth, url) in [&first, &second].into_iter().enumerate() {
        bury(&node, url, &["a"]).await;
        assert_eq!(node.bodies(url).await, ["a"], "queue {nth}: nothing dies");
    }
}
