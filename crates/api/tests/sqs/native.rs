//! One mailbox, two surfaces: what one sends, the other receives.

use std::time::Duration;

use ron_auth::Subject;
use ron_kernel::Deadline;
use serde_json::json;
use svc_mailbox::types::{Groups, TopicSettings};
use svc_mailbox::{Outgoing, Receive};

use crate::harness::{ARN, Node, name, text};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn anybody() -> Subject {
    Subject::named("test")
}

async fn send(node: &Node, topic: &str, message: Outgoing) {
    node.mailbox.send(&anybody(), &name(topic), message, soon()).await.expect("sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_here_is_received_there() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let attributes = json!({
        "a": {"DataType": "String", "StringValue": "x"},
        "n": {"DataType": "Number", "StringValue": "1"},
    });
    node.ok("SendMessage", json!({"QueueUrl": url, "MessageBody": "hi", "MessageAttributes": attributes})).await;
    let receive =
        Receive { visibility_ms: None, max_messages: 1, max_bytes: 1, wait_ms: 0, consumer: "test".to_owned() };
    let delivery = node.mailbox.recv(&anybody(), &name("jobs"), receive, soon()).await.expect("received").remove(0);
    assert_eq!(&delivery.payload[..], b"hi");
    let attrs: Vec<_> = delivery.attrs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(attrs, [("a", "x"), ("n", "1"), ("$type.n", "Number"), ("$sender", "000000000000")]);
    let receipt = delivery.receipt.to_string();
    node.ok("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": receipt})).await;
    assert_eq!(node.attribute(&url, "ApproximateNumberOfMessagesNotVisible").await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_there_is_received_here() {
    let node = Node::start().await;
    // A topic of the native surface, made by its first message; its name could not be given here.
    let attrs = [("good", "x"), ("bad name", "y"), ("empty", "")];
    let attrs = attrs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    send(&node, "a.topic", Outgoing { payload: "text".into(), attrs: attrs.into(), ..Outgoing::default() }).await;
    let url = text(&node.ok("GetQueueUrl", json!({"QueueName": "a.topic"})).await["QueueUrl"]);
    assert_eq!(node.ok("ListQueues", json!({})).await["QueueUrls"], json!([url]));
    let all = json!({"MessageAttributeNames": ["All"], "AttributeNames": ["All"]});
    let message = node.one(&url, all.clone()).await;
    assert_eq!(message["Body"], "text");
    assert_eq!(message["MessageAttributes"], json!({"good": {"DataType": "String", "StringValue": "x"}}));
    assert_eq!(message["Attributes"].get("SenderId"), None, "it is not known");
    for bytes in [&b"\xff\x00"[..], b"\x01"] {
        send(&node, "a.topic", Outgoing { payload: bytes.to_vec().into(), ..Outgoing::default() }).await;
        let message = node.one(&url, json!({})).await;
        assert_eq!(message["Body"], json!(if bytes.len() == 2 { "/wA=" } else { "AQ==" }));
        let said = json!({"macronode.encoding": {"DataType": "String", "StringValue": "base64"}});
        assert_eq!(message["MessageAttributes"], said, "no text, so it says what it is");
        assert!(message["MD5OfMessageAttributes"].is_string());
    }
    send(&node, "a.topic", Outgoing::default()).await;
    assert_eq!(node.one(&url, json!({})).await["Body"], "", "an empty payload is an empty body");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_of_the_native_surface_have_attributes_too() {
    let node = Node::start().await;
    let settings = TopicSettings { visibility_ms: 1500, max_attempts: 3, ..TopicSettings::default() };
    node.mailbox.create_topic(&name("native"), settings, soon()).await.expect("made");
    let own = format!(r#"{{"deadLetterTargetArn":"{ARN}native.dlq","maxReceiveCount":3}}"#);
    assert_eq!(node.attribute("native", "RedrivePolicy").await, Some(own));
    assert_eq!(node.attribute("native", "VisibilityTimeout").await.as_deref(), Some("2"), "part of a second is one");
    let sources = node.ok("ListDeadLetterSourceQueues", json!({"QueueUrl": "native.dlq"})).await;
    assert_eq!(sources, json!({"queueUrls": ["http://node:9000/000000000000/native"]}));
    let message = "The queue native.dlq holds the dead letters of native and goes with it.";
    let refusal = ("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", 400, message);
    node.refused("DeleteQueue", json!({"QueueUrl": "native.dlq"}), refusal).await;
    let set = json!({"QueueUrl": "native.dlq", "Attributes": {"DelaySeconds": "1"}});
    node.refused("SetQueueAttributes", set, refusal).await;
    node.ok("SetQueueAttributes", json!({"QueueUrl": "native", "Attributes": {"DelaySeconds": "1"}})).await;
    assert_eq!(node.mailbox.topic(&name("native")).expect("there").settings.max_attempts, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_in_order_is_a_queue_in_order_whatever_its_name() {
    let node = Node::start().await;
    let settings = TopicSettings { groups: Groups::Fifo, ..TopicSettings::default() };
    node.mailbox.create_topic(&name("line"), settings, soon()).await.expect("made");
    assert_eq!(node.attribute("line", "FifoQueue").await.as_deref(), Some("true"));
    node.send_in("line", "g", "d", "hi").await;
    send(&node, "line", Outgoing { payload: "native".into(), group: Some("g".to_owned()), ..Outgoing::default() })
        .await;
    assert_eq!(node.bodies("line").await, ["hi", "native"]);
}
