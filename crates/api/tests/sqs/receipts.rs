//! Deleting, hiding for longer or shorter, and how many may be hidden at once.

use serde_json::{Value, json};
use svc_mailbox::LiveOptions;
use svc_mailbox::types::TopicSettings;

use crate::harness::{Node, invalid, missing, open, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_deletes_its_message_and_says_so_as_often_as_it_is_asked() {
    let node = Node::start().await;
    let (url, other) = (node.queue("jobs", json!({})).await, node.queue("others", json!({})).await);
    node.send(&url, "hi").await;
    let handle = text(&node.one(&url, json!({})).await["ReceiptHandle"]);
    let delete = |url: &str, handle: &str| json!({"QueueUrl": url, "ReceiptHandle": handle});
    let invalid_receipt =
        |handle: &str| format!("The input receipt handle \"{handle}\" is not a valid receipt handle.");
    for (url, handle) in [(&url, "garbage"), (&other, handle.as_str()), (&url, &handle[1..])] {
        let message = invalid_receipt(handle);
        let refusal = ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400, message.as_str());
        node.refused("DeleteMessage", delete(url, handle), refusal).await;
        let change = json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 1});
        node.refused("ChangeMessageVisibility", change, refusal).await;
    }
    let nothing = missing("The request must contain the parameter ReceiptHandle.");
    node.refused("DeleteMessage", json!({"QueueUrl": url}), nothing).await;
    node.refused("DeleteMessage", delete(&url, ""), nothing).await;
    for _ in 0..2 {
        assert_eq!(node.ok("DeleteMessage", delete(&url, &handle)).await, json!({}));
    }
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessagesNotVisible").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_receipt_deletes_where_order_is_not_kept() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    node.send(&url, "late").await;
    let late = node.one(&url, json!({"VisibilityTimeout": 0})).await;
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": late["ReceiptHandle"]})).await;
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessages").await.as_deref(), Some("0"), "nobody else had it");

    node.send(&url, "twice").await;
    let first = node.one(&url, json!({"VisibilityTimeout": 0})).await;
    let second = node.one(&url, json!({})).await;
    assert_ne!(first["ReceiptHandle"], second["ReceiptHandle"], "each receive has a receipt of its own");
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]})).await;
    assert_eq!(node.counts(&url).await, (0, 0), "an older receipt is as good as the newest");

    node.send(&url, "batch").await;
    let first = node.one(&url, json!({"VisibilityTimeout": 0})).await;
    node.one(&url, json!({})).await;
    let entry = json!({"Id": "a", "ReceiptHandle": first["ReceiptHandle"]});
    let answer = node.ok("DeleteMessageBatch", json!({"QueueUrl": url, "Entries": [entry]})).await;
    assert_eq!(answer["Successful"], json!([{"Id": "a"}]));
    assert_eq!(node.counts(&url).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_receipt_hides_and_shows_a_message_where_order_is_not_kept() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    node.send(&url, "hi").await;
    let first = node.one(&url, json!({"VisibilityTimeout": 0})).await["ReceiptHandle"].clone();
    let change = |seconds: u64| json!({"QueueUrl": url, "ReceiptHandle": first, "VisibilityTimeout": seconds});
    node.ok("ChangeMessageVisibility", change(600)).await;
    assert!(node.bodies(&url).await.is_empty(), "its time was over, and it is hidden again");
    node.ok("ChangeMessageVisibility", change(0)).await;
    let second = node.one(&url, json!({"VisibilityTimeout": 600})).await["ReceiptHandle"].clone();
    node.ok("ChangeMessageVisibility", change(0)).await;
    assert_eq!(node.counts(&url).await, (1, 0), "somebody else has it, and it is shown all the same");
    let entry = json!({"Id": "a", "ReceiptHandle": first, "VisibilityTimeout": 600});
    let batch = json!({"QueueUrl": url, "Entries": [entry]});
    assert_eq!(node.ok("ChangeMessageVisibilityBatch", batch).await["Successful"], json!([{"Id": "a"}]));
    assert_eq!(node.counts(&url).await, (0, 1));
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": second})).await;
    assert_eq!(node.counts(&url).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visibility_is_changed_while_a_message_is_in_flight() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    node.send(&url, "hi").await;
    let handle = text(&node.one(&url, json!({})).await["ReceiptHandle"]);
    let change = |seconds: Value| json!({"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": seconds});
    for wrong in [-1, 43_201] {
        let message =
            format!("Value {wrong} for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200.");
        node.refused("ChangeMessageVisibility", change(json!(wrong)), invalid(&message)).await;
    }
    node.all_refused(vec![
        (
            "ChangeMessageVisibility",
            json!({"QueueUrl": url, "ReceiptHandle": handle}),
            missing("The request must contain the parameter VisibilityTimeout."),
        ),
        (
            "ChangeMessageVisibility",
            json!({"QueueUrl": url, "VisibilityTimeout": 1}),
            missing("The request must contain the parameter ReceiptHandle."),
        ),
    ])
    .await;
    node.ok("ChangeMessageVisibility", change(json!(600))).await;
    assert!(node.bodies(&url).await.is_empty());
    assert_eq!(node.ok("ChangeMessageVisibility", change(json!(0))).await, json!({}));
    assert_eq!(node.counts(&url).await, (1, 0));
    let again = text(&node.one(&url, json!({})).await["ReceiptHandle"]);
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": again})).await;
    let message = format!(
        "Value {again} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for \
         visibility timeout change."
    );
    let request = json!({"QueueUrl": url, "ReceiptHandle": again, "VisibilityTimeout": 5});
    node.refused("ChangeMessageVisibility", request, invalid(&message)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_hours_are_the_limit_of_all_visibility_together() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    node.send(&url, "hi").await;
    let message = node.one(&url, json!({"VisibilityTimeout": 1})).await;
    // It is seen again after a second, so the first receipt is a second old by then.
    node.one(&url, json!({})).await;
    let request = json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 43_200});
    let refusal = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the \
                   message is beyond the limit [43200 seconds]";
    node.refused("ChangeMessageVisibility", request, invalid(refusal)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_in_flight_are_limited() {
    let defaults = TopicSettings { inflight_max: 3, ..TopicSettings::default() };
    let node = Node::with(open(), LiveOptions { defaults, ..LiveOptions::default() }).await;
    let (url, line) = (node.queue("jobs", json!({})).await, node.queue("jobs.fifo", json!({})).await);
    for index in 0..5 {
        node.send(&url, "hi").await;
        node.send_in(&line, &index.to_string(), &index.to_string(), "hi").await;
    }
    let ten = json!({"MaxNumberOfMessages": 10});
    let messages = node.receive(&url, ten.clone()).await;
    assert_eq!(messages.len(), 3);
    let over = ("OverLimit", "OverLimit", 403, "Too many messages are in flight: this queue allows 3.");
    node.refused("ReceiveMessage", json!({"QueueUrl": url}), over).await;
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": messages[0]["ReceiptHandle"]})).await;
    assert_eq!(node.receive(&url, ten.clone()).await.len(), 1);
    assert_eq!(node.receive(&line, ten.clone()).await.len(), 3);
    assert!(node.receive(&line, ten).await.is_empty(), "no error where order is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_waits_at_the_limit_gets_what_becomes_free() {
    let defaults = TopicSettings { inflight_max: 1, ..TopicSettings::default() };
    let node = Node::with(open(), LiveOptions { defaults, ..LiveOptions::default() }).await;
    let url = node.queue("jobs", json!({})).await;
    for body in ["first", "second"] {
        node.send(&url, body).await;
    }
    let first = node.one(&url, json!({})).await;
    assert!(node.receive(&url, json!({"WaitTimeSeconds": 1})).await.is_empty(), "whoever waits is told of no limit");
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]})).await;
    assert_eq!(node.one(&url, json!({})).await["Body"], "second");
}
