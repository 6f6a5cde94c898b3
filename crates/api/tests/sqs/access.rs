//! Who may do what: each action needs its operation on its queue, and shows no queue of others.

use ron_auth::{Op, TopicScope};
use serde_json::{Value, json};

use crate::harness::{ARN, Node, merged, text, type_of};

/// Every action with the operations of which it needs one, and a request about the queue `mine`.
fn actions() -> Vec<(&'static str, &'static [Op], Value)> {
    const ANY: &[Op] = &[Op::Send, Op::Recv, Op::Ack, Op::Admin];
    let of_mine = |more: Value| merged(json!({"QueueUrl": "mine"}), more);
    let arn = format!("{ARN}mine");
    vec![
        ("CreateQueue", &[Op::Admin], json!({"QueueName": "mine"})),
        ("GetQueueUrl", ANY, json!({"QueueName": "mine"})),
        ("GetQueueAttributes", ANY, of_mine(json!({"AttributeNames": ["All"]}))),
        ("ListDeadLetterSourceQueues", ANY, of_mine(json!({}))),
        ("SetQueueAttributes", &[Op::Admin], of_mine(json!({"Attributes": {"DelaySeconds": "0"}}))),
        ("SendMessage", &[Op::Send], of_mine(json!({"MessageBody": "hi"}))),
        ("SendMessageBatch", &[Op::Send], of_mine(json!({"Entries": [{"Id": "a", "MessageBody": "hi"}]}))),
        ("ReceiveMessage", &[Op::Recv], of_mine(json!({}))),
        ("DeleteMessageBatch", &[Op::Ack], of_mine(json!({"Entries": [{"Id": "a", "ReceiptHandle": "x"}]}))),
        (
            "ChangeMessageVisibilityBatch",
            &[Op::Ack],
            of_mine(json!({"Entries": [{"Id": "a", "ReceiptHandle": "x", "VisibilityTimeout": 1}]})),
        ),
        ("TagQueue", &[Op::Admin], of_mine(json!({"Tags": {"a": "b"}}))),
        ("UntagQueue", &[Op::Admin], of_mine(json!({"TagKeys": ["a"]}))),
        ("ListQueueTags", &[Op::Admin], of_mine(json!({}))),
        (
            "AddPermission",
            &[Op::Admin],
            of_mine(json!({"Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["*"]})),
        ),
        ("RemovePermission", &[Op::Admin], of_mine(json!({"Label": "l"}))),
        ("ListMessageMoveTasks", &[Op::Admin], json!({"SourceArn": arn})),
        ("PurgeQueue", &[Op::Admin], of_mine(json!({}))),
        ("DeleteQueue", &[Op::Admin], of_mine(json!({}))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_needs_its_operation_on_its_queue() {
    let mut node = Node::guarded().await;
    let everything = TopicScope::Any;
    for (action, ops, request) in actions() {
        for op in [Op::Send, Op::Recv, Op::Ack, Op::Nack, Op::Admin] {
            node.narrow(&[Op::Admin], everything.clone());
            node.queue("mine", json!({})).await;
            for (scope, covers) in [("mine", true), ("others", false)] {
                node.narrow(&[op], TopicScope::Exact(scope.to_owned()));
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
    node.narrow(&[Op::Admin], TopicScope::Any);
    for name in ["a1", "b1", "b2", "b3", "c1"] {
        node.queue(name, json!({})).await;
    }
    let names = |answer: &Value| -> Vec<String> {
        let urls = answer["QueueUrls"].as_array().cloned().unwrap_or_default();
        urls.iter().map(|url| text(url).rsplit('/').next().unwrap_or_default().to_owned()).collect()
    };
    for (op, scope, expected) in [
        (Op::Recv, TopicScope::Any, vec!["a1", "b1", "b2", "b3", "c1"]),
        (Op::Send, TopicScope::Prefix("b".to_owned()), vec!["b1", "b2", "b3"]),
        (Op::Ack, TopicScope::Exact("c1".to_owned()), vec!["c1"]),
        (Op::Send, TopicScope::Exact("none".to_owned()), vec![]),
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
    node.narrow(&[Op::Admin], TopicScope::Any);
    node.queue("dead", json!({})).await;
    node.queue("others", json!({})).await;
    let policy = json!({"deadLetterTargetArn": format!("{ARN}dead"), "maxReceiveCount": 1}).to_string();
    node.queue("jobs", json!({"RedrivePolicy": policy})).await;
    let order = json!({"SourceArn": format!("{ARN}dead"), "DestinationArn": format!("{ARN}others")});
    for (ops, scope, status) in [
        (&[Op::Send][..], TopicScope::Any, 403),
        (&[Op::Admin, Op::Send], TopicScope::Exact("dead".to_owned()), 403),
        (&[Op::Admin, Op::Send], TopicScope::Exact("others".to_owned()), 403),
        (&[Op::Admin, Op::Send], TopicScope::Any, 200),
    ] {
        node.narrow(ops, scope);
        assert_eq!(node.ask("StartMessageMoveTask", order.clone()).await.status, status, "{ops:?}");
    }
}
