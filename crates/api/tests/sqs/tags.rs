//! Tags and permissions.

use serde_json::{Value, json};

use crate::harness::{ARN, Node, invalid, merged, missing};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_are_kept_with_the_queue() {
    let node = Node::start().await;
    let made = json!({"QueueName": "jobs", "tags": {"team": "red"}});
    let url = node.ok("CreateQueue", made).await["QueueUrl"].clone();
    assert_eq!(node.ok("ListQueueTags", json!({"QueueUrl": url})).await, json!({"Tags": {"team": "red"}}));
    let tag = |tags: Value| json!({"QueueUrl": url, "Tags": tags});
    assert_eq!(node.ok("TagQueue", tag(json!({"team": "blue", "empty": ""}))).await, json!({}));
    assert_eq!(node.ok("ListQueueTags", tag(json!({}))).await, json!({"Tags": {"team": "blue", "empty": ""}}));
    node.ok("UntagQueue", json!({"QueueUrl": url, "TagKeys": ["team", "empty", "unknown"]})).await;
    assert_eq!(node.ok("ListQueueTags", json!({"QueueUrl": url})).await, json!({}));
    let many = |count: usize| -> Value { (0..count).map(|index| (format!("k{index}"), json!("v"))).collect() };
    node.ok("TagQueue", tag(many(50))).await;
    node.all_refused(vec![
        ("TagQueue", tag(many(51)), invalid("Too many tags added for queue jobs.")),
        ("TagQueue", json!({"QueueUrl": url}), missing("The request must contain the parameter Tags.")),
        ("TagQueue", tag(json!({})), missing("The request must contain the parameter Tags.")),
        (
            "TagQueue",
            tag(json!({"k".repeat(129): "v"})),
            invalid("Tag keys must be between 1 and 128 characters in length."),
        ),
        (
            "TagQueue",
            tag(json!({"k": "v".repeat(257)})),
            invalid("Tag values must be between 0 and 256 characters in length."),
        ),
        ("UntagQueue", json!({"QueueUrl": url}), missing("The request must contain the parameter TagKeys.")),
        (
            "UntagQueue",
            json!({"QueueUrl": url, "TagKeys": []}),
            invalid("Tag keys must be between 1 and 128 characters in length."),
        ),
        (
            "UntagQueue",
            json!({"QueueUrl": url, "TagKeys": ["team", ""]}),
            invalid("Tag keys must be between 1 and 128 characters in length."),
        ),
        ("CreateQueue", json!({"QueueName": "more", "tags": many(51)}), invalid("Too many tags added for queue more.")),
    ])
    .await;
    let tags = node.ok("ListQueueTags", json!({"QueueUrl": url})).await;
    assert_eq!(tags["Tags"].as_object().map(serde_json::Map::len), Some(50), "what was refused changed nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_are_shown_as_statements_of_the_policy() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let add = |label: &str, actions: Value| {
        let named = json!({"QueueUrl": url, "Label": label, "Actions": actions});
        merged(named, json!({"AWSAccountIds": ["111122223333"]}))
    };
    assert_eq!(node.ok("AddPermission", add("one", json!(["SendMessage"]))).await, json!({}));
    let seven = json!([
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueUrl",
        "GetQueueAttributes",
        "PurgeQueue"
    ]);
    node.ok("AddPermission", add("two", seven)).await;
    let policy: Value =
        serde_json::from_str(&node.attribute(&url, "Policy").await.expect("a policy")).expect("a document");
    assert_eq!(
        policy["Statement"][0],
        json!({
            "Sid": "one",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
            "Action": "SQS:SendMessage",
            "Resource": format!("{ARN}jobs"),
        })
    );
    let eight = json!(["*", "*", "*", "*", "*", "*", "*", "*"]);
    node.all_refused(vec![
        (
            "AddPermission",
            add("one", json!(["*"])),
            invalid("Value one for parameter Label is invalid. Reason: Already exists."),
        ),
        (
            "AddPermission",
            add("three", eight),
            ("OverLimit", "OverLimit", 403, "8 Actions were found, maximum allowed is 7."),
        ),
        ("AddPermission", add("three", json!([])), missing("The request must contain the parameter Actions.")),
        ("AddPermission", add("", json!(["*"])), missing("The request must contain the parameter Label.")),
        (
            "AddPermission",
            json!({"QueueUrl": url, "Label": "l", "Actions": ["*"]}),
            missing("The request must contain the parameter AWSAccountIds."),
        ),
        (
            "AddPermission",
            add("three", json!(["Nope"])),
            invalid(
                "Value SQS:Nope for parameter ActionName is invalid. Reason: Please refer to the appropriate WSDL for \
                 a list of valid actions.",
            ),
        ),
        (
            "RemovePermission",
            json!({"QueueUrl": url, "Label": "none"}),
            invalid("Value none for parameter Label is invalid. Reason: can't find label on existing policy."),
        ),
        ("RemovePermission", json!({"QueueUrl": url}), missing("The request must contain the parameter Label.")),
    ])
    .await;
    for label in ["one", "two"] {
        assert_eq!(node.ok("RemovePermission", json!({"QueueUrl": url, "Label": label})).await, json!({}));
    }
    assert_eq!(node.attribute(&url, "Policy").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_with_a_queue_is_limited() {
    let node = Node::start().await;
    let url = node.queue("jobs", json!({})).await;
    let policy = json!({"Id": "x".repeat(25_000)}).to_string();
    let over = ("OverLimit", "OverLimit", 403, "The policies and tags of the queue are larger than a queue can keep.");
    let set = json!({"QueueUrl": url, "Attributes": {"Policy": policy}});
    node.refused("SetQueueAttributes", set, over).await;
    node.refused("CreateQueue", json!({"QueueName": "large", "Attributes": {"Policy": policy}}), over).await;
    let widest: Value = (0..50).map(|index| (format!("{index:0>128}"), json!("v".repeat(256)))).collect();
    node.ok("TagQueue", json!({"QueueUrl": url, "Tags": widest})).await;
}
