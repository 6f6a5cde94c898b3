//! The breaker as operators see it: set, refused, shown, and turned off.

use serde_json::{Value, json};

use crate::harness::Node;

const TOPIC: &str = "/v1/topics/jobs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_setting_comes_back_as_it_was_given_and_what_is_wrong_is_named() {
    let node = Node::start().await;
    assert_eq!(node.ok("PUT", TOPIC, json!({})).await["settings"]["breaker"], Value::Null, "off unless asked for");
    let usual = json!({"failing_percent": 50, "window_ms": 60_000, "deliveries_min": 20, "pause_ms": 30_000});
    let mut other = usual.clone();
    other["pause_ms"] = json!(5_000);
    for (asked, expected) in [
        (json!({"breaker": {}}), &usual),
        (json!({"visibility_ms": 9_000}), &usual),
        (json!({"breaker": {"pause_ms": 5_000}}), &other),
        (json!({"breaker": null}), &Value::Null),
    ] {
        assert_eq!(node.ok("PATCH", TOPIC, asked.clone()).await["settings"]["breaker"], *expected, "{asked}");
        assert_eq!(node.ok("GET", TOPIC, Value::Null).await["settings"]["breaker"], *expected, "{asked}");
    }
    for (wrong, detail) in [
        (json!({"failing_percent": 100}), "breaker.failing_percent: 100 is not between 1 and 99"),
        (json!({"window_ms": 999}), "breaker.window_ms: 999 is not between 1000 and 3600000"),
        (json!({"deliveries_min": 0}), "breaker.deliveries_min: 0 is not between 1 and 1000000"),
        (json!({"pause_ms": 0}), "breaker.pause_ms: 0 is not between 1000 and 3600000"),
        (json!({"pause_ms": -1}), "breaker"),
        (json!({"percent": 5}), "breaker"),
        (json!(true), "breaker"),
    ] {
        for (method, path) in [("PATCH", TOPIC), ("PUT", "/v1/topics/other")] {
            let (status, problem) = node.ask(method, path, json!({"breaker": wrong})).await;
            let said = problem["detail"].as_str().unwrap_or_default();
            assert!(status == 400 && said.starts_with(detail), "{method} {wrong}: {status} {problem}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker_is_shown_and_a_changed_setting_closes_it() {
    let node = Node::start().await;
    let breaker = json!({"deliveries_min": 2, "pause_ms": 3_600_000});
    node.ok("PUT", TOPIC, json!({"breaker": breaker})).await;
    for _ in 0..5 {
        node.ok("POST", "/v1/send", json!({"topic": "jobs", "payload_b64": "aGk="})).await;
    }
    let stats = node.ok("GET", "/v1/topics/jobs/stats", Value::Null).await;
    assert_eq!((&stats["total"]["breaker"], stats["total"].get("breaker_until_ts")), (&json!("closed"), None));
    let recv = json!({"topic": "jobs", "max_messages": 2});
    let received = node.ok("POST", "/v1/recv", recv.clone()).await;
    let messages = received["messages"].as_array().expect("messages");
    let receipts: Vec<_> = messages.iter().map(|message| &message["receipt"]).collect();
    node.ok("POST", "/v1/nack", json!({"receipts": receipts, "delay_ms": 0})).await;

    let stats = node.ok("GET", "/v1/topics/jobs/stats", Value::Null).await;
    for numbers in [&stats["total"], &stats["partitions"][0]] {
        assert_eq!((&numbers["breaker"], &numbers["ready"]), (&json!("open"), &json!(5)), "{stats}");
        let opened = numbers["breaker_opened_ts"].as_u64().expect("when it opened");
        assert_eq!(numbers["breaker_until_ts"], json!(opened + 3_600_000));
    }
    assert_eq!(node.ok("POST", "/v1/recv", recv.clone()).await["messages"], json!([]));
    let id = messages[0]["msg_id"].as_str().expect("an id");
    let explained = node.ok("GET", &format!("/v1/messages/{id}"), Value::Null).await;
    assert_eq!(explained["breaker"], "open");
    assert_eq!(explained["breaker_until_ts"], stats["total"]["breaker_until_ts"]);
    assert!(explained["verdict"].as_str().is_some_and(|verdict| verdict.contains("fail")), "{explained}");

    node.ok("PATCH", TOPIC, json!({"breaker": null})).await;
    assert_eq!(node.ok("GET", "/v1/topics/jobs/stats", Value::Null).await["total"]["breaker"], "closed");
    assert_eq!(node.ok("POST", "/v1/recv", recv).await["messages"].as_array().map(Vec::len), Some(2));
}
