//! What is the same for all actions: which queue is meant, what must be there, and what must not be of another type.

use serde_json::{Value, json};

use crate::harness::{Node, merged, missing, no_queue};

const SERIALIZATION: &str = "com.amazon.coral.service#SerializationException";

/// Every action that names a queue, with a request that lacks only the queue.
fn of_queues() -> Vec<(&'static str, Value)> {
    vec![
        ("DeleteQueue", json!({})),
        ("PurgeQueue", json!({})),
        ("GetQueueAttributes", json!({})),
        ("SetQueueAttributes", json!({"Attributes": {"DelaySeconds": "1"}})),
        ("SendMessage", json!({"MessageBody": "hi"})),
        ("SendMessageBatch", json!({"Entries": [{"Id": "a", "MessageBody": "hi"}]})),
        ("ReceiveMessage", json!({})),
        ("DeleteMessage", json!({"ReceiptHandle": "x"})),
        ("DeleteMessageBatch", json!({"Entries": [{"Id": "a", "ReceiptHandle": "x"}]})),
        ("ChangeMessageVisibility", json!({"ReceiptHandle": "x", "VisibilityTimeout": 1})),
        ("ChangeMessageVisibilityBatch", json!({"Entries": [{"Id": "a", "ReceiptHandle": "x"}]})),
        ("ListDeadLetterSourceQueues", json!({})),
        ("TagQueue", json!({"Tags": {"a": "b"}})),
        ("UntagQueue", json!({"TagKeys": ["a"]})),
        ("ListQueueTags", json!({})),
        ("AddPermission", json!({"Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["*"]})),
        ("RemovePermission", json!({"Label": "l"})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_on_a_queue_must_name_one_that_is_there() {
    let node = Node::start().await;
    let no_url = missing("The request must contain the parameter QueueUrl.");
    for (action, request) in of_queues() {
        let with = |url: &str| merged(request.clone(), json!({"QueueUrl": url}));
        node.refused(action, request.clone(), no_url).await;
        node.refused(action, with(""), no_url).await;
        for url in ["nothing", "http://node:9000/000000000000/nothing", "/000000000000/a b", "http://x/1/2"] {
            node.refused(action, with(url), no_queue()).await;
        }
        let nowhere = "The address http://node:9000/ is not valid for this endpoint.";
        node.refused(action, with("http://node:9000/"), ("InvalidAddress", "InvalidAddress", 404, nowhere)).await;
        let answer = node.ask(action, merged(request.clone(), json!({"QueueUrl": 5}))).await;
        assert_eq!((answer.status, answer.body["__type"].as_str()), (400, Some(SERIALIZATION)), "{action}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_another_type_are_refused_whatever_the_action() {
    let node = Node::start().await;
    let url = node.queue("typed", json!({})).await;
    for (action, member, wrong) in [
        ("CreateQueue", "QueueName", json!(5)),
        ("CreateQueue", "Attributes", json!([])),
        ("CreateQueue", "Attributes", json!({"DelaySeconds": 5})),
        ("CreateQueue", "tags", json!({"a": {}})),
        ("GetQueueUrl", "QueueName", json!({})),
        ("GetQueueUrl", "QueueOwnerAWSAccountId", json!(1)),
        ("ListQueues", "MaxResults", json!("5")),
        ("ListQueues", "QueueNamePrefix", json!([])),
        ("ListQueues", "NextToken", json!(true)),
        ("GetQueueAttributes", "AttributeNames", json!("All")),
        ("SetQueueAttributes", "Attributes", json!("x")),
        ("SendMessage", "MessageBody", json!(5)),
        ("SendMessage", "DelaySeconds", json!("5")),
        ("SendMessage", "DelaySeconds", json!(1.5)),
        ("SendMessage", "MessageAttributes", json!([])),
        ("SendMessage", "MessageAttributes", json!({"a": "b"})),
        ("SendMessage", "MessageSystemAttributes", json!(5)),
        ("SendMessage", "MessageGroupId", json!(5)),
        ("SendMessage", "MessageDeduplicationId", json!([])),
        ("SendMessageBatch", "Entries", json!({})),
        ("SendMessageBatch", "Entries", json!(["a"])),
        ("ReceiveMessage", "MaxNumberOfMessages", json!("1")),
        ("ReceiveMessage", "VisibilityTimeout", json!({})),
        ("ReceiveMessage", "WaitTimeSeconds", json!("x")),
        ("ReceiveMessage", "MessageAttributeNames", json!("All")),
        ("ReceiveMessage", "MessageSystemAttributeNames", json!([1])),
        ("ReceiveMessage", "AttributeNames", json!({})),
        ("ReceiveMessage", "ReceiveRequestAttemptId", json!(1)),
        ("DeleteMessage", "ReceiptHandle", json!(1)),
        ("DeleteMessageBatch", "Entries", json!("x")),
        ("ChangeMessageVisibility", "VisibilityTimeout", json!("1")),
        ("ChangeMessageVisibilityBatch", "Entries", json!([{"Id": 5}])),
        ("ListDeadLetterSourceQueues", "MaxResults", json!("1")),
        ("StartMessageMoveTask", "SourceArn", json!(1)),
        ("StartMessageMoveTask", "MaxNumberOfMessagesPerSecond", json!("1")),
        ("ListMessageMoveTasks", "MaxResults", json!([])),
        ("CancelMessageMoveTask", "TaskHandle", json!(1)),
        ("TagQueue", "Tags", json!([])),
        ("UntagQueue", "TagKeys", json!({})),
        ("AddPermission", "Actions", json!("x")),
        ("AddPermission", "AWSAccountIds", json!(5)),
        ("RemovePermission", "Label", json!(5)),
    ] {
        let mut request = json!({"QueueUrl": url});
        request[member] = wrong.clone();
        let answer = node.ask(action, request).await;
        let told = (answer.status, answer.body["__type"].as_str());
        assert_eq!(told, (400, Some(SERIALIZATION)), "{action} {member} {wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_found_by_its_url_its_path_or_its_name() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    assert_eq!(url, "http://node:9000/000000000000/jobs");
    for url in [url.as_str(), "jobs", "/000000000000/jobs", "https://elsewhere/000000000000/jobs"] {
        node.send(url, "hi").await;
    }
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessages").await.as_deref(), Some("4"));
    node.refused("PurgeQueue", json!({"QueueUrl": "http://node/111111111111/jobs"}), no_queue()).await;
}
