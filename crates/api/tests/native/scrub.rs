//! The check of the log, asked for and looked at over HTTP.

use serde_json::Value;

use crate::harness::{Node, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_started_joined_and_shown_to_those_who_may_see_everything() {
    let node = Node::start().await;
    node.ok("POST", "/v1/send", serde_json::json!({"topic": "jobs", "payload_b64": "aGk="})).await;
    let (status, begun) = node.ask("POST", "/v1/log/scrub", Value::Null).await;
    assert_eq!(status, 202, "{begun}");
    let run = begun["running"]["run"].as_u64().or_else(|| begun["last"]["run"].as_u64()).expect("a number");
    let shown = within(async {
        loop {
            let shown = node.ok("GET", "/v1/log/scrub", Value::Null).await;
            if shown["last"]["run"].as_u64().is_some_and(|last| last >= run) {
                return shown;
            }
        }
    })
    .await;
    let last = &shown["last"];
    assert_eq!((&last["damaged_records"], &last["findings"]), (&0.into(), &serde_json::json!([])), "{shown}");
    assert_eq!(last["bytes_done"], last["bytes_total"], "{shown}");
    let stats = node.ok("GET", "/v1/stats", Value::Null).await;
    assert_eq!(stats["log"]["scrub"]["last"]["run"], last["run"], "{stats}");

    for scope in ["jobs", "jobs*"] {
        let token = node.admin_of(scope);
        for method in ["GET", "POST"] {
            let (status, answer) = node.ask_with(&token, method, "/v1/log/scrub", Value::Null).await;
            assert_eq!(status, 403, "{scope} {method}: {answer}");
        }
    }
}
