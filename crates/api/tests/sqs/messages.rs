//! Sending and receiving single messages.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Node, Refusal, invalid, merged, missing, text, within};

const ANY_MD5: &str = "49f68a5c8493ec2c0bf489821c21fc3b";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_comes_as_it_was_sent() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let attributes = json!({
        "Foo": {"DataType": "String", "StringValue": "Bar"},
        "count": {"DataType": "Number.int", "StringValue": "-42"},
        "bytes": {"DataType": "Binary", "BinaryValue": "AAEC/w=="},
    });
    let trace = json!({"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}});
    let sent = node
        .ok(
            "SendMessage",
            json!({
                "QueueUrl": url,
                "MessageBody": "msg",
                "MessageGroupId": "tenant",
                "MessageAttributes": attributes,
                "MessageSystemAttributes": trace,
            }),
        )
        .await;
    assert_eq!(sent["MD5OfMessageBody"], "6e2baaf3b97dbeef01c0043275f9a0e7");
    assert_eq!(sent["SequenceNumber"], Value::Null, "only where order is kept");
    assert!(sent["MD5OfMessageSystemAttributes"].is_string());
    let asked = json!({"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]});
    let message = node.one(&url, asked).await;
    assert_eq!(message["Body"], "msg");
    assert_eq!(message["MessageId"], sent["MessageId"]);
    let id = text(&sent["MessageId"]);
    assert_eq!(uuid::Uuid::try_parse(&id).expect("a UUID").to_string(), id);
    assert_eq!(message["MD5OfBody"], sent["MD5OfMessageBody"]);
    assert_eq!(message["MessageAttributes"], attributes);
    assert_eq!(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
    let known = message["Attributes"].as_object().expect("asked for");
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let expected = [
        "AWSTraceHeader",
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
    ];
    assert_eq!(names, expected);
    assert_eq!((&known["AWSTraceHeader"], &known["ApproximateReceiveCount"]), (&json!("Root=1"), &json!("1")));
    assert_eq!(known["MessageGroupId"], "tenant");
    for name in ["SentTimestamp", "ApproximateFirstReceiveTimestamp"] {
        let millis: u64 = known[name].as_str().and_then(|text| text.parse().ok()).expect("milliseconds");
        assert!(ron_kernel::clock::unix_millis().abs_diff(millis) < 60_000, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standard_queue_keeps_a_deduplication_id_and_deduplicates_nothing() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let message = json!({"QueueUrl": url, "MessageBody": "hi", "MessageDeduplicationId": "d"});
    let first = node.ok("SendMessage", message.clone()).await;
    let second = node.ok("SendMessage", message).await;
    assert_ne!(first["MessageId"], second["MessageId"]);
    let entries = json!([{"Id": "a", "MessageBody": "hi", "MessageDeduplicationId": "d"}]);
    node.ok("SendMessageBatch", json!({"QueueUrl": url, "Entries": entries})).await;
    let asked = json!({"MaxNumberOfMessages": 10, "AttributeNames": ["MessageDeduplicationId"]});
    let messages = node.receive(&url, merged(asked, json!({"MessageAttributeNames": ["All"]}))).await;
    assert_eq!(messages.len(), 3);
    for message in messages {
        assert_eq!(message["Attributes"], json!({"MessageDeduplicationId": "d"}));
        assert_eq!(message.get("MessageAttributes"), None, "it is no attribute of the message");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_shown_that_was_not_asked_for() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({"VisibilityTimeout": "0"})).await;
    let attribute = json!({"DataType": "String", "StringValue": "Bar"});
    let attributes = json!({"Foo": attribute, "Foo.x": attribute, "Other": attribute});
    node.ok("SendMessage", json!({"QueueUrl": url, "MessageBody": "hi", "MessageAttributes": attributes})).await;
    let message = node.one(&url, json!({})).await;
    let members: Vec<&str> = message.as_object().expect("a message").keys().map(String::as_str).collect();
    assert_eq!(members, ["Body", "MD5OfBody", "MessageId", "ReceiptHandle"]);
    assert_eq!(message["MD5OfBody"], ANY_MD5);
    for (asked, expected) in [
        (json!({"MessageAttributeNames": ["Foo"]}), vec!["Foo"]),
        (json!({"MessageAttributeNames": ["Foo.*"]}), vec!["Foo", "Foo.x"]),
        (json!({"MessageAttributeNames": [".*"]}), vec!["Foo", "Foo.x", "Other"]),
        (json!({"MessageAttributeNames": ["Nope"]}), vec![]),
    ] {
        let message = node.one(&url, asked.clone()).await;
        let shown = message["MessageAttributes"].as_object().into_iter().flatten();
        assert_eq!(shown.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expected, "{asked}");
        if expected == ["Foo"] {
            assert_eq!(message["MD5OfMessageAttributes"], "ae7155c6026991b6d54b11589678bf9c", "of what is shown alone");
        }
    }
    let message = node.one(&url, json!({"AttributeNames": ["ApproximateReceiveCount"]})).await;
    assert_eq!(message["Attributes"], json!({"ApproximateReceiveCount": "6"}));
    for member in ["AttributeNames", "MessageSystemAttributeNames"] {
        let refusal = ("InvalidAttributeName", "InvalidAttributeName", 400, "Unknown Attribute Nope.");
        node.refused("ReceiveMessage", json!({"QueueUrl": url, member: ["Nope"]}), refusal).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_message_is_said() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({"MaximumMessageSize": "1024"})).await;
    let send = |more: Value| merged(json!({"QueueUrl": url, "MessageBody": "hi"}), more);
    let contents: Refusal<'_> = (
        "InvalidMessageContents",
        "InvalidMessageContents",
        400,
        "Invalid binary character '#x8' was found in the message body, the set of allowed characters is #x9 | #xA | \
         #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
    );
    node.all_refused(vec![
        ("SendMessage", json!({"QueueUrl": url}), missing("The request must contain the parameter MessageBody.")),
        (
            "SendMessage",
            send(json!({"MessageBody": ""})),
            missing("The request must contain the parameter MessageBody."),
        ),
        ("SendMessage", send(json!({"MessageBody": "a\u{8}b"})), contents),
        (
            "SendMessage",
            send(json!({"MessageBody": "x".repeat(1025)})),
            invalid("One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."),
        ),
        (
            "SendMessage",
            send(json!({"DelaySeconds": 901})),
            invalid("Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."),
        ),
        (
            "SendMessage",
            send(json!({"DelaySeconds": -1})),
            invalid("Value -1 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."),
        ),
        (
            "SendMessage",
            send(json!({"MessageDeduplicationId": "a b"})),
            invalid(
                "Value a b for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only \
                 include alphanumeric and punctuation characters. 1 to 128 in length.",
            ),
        ),
        (
            "SendMessage",
            send(json!({"MessageGroupId": ""})),
            invalid(
                "Value  for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric \
                 and punctuation characters. 1 to 128 in length.",
            ),
        ),
    ])
    .await;
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessages").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_the_attributes_of_a_message_is_said() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let send = |more: Value| merged(json!({"QueueUrl": url, "MessageBody": "hi"}), more);
    let attribute = |value: Value| send(json!({"MessageAttributes": {"n": value}}));
    let named = |name: &str| send(json!({"MessageAttributes": {name: {"DataType": "String", "StringValue": "v"}}}));
    let eleven: serde_json::Map<String, Value> =
        (0..11).map(|index| (format!("n{index}"), json!({"DataType": "String", "StringValue": "v"}))).collect();
    let reserved = "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are \
                    reserved for internal use. Additionally, they cannot start or end with '.', or have periods in \
                    succession.";
    node.all_refused(vec![
        (
            "SendMessage",
            send(json!({"MessageAttributes": eleven})),
            invalid("Number of message attributes [11] exceeds the allowed maximum [10]."),
        ),
        ("SendMessage", named("AWS.x"), invalid(reserved)),
        ("SendMessage", named(".x"), invalid(reserved)),
        (
            "SendMessage",
            named("a b"),
            invalid(
                "Message (user) attributes name can only contain upper and lower score characters, digits, periods, \
                 hyphens and underscores. ",
            ),
        ),
        (
            "SendMessage",
            named(&"n".repeat(300)),
            invalid("Message (user) attribute names must be between 1 and 256 characters."),
        ),
        (
            "SendMessage",
            attribute(json!({"DataType": "String"})),
            invalid("Message (user) attribute 'n' must contain a non-empty value of type 'String'."),
        ),
        (
            "SendMessage",
            attribute(json!({"StringValue": "v"})),
            invalid("The message attribute 'n' must contain a non-empty attribute type."),
        ),
        (
            "SendMessage",
            attribute(json!({"DataType": "Text", "StringValue": "v"})),
            invalid(
                "The type of message (user) attribute 'n' is invalid. You must use only the following supported type \
                 prefixes: Binary, Number, String.",
            ),
        ),
        (
            "SendMessage",
            attribute(json!({"DataType": "String", "StringValue": "a\u{8}b"})),
            invalid(
                "Invalid binary character '#x8' was found in the value of message (user) attribute 'n', the set of \
                 allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            ),
        ),
        (
            "SendMessage",
            attribute(json!({"DataType": "Number", "StringValue": "v"})),
            invalid("Can't cast the value of message (user) attribute 'n' to a number."),
        ),
        (
            "SendMessage",
            send(json!({"MessageSystemAttributes": {"Nope": {"DataType": "String", "StringValue": "v"}}})),
            invalid("Message system attribute name 'Nope' is invalid."),
        ),
    ])
    .await;
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessages").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_mebibyte_is_taken_and_not_a_byte_more() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let body = "x".repeat(1_048_576);
    node.send(&url, &body).await;
    let message = node.one(&url, json!({})).await;
    assert_eq!(text(&message["Body"]).len(), body.len());
    let over = json!({"QueueUrl": url, "MessageBody": format!("{body}x")});
    let message = "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.";
    node.refused("SendMessage", over, invalid(message)).await;
    let value = json!({"DataType": "Binary", "BinaryValue": "AAAA".repeat(349_000)});
    let large = json!({"QueueUrl": url, "MessageBody": "x", "MessageAttributes": {"large": value}});
    node.ok("SendMessage", large).await;
    let message = node.one(&url, json!({"MessageAttributeNames": ["All"]})).await;
    assert_eq!(message["MessageAttributes"]["large"], value, "attributes may be as large as a body");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_receive_is_said() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    for (member, wrong, reason) in [
        ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", -1, "Must be between 1 and 10, if provided."),
        ("VisibilityTimeout", -1, "Must be between 0 and 43200, if provided."),
        ("VisibilityTimeout", 43_201, "Must be between 0 and 43200, if provided."),
        ("WaitTimeSeconds", -1, "Must be >= 0 and <= 20, if provided."),
        ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
    ] {
        let message = format!("Value {wrong} for parameter {member} is invalid. Reason: {reason}");
        node.refused("ReceiveMessage", json!({"QueueUrl": url, member: wrong}), invalid(&message)).await;
    }
    let message = "Value a for parameter ReceiveRequestAttemptId is invalid. Reason: The request include parameter \
                   that is not valid for this queue type.";
    let request = json!({"QueueUrl": url, "ReceiveRequestAttemptId": "a"});
    node.refused("ReceiveMessage", request, invalid(message)).await;
    for (member, good) in [("MaxNumberOfMessages", 10), ("VisibilityTimeout", 0), ("VisibilityTimeout", 43_200)] {
        assert_eq!(node.ok("ReceiveMessage", json!({"QueueUrl": url, member: good})).await, json!({}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_waits_for_a_message_as_it_or_its_queue_says() {
    let node = Node::start().await;
    let own = node.queue("own", json!({"ReceiveMessageWaitTimeSeconds": "20"})).await;
    let asked = node.queue("asked", json!({})).await;
    for (url, request) in [(&own, json!({})), (&asked, json!({"WaitTimeSeconds": 20}))] {
        let receive = node.receive(url, request);
        let send = async {
            while node.mailbox.node_stats().shards.iter().map(|shard| shard.numbers.waiters).sum::<u64>() == 0 {
                tokio::task::yield_now().await;
            }
            node.send(url, "now").await;
        };
        let (messages, ()) = within(Box::pin(async { tokio::join!(receive, send) })).await;
        assert_eq!(messages.len(), 1);
    }
    let started = ron_kernel::clock::now();
    assert_eq!(node.receive(&own, json!({"WaitTimeSeconds": 0})).await, Vec::<Value>::new(), "said otherwise");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_are_those_of_the_message_or_else_of_the_queue() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({"DelaySeconds": "900"})).await;
    node.send(&url, "the queue's").await;
    node.ok("SendMessage", json!({"QueueUrl": url, "MessageBody": "none", "DelaySeconds": 0})).await;
    node.ok("SendMessage", json!({"QueueUrl": url, "MessageBody": "one second", "DelaySeconds": 1})).await;
    assert_eq!(node.bodies(&url).await, ["none"]);
    assert_eq!(node.one(&url, json!({})).await["Body"], "one second");
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessagesDelayed").await.as_deref(), Some("1"));
}
