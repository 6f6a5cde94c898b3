//! Making, finding, listing, emptying and removing queues.

use std::time::Duration;

use ron_api::SqsOptions;
use serde_json::{Value, json};
use svc_mailbox::LiveOptions;

use crate::harness::{ARN, Node, invalid, missing, no_queue, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_queues_are_held_to_the_rules() {
    let node = Node::start().await;
    let longest = "q".repeat(80);
    for name in ["a", "A-b_9", &longest] {
        node.queue(name, json!({})).await;
    }
    for name in ["a.fifo", &format!("{}.fifo", "q".repeat(75))] {
        node.queue(name, json!({})).await;
    }
    let standard = invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length");
    let fifo = invalid(
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with \
         .fifo suffix and be 1 to 80 in length.",
    );
    let (over, too_long) = ("q".repeat(81), format!("{}.fifo", "q".repeat(76)));
    for name in [&over, &"q".repeat(300), "a b", "a.b", "a.fifo", "ä", "a/b"] {
        node.refused("CreateQueue", json!({"QueueName": name}), standard).await;
    }
    for name in ["a", ".fifo", "a.fifo.fifo", "a b.fifo", &too_long] {
        let request = json!({"QueueName": name, "Attributes": {"FifoQueue": "true"}});
        node.refused("CreateQueue", request, fifo).await;
    }
    node.refused("CreateQueue", json!({"QueueName": ""}), standard).await;
    for request in [json!({}), json!({"QueueName": null})] {
        node.refused("CreateQueue", request, missing("The request must contain the parameter QueueName.")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_made_once_and_found_again_with_the_same_attributes() {
    let node = Node::start().await;
    let make = |attributes: Value| json!({"QueueName": "jobs", "Attributes": attributes});
    let url = node.queue("jobs", json!({"DelaySeconds": "5", "VisibilityTimeout": "60"})).await;
    for same in [json!({}), json!({"DelaySeconds": "5"}), json!({"MaximumMessageSize": "1048576", "DelaySeconds": "5"})]
    {
        assert_eq!(node.ok("CreateQueue", make(same)).await["QueueUrl"], json!(url));
    }
    for (other, attribute) in [
        (json!({"DelaySeconds": "6"}), "DelaySeconds"),
        (json!({"VisibilityTimeout": "30"}), "VisibilityTimeout"),
        (json!({"ReceiveMessageWaitTimeSeconds": "1"}), "ReceiveMessageWaitTimeSeconds"),
    ] {
        let message =
            format!("A queue already exists with the same name and a different value for attribute {attribute}");
        node.refused("CreateQueue", make(other), ("QueueNameExists", "QueueAlreadyExists", 400, &message)).await;
    }
    for (attributes, refusal) in [
        (json!({"FifoQueue": "false"}), ("InvalidAttributeName", "Unknown Attribute FifoQueue.")),
        (json!({"QueueArn": "x"}), ("InvalidAttributeName", "Unknown Attribute QueueArn.")),
        (json!({"Nope": "x"}), ("InvalidAttributeName", "Unknown Attribute Nope.")),
        (json!({"FifoQueue": "x"}), ("InvalidAttributeValue", "Invalid value for the parameter FifoQueue.")),
        (json!({"DelaySeconds": "901"}), ("InvalidAttributeValue", "Invalid value for the parameter DelaySeconds.")),
    ] {
        let (shape, message) = refusal;
        let request = json!({"QueueName": "other", "Attributes": attributes});
        node.refused("CreateQueue", request, (shape, shape, 400, message)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_of_a_queue_is_found_by_its_name() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    for request in
        [json!({"QueueName": "jobs"}), json!({"QueueName": "jobs", "QueueOwnerAWSAccountId": "000000000000"})]
    {
        assert_eq!(node.ok("GetQueueUrl", request).await["QueueUrl"], json!(url));
    }
    node.all_refused(vec![
        ("GetQueueUrl", json!({"QueueName": "none"}), no_queue()),
        ("GetQueueUrl", json!({"QueueName": "a b"}), no_queue()),
        ("GetQueueUrl", json!({"QueueName": "x".repeat(300)}), no_queue()),
        ("GetQueueUrl", json!({"QueueName": "jobs", "QueueOwnerAWSAccountId": "111111111111"}), no_queue()),
        ("GetQueueUrl", json!({}), missing("The request must contain the parameter QueueName.")),
        (
            "GetQueueUrl",
            json!({"QueueName": ""}),
            invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"),
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_listed_in_pages() {
    let node = Node::start().await;
    assert_eq!(node.ok("ListQueues", json!({})).await, json!({}), "an empty list is left out");
    for name in ["b1", "a1", "b2", "b3", "c1"] {
        node.queue(name, json!({})).await;
    }
    let url = |name: &str| format!("http://node:9000/000000000000/{name}");
    let all = node.ok("ListQueues", json!({})).await;
    assert_eq!(all, json!({"QueueUrls": [url("a1"), url("b1"), url("b2"), url("b3"), url("c1")]}));
    let first = node.ok("ListQueues", json!({"QueueNamePrefix": "b", "MaxResults": 2})).await;
    assert_eq!(first["QueueUrls"], json!([url("b1"), url("b2")]));
    let token = first["NextToken"].as_str().expect("there is more");
    let last = node.ok("ListQueues", json!({"QueueNamePrefix": "b", "MaxResults": 2, "NextToken": token})).await;
    assert_eq!(last, json!({"QueueUrls": [url("b3")]}));
    let exact = node.ok("ListQueues", json!({"QueueNamePrefix": "b", "MaxResults": 3})).await;
    assert_eq!(exact["NextToken"], Value::Null, "there is no page after the last");
    assert_eq!(node.ok("ListQueues", json!({"QueueNamePrefix": "zz", "MaxResults": 1000})).await, json!({}));
    for wrong in [-1, 0, 1001] {
        let message = format!(
            "Value {wrong} for parameter MaxResults is invalid. Reason: Must be between 1 and 1000, if provided."
        );
        node.refused("ListQueues", json!({"MaxResults": wrong}), invalid(&message)).await;
    }
    let stale = json!({"MaxResults": 1, "NextToken": "garbage!"});
    node.refused("ListQueues", stale, invalid("Invalid or expired next token.")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_queues_than_a_page_are_all_seen_once() {
    let node = Node::start().await;
    for index in 0..25 {
        node.queue(&format!("q{index:02}"), json!({})).await;
    }
    let (mut seen, mut token) = (Vec::new(), None);
    loop {
        let mut request = json!({"MaxResults": 4});
        if let Some(token) = token {
            request["NextToken"] = token;
        }
        let page = node.ok("ListQueues", request).await;
        seen.extend(page["QueueUrls"].as_array().expect("a page").clone());
        match page.get("NextToken") {
            Some(next) => token = Some(next.clone()),
            None => break,
        }
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.windows(2).all(|pair| pair[0].as_str() < pair[1].as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_queue_is_gone_and_its_name_free() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    node.send(&url, "hi").await;
    assert_eq!(node.ok("DeleteQueue", json!({"QueueUrl": url})).await, json!({}));
    for (action, request) in [
        ("DeleteQueue", json!({"QueueUrl": url})),
        ("GetQueueUrl", json!({"QueueName": "jobs"})),
        ("SendMessage", json!({"QueueUrl": url, "MessageBody": "hi"})),
        ("ReceiveMessage", json!({"QueueUrl": url})),
    ] {
        node.refused(action, request, no_queue()).await;
    }
    node.queue("jobs", json!({"DelaySeconds": "5"})).await;
    assert_eq!(node.bodies(&url).await, [""; 0], "its messages went with it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_name_rests_where_it_is_told_to() {
    let deleted_name_cooldown = Duration::from_secs(60);
    let node = Node::with(SqsOptions { deleted_name_cooldown, ..open() }, LiveOptions::default()).await;
    let url = node.queue("jobs", json!({})).await;
    node.ok("DeleteQueue", json!({"QueueUrl": url})).await;
    let message = "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
    let code = "AWS.SimpleQueueService.QueueDeletedRecently";
    node.refused("CreateQueue", json!({"QueueName": "jobs"}), ("QueueDeletedRecently", code, 400, message)).await;
    node.queue("others", json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_purged_once_a_minute() {
    let node = Node::start().await;
    let (url, other) = (node.queue("jobs", json!({})).await, node.queue("others", json!({})).await);
    for body in ["a", "b", "c"] {
        node.send(&url, body).await;
    }
    node.receive(&url, json!({})).await;
    node.ok("PurgeQueue", json!({"QueueUrl": url})).await;
    for name in ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"] {
        assert_eq!(node.attribute(&url, name).await.as_deref(), Some("0"), "{name}");
    }
    let message = "Only one PurgeQueue operation on jobs is allowed every 60 seconds.";
    let code = "AWS.SimpleQueueService.PurgeQueueInProgress";
    node.refused("PurgeQueue", json!({"QueueUrl": url}), ("PurgeQueueInProgress", code, 403, message)).await;
    node.ok("PurgeQueue", json!({"QueueUrl": other})).await;
    node.ok("DeleteQueue", json!({"QueueUrl": url})).await;
    node.queue("jobs", json!({})).await;
    node.ok("PurgeQueue", json!({"QueueUrl": url})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_make_one_queue() {
    let node = Node::start().await;
    let make = || node.ok("CreateQueue", json!({"QueueName": "jobs", "Attributes": {"DelaySeconds": "3"}}));
    let made = futures_util::future::join_all((0..8).map(|_| make())).await;
    assert!(made.iter().all(|answer| answer["QueueUrl"] == "http://node:9000/000000000000/jobs"), "{made:?}");
    assert_eq!(node.attribute("jobs", "QueueArn").await, Some(format!("{ARN}jobs")));
}
