//! Batches of up to ten: what refuses all of them, and what refuses one.

use serde_json::{Value, json};

use crate::harness::{Node, Refusal, missing, text};

const ACTIONS: [(&str, &str); 3] = [
    ("SendMessageBatch", "SendMessageBatchRequestEntry"),
    ("DeleteMessageBatch", "DeleteMessageBatchRequestEntry"),
    ("ChangeMessageVisibilityBatch", "ChangeMessageVisibilityBatchRequestEntry"),
];

fn entry(id: &str) -> Value {
    json!({"Id": id, "MessageBody": "hi", "ReceiptHandle": "x", "VisibilityTimeout": 1})
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|done| done["Id"].as_str().expect("an id")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_refused_as_a_whole() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let batch = |entries: Vec<Value>| json!({"QueueUrl": url, "Entries": entries});
    let many = |count: usize| batch((0..count).map(|index| entry(&index.to_string())).collect());
    let long = "x".repeat(81);
    let wrong_id: Refusal<'_> = (
        "InvalidBatchEntryId",
        "AWS.SimpleQueueService.InvalidBatchEntryId",
        400,
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 \
         letters long.",
    );
    let too_many =
        |message| ("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400, message);
    for (action, name) in ACTIONS {
        let message = format!("There should be at least one {name} in the request.");
        let empty = ("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", 400, message.as_str());
        let twice =
            ("BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400, "Id a repeated.");
        node.all_refused(vec![
            (action, json!({"QueueUrl": url}), empty),
            (action, batch(vec![]), empty),
            (action, many(11), too_many("Maximum number of entries per request are 10. You have sent 11.")),
            (action, many(20), too_many("Maximum number of entries per request are 10. You have sent 20.")),
            (action, batch(vec![entry("a"), entry("b"), entry("a")]), twice),
            (action, batch(vec![entry("")]), wrong_id),
            (action, batch(vec![entry("a b")]), wrong_id),
            (action, batch(vec![entry("a.b")]), wrong_id),
            (action, batch(vec![entry(&long)]), wrong_id),
            (action, batch(vec![json!({"MessageBody": "hi"})]), missing("The request must contain the parameter Id.")),
        ])
        .await;
    }
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessages").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_of_a_batch_has_its_own_outcome() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({"MaximumMessageSize": "1024"})).await;
    let longest = "x".repeat(80);
    let foo = json!({"DataType": "String", "StringValue": "Bar"});
    let answer = node
        .ok(
            "SendMessageBatch",
            json!({"QueueUrl": url, "Entries": [
                {"Id": longest, "MessageBody": "msg", "MessageAttributes": {"Foo": foo}},
                {"Id": "large", "MessageBody": "x".repeat(1025)},
                {"Id": "control", "MessageBody": "\u{1}"},
                {"Id": "empty"},
                {"Id": "late", "MessageBody": "hi", "DelaySeconds": 901},
                {"Id": "second", "MessageBody": "two", "DelaySeconds": 0},
            ]}),
        )
        .await;
    assert_eq!(ids(&answer["Successful"]), [longest.as_str(), "second"]);
    let first = &answer["Successful"][0];
    assert_eq!(first["MD5OfMessageBody"], "6e2baaf3b97dbeef01c0043275f9a0e7");
    assert_eq!(first["MD5OfMessageAttributes"], "ae7155c6026991b6d54b11589678bf9c");
    assert_eq!(first.get("SequenceNumber"), None);
    let failed = answer["Failed"].as_array().expect("some failed");
    let told: Vec<_> =
        failed.iter().map(|one| (text(&one["Id"]), text(&one["Code"]), one["SenderFault"] == true)).collect();
    let expected = [
        ("large", "InvalidParameterValue"),
        ("control", "InvalidMessageContents"),
        ("empty", "MissingParameter"),
        ("late", "InvalidParameterValue"),
    ];
    assert_eq!(told, expected.map(|(id, code)| (id.to_owned(), code.to_owned(), true)));
    assert_eq!(
        failed[0]["Message"],
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    );
    let mut bodies = node.bodies(&url).await;
    bodies.sort();
    assert_eq!(bodies, ["msg", "two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_batch_have_a_mebibyte_together() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let of = |last: usize| {
        let sizes = (0..10).map(|index| if index == 9 { last } else { 100_000 }).enumerate();
        let entries: Vec<Value> =
            sizes.map(|(index, size)| json!({"Id": index.to_string(), "MessageBody": "x".repeat(size)})).collect();
        json!({"QueueUrl": url, "Entries": entries})
    };
    let answer = node.ok("SendMessageBatch", of(148_576)).await;
    assert_eq!((ids(&answer["Successful"]).len(), answer.get("Failed")), (10, None), "an empty list is left out");
    let message = "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.";
    let code = "AWS.SimpleQueueService.BatchRequestTooLong";
    node.refused("SendMessageBatch", of(148_577), ("BatchRequestTooLong", code, 400, message)).await;
    assert_eq!(node.receive(&url, json!({"MaxNumberOfMessages": 10})).await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_receipt_of_a_batch_has_its_own_outcome() {
    let node = Node::start().await;
    let (url, other) = (node.queue("jobs", json!({})).await, node.queue("others", json!({})).await);
    for body in ["a", "b", "c"] {
        node.send(&url, body).await;
    }
    node.send(&other, "x").await;
    let handles: Vec<String> = node
        .receive(&url, json!({"MaxNumberOfMessages": 10}))
        .await
        .iter()
        .map(|message| text(&message["ReceiptHandle"]))
        .collect();
    let foreign = text(&node.one(&other, json!({})).await["ReceiptHandle"]);
    fn change(id: &str, handle: &str, seconds: Value) -> Value {
        json!({"Id": id, "ReceiptHandle": handle, "VisibilityTimeout": seconds})
    }
    let changed = node
        .ok(
            "ChangeMessageVisibilityBatch",
            json!({"QueueUrl": url, "Entries": [
                change("long", &handles[0], json!(600)),
                change("none", &handles[1], json!(0)),
                change("also", &handles[2], json!(600)),
                change("over", &handles[0], json!(43_201)),
                change("unsaid", &handles[0], Value::Null),
                change("foreign", &foreign, json!(1)),
                change("garbage", "garbage", json!(1)),
            ]}),
        )
        .await;
    assert_eq!(ids(&changed["Successful"]), ["long", "none", "also"]);
    let codes = |answer: &Value| -> Vec<String> {
        answer["Failed"].as_array().expect("some failed").iter().map(|one| text(&one["Code"])).collect()
    };
    assert_eq!(ids(&changed["Failed"]), ["over", "unsaid", "foreign", "garbage"]);
    let expected = ["InvalidParameterValue", "MissingParameter", "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"];
    assert_eq!(codes(&changed), expected);
    assert_eq!(node.bodies(&url).await.len(), 1, "one was given back at once");

    let delete = |id: &str, handle: &str| json!({"Id": id, "ReceiptHandle": handle});
    let deleted = node
        .ok(
            "DeleteMessageBatch",
            json!({"QueueUrl": url, "Entries": [
                delete("a", &handles[0]),
                delete("again", &handles[0]),
                delete("b", &handles[2]),
                delete("foreign", &foreign),
                delete("garbage", "garbage"),
                {"Id": "none"},
            ]}),
        )
        .await;
    assert_eq!(ids(&deleted["Successful"]), ["a", "again", "b"]);
    assert_eq!(codes(&deleted), ["ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", "MissingParameter"]);
    assert_eq!(deleted["Failed"][1]["Message"], "The input receipt handle \"garbage\" is not a valid receipt handle.");
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessagesNotVisible").await.as_deref(), Some("1"));
}
