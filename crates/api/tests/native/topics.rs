//! Topics as operators change them.

use serde_json::{Value, json};

use crate::harness::Node;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_different_settings_at_once_are_both_kept() {
    let node = Node::start().await;
    node.ok("PUT", "/v1/topics/jobs", json!({})).await;
    for round in 1..=50 {
        let (delay, attempts) = (json!({"delay_ms": round}), json!({"max_attempts": round}));
        let change = |asked| node.ok("PATCH", "/v1/topics/jobs", asked);
        tokio::join!(change(delay), change(attempts));
        let settings = &node.ok("GET", "/v1/topics/jobs", Value::Null).await["settings"];
        assert_eq!((&settings["delay_ms"], &settings["max_attempts"]), (&json!(round), &json!(round)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_topic_with_the_name_of_a_route_are_listed_and_sent_back() {
    let node = Node::start().await;
    for name in ["tasks", "dlq", "reprocess", "purge", "stats", "browse", "v1"] {
        let topic = format!("/v1/topics/{name}");
        node.ok("PUT", &topic, json!({"max_attempts": 1})).await;
        node.ok("POST", "/v1/send", json!({"topic": name, "payload_b64": "aGk="})).await;
        let received = node.ok("POST", "/v1/recv", json!({"topic": name})).await;
        let receipt = &received["messages"][0]["receipt"];
        node.ok("POST", "/v1/nack", json!({"receipts": [receipt], "reason": "no"})).await;
        let listed = node.ok("GET", &format!("{topic}/dlq"), Value::Null).await;
        assert_eq!(listed["messages"][0]["dead"]["source"], name, "{listed}");
        let counted = node.ok("POST", &format!("{topic}/dlq/reprocess"), json!({"dry_run": true})).await;
        assert_eq!(counted["would_move"], 1, "{name}");
        let ordered = node.ok("POST", &format!("{topic}/dlq/reprocess"), json!({})).await;
        let task = format!("/v1/dlq/tasks/{}", ordered["task"]["id"]);
        crate::harness::within(async { while node.ok("GET", &task, Value::Null).await["task"]["state"] != "done" {} })
            .await;
        let stats = node.ok("GET", &format!("{topic}/stats"), Value::Null).await;
        assert_eq!(stats["total"]["ready"], 1, "{name}: {stats}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_makes_the_topic_it_names_for_dead_letters() {
    let node = Node::start().await;
    node.ok("PUT", "/v1/topics/jobs", json!({})).await;
    node.ok("PATCH", "/v1/topics/jobs", json!({"dlq": "grave"})).await;
    assert_eq!(node.ok("GET", "/v1/topics/grave", Value::Null).await["settings"]["max_attempts"], 0);
    for (asked, status) in [(json!({"dlq": "no name"}), 400), (json!({"dlq": "jobs"}), 400)] {
        assert_eq!(node.ask("PATCH", "/v1/topics/jobs", asked.clone()).await.0, status, "{asked}");
    }
    assert_eq!(node.ask("PATCH", "/v1/topics/nowhere", json!({"dlq": "other"})).await.0, 404);
    assert_eq!(node.ask("GET", "/v1/topics/other", Value::Null).await.0, 404, "nothing is made for a change refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_whose_topic_was_deleted_through_sqs_are_missed_until_another_is_named() {
    let node = Node::start().await;
    let made = json!({"dlq": "grave", "max_attempts": 3, "labels": {"team": "blue"}});
    assert_eq!(node.ok("PUT", "/v1/topics/jobs", made).await.get("dlq_missing"), None);
    let sent = node.ok("POST", "/v1/send", json!({"topic": "jobs", "payload_b64": "aGk="})).await;
    let message = format!("/v1/messages/{}", sent["msg_id"].as_str().expect("an id"));
    assert_eq!(node.ok("GET", &message, Value::Null).await.get("dlq_missing"), None);
    assert_eq!(node.ask("DELETE", "/v1/topics/grave", Value::Null).await.0, 409, "here it is in use");
    node.sqs("DeleteQueue", json!({"QueueUrl": "http://node/000000000000/grave"})).await;

    let view = node.ok("GET", "/v1/topics/jobs", Value::Null).await;
    assert_eq!(view["dlq_missing"], "grave", "{view}");
    assert_eq!(node.ok("GET", "/v1/topics", Value::Null).await["topics"][0]["dlq_missing"], "grave");
    assert_eq!(node.ok("GET", &message, Value::Null).await["dlq_missing"], "grave");
    assert_eq!(node.ok("PATCH", "/v1/topics/jobs", json!({"paused": true})).await["dlq_missing"], "grave");

    for (asked, dlq, attempts) in [
        (json!({"dlq": "grave"}), json!("grave"), 3),
        (json!({"dlq": null}), Value::Null, 3),
        (json!({"max_attempts": 7}), Value::Null, 7),
    ] {
        node.ok("PATCH", "/v1/topics/jobs", json!({"dlq": "grave", "max_attempts": 3})).await;
        node.sqs("DeleteQueue", json!({"QueueUrl": "http://node/000000000000/grave"})).await;
        let view = node.ok("PATCH", "/v1/topics/jobs", asked.clone()).await;
        assert_eq!(view.get("dlq_missing"), None, "{asked}");
        let settings = &view["settings"];
        assert_eq!((&settings["dlq"], &settings["max_attempts"]), (&dlq, &json!(attempts)), "{asked}");
        assert_eq!(settings["labels"], json!({"team": "blue"}), "{asked}");
    }
}
