//! Who may do what: each action needs its operation on its queue, and shows no queue of others.

use ron_auth::{Action, ResourceScope};
use serde_json::{Value, json};
use svc_mailbox::capabilities::{ACK, ADMIN, NACK, RECV, SEND};

use crate::harness::{ARN, Node, merged, text, type_of};

/// Every action with the operations of which it needs one, and a request about the queue `mine`.
fn actions() -> Vec<(&'static str, &'static [Action], Value)> {
    const ANY: &[Action] = &[SEND, RECV, ACK, ADMIN];
    let of_mine = |more: Value| merged(json!({"QueueUrl": "mine"}), more);
    let arn = format!("{ARN}mine");
    vec![
        ("CreateQueue", &[ADMIN], json!({"QueueName": "mine"})),
        ("GetQueueUrl", ANY, json!({"QueueName": "mine"})),
        ("GetQueueAttributes", ANY, of_mine(json!({"AttributeNames": ["All"]}))),
        ("ListDeadLetterSourceQueues", ANY, of_mine(json!({}))),
        ("SetQueueAttributes", &[ADMIN], of_mine(json!({"Attributes": {"DelaySeconds": "0"}}))),
        ("SendMessage", &[SEND], of_mine(json!({"MessageBody": "hi"}))),
        ("SendMessageBatch", &[SEND], of_mine(json!({"Entries": [{"Id": "a", "MessageBody": "hi"}]}))),
        ("ReceiveMessage", &[RECV], of_mine(json!({}))),
        ("DeleteMessageBatch", &[ACK], of_mine(json!({"Entries": [{"Id": "a", "ReceiptHandle": "x"}]}))),
        (
            "ChangeMessageVisibilityBatch",
            &[ACK],
            of_mine(json!({"Entries": [{"Id": "a", "ReceiptHandle": "x", "VisibilityTimeout": 1}]})),
        ),
        ("TagQueue", &[ADMIN], of_mine(json!({"Tags": {"a": "b"}}))),
        ("UntagQueue", &[ADMIN], of_mine(json!({"TagKeys": ["a"]}))),
        ("ListQueueTags", &[ADMIN], of_mine(json!({}))),
        (
            "AddPermission",
            &[ADMIN],
            of_mine(json!({"Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["*"]})),
        ),
        ("RemovePermission", &[ADMIN], of_mine(json!({"Label": "l"}))),
        ("ListMessageMoveTasks", &[ADMIN], json!({"SourceArn": arn})),
        ("PurgeQueue", &[ADMIN], of_mine(json!({}))),
        ("DeleteQueue", &[ADMIN], of_mine(json!({}))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_needs_its_operation_on_its_queue() {
    let mut node = Node::guarded().await;
    let everything = ResourceScope::Any;
    for (action, ops, request) in actions() {
        for op in [SEND, RECV, ACK, NACK, ADMIN] {
            node.narrow(&[ADMIN], everything.clone());
            node.queue("mine", json!({})).await;
            for (scope, covers) in [("mine", true), ("others", false)] {
                node.narrow(&[op], ResourceScope::Exact(scope.to_owned()));
                let answer = node.ask(action, request.clone()).await;
                let is_allowed = covers && ops.contains(&op);
                // A queue purged or deleted, or a label given, by an earlier round is no matter of who asks.
                let denied = answer.body["__type"] == json!(type_of("AccessDeniedException"));
                assert_eq!(denied, !is_allowed, "{action} with {op:?} on {scope}: {:?}", answer.body);
                if denied {
                    assert_eq!((answer.status, answer.query_error.as_deref()), (403, Some("AccessDenied;Sender")));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_queues_of_the_caller_are_listed() {
    let mut node = Node::guarded().await;
    node.narrow(&[ADMIN], ResourceScope::Any);
    for name in ["a1", "b1", "b2", "b3", "c1"] {
        node.queue(name, json!({})).await;
    }
    let names = |answer: &Value| -> Vec<String> {
        let urls = answer["QueueUrls"].as_array().cloned().unwrap_or_default();
        urls.iter().map(|url| text(url).rsplit('/').next().unwrap_or_default().to_owned()).collect()
    };
    for (op, scope, expected) in [
        (RECV, ResourceScope::Any, vec!["a1", "b1", "b2", "b3", "c1"]),
        (SEND, ResourceScope::Prefix("b".to_owned()), vec!["b1", "b2", "b3"]),
        (ACK, ResourceScope::Exact("c1".to_owned()), vec!["c1"]),
        (SEND, ResourceScope::Exact("none".to_owned()), vec![]),
    ] {
        node.narrow(&[op], scope);
        assert_eq!(names(&node.ok("ListQueues", json!({})).await), expected, "{op:?}");
        let page = node.ok("ListQueues", json!({"MaxResults": 1})).await;
        assert_eq!(names(&page), &expected[..expected.len().min(1)], "{op:?}");
        assert_eq!(page.get("NextToken").is_some(), expected.len() > 1, "{op:?}: {page}");
    }
    node.token = None;
    let stranger = node.ask("ListQueues", json!({})).await;
    assert_eq!(stranger.status, 403, "{stranger:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_needs_rights_to_both_queues() {
    let mut node = Node::guarded().await;
    node.narrow(&[ADMIN], ResourceScope::Any);
    node.queue("dead", json!({})).await;
    node.queue("others", json!({})).await;
    let policy = json!({"deadLetterTargetArn": format!("{ARN}dead"), "maxReceiveCount": 1}).to_string();
    node.queue("jobs", json!({"RedrivePolicy": policy})).await;
    let order = json!({"SourceArn": format!("{ARN}dead"), "DestinationArn": format!("{ARN}others")});
    for (ops, scope, status) in [
        (&[SEND][..], ResourceScope::Any, 403),
        (&[ADMIN, SEND], ResourceScope::Exact("dead".to_owned()), 403),
        (&[ADMIN, SEND], ResourceScope::Exact("others".to_owned()), 403),
        (&[ADMIN, SEND], ResourceScope::Any, 200),
    ] {
        node.narrow(ops, scope);
        assert_eq!(node.ask("StartMessageMoveTask", order.clone()).await.status, status, "{ops:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sending_the_dead_elsewhere_needs_the_right_to_look_after_that_queue() {
    let mut node = Node::guarded().await;
    node.narrow(&[ADMIN], ResourceScope::Any);
    node.queue("theirs", json!({})).await;
    node.queue("mine-dead", json!({})).await;
    node.queue("mine", json!({})).await;
    let policy =
        |target: &str| json!({"deadLetterTargetArn": format!("{ARN}{target}"), "maxReceiveCount": 1}).to_string();
    node.narrow(&[ADMIN], ResourceScope::Prefix("mine".to_owned()));
    for (target, is_allowed) in [("theirs", false), ("nobodys", false), ("mine-dead", true)] {
        let attributes = json!({"RedrivePolicy": policy(target)});
        let set = json!({"QueueUrl": "mine", "Attributes": attributes});
        let make = json!({"QueueName": format!("mine-new-{target}"), "Attributes": attributes});
        for (action, request) in [("SetQueueAttributes", set), ("CreateQueue", make)] {
            let answer = node.ask(action, request).await;
            assert_eq!(answer.status == 200, is_allowed, "{action} to {target}: {:?}", answer.body);
            let denied = answer.body["__type"] == json!(type_of("AccessDeniedException"));
            assert_eq!(denied, !is_allowed, "{action} to {target}: {:?}", answer.body);
        }
    }
    // Back to where they came from is a send to each of them.
    node.narrow(&[ADMIN, SEND], ResourceScope::Exact("mine-dead".to_owned()));
    let order = json!({"SourceArn": format!("{ARN}mine-dead")});
    assert_eq!(node.ask("StartMessageMoveTask", order.clone()).await.status, 403);
    node.narrow(&[ADMIN, SEND], ResourceScope::Prefix("mine".to_owned()));
    assert_eq!(node.ask("StartMessageMoveTask", order).await.status, 200);
}
