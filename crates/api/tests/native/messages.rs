//! Single messages by their id.

use std::collections::BTreeMap;

use ron_auth::{Grant, ResourceScope, Right};
use serde_json::json;
use svc_mailbox::capabilities::{ADMIN, PAYLOAD_BYTES_MAX};

use crate::harness::Node;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_message_is_held_to_the_largest_that_the_token_allows() {
    let node = Node::start().await;
    let sent = node.ok("POST", "/v1/send", json!({"topic": "jobs", "payload_b64": "aGk=", "attrs": {"a": "b"}})).await;
    let message = format!("/v1/messages/{}", sent["msg_id"].as_str().expect("an id"));
    let limited = Grant {
        subject: "editor".to_owned(),
        rights: vec![Right::new(ADMIN, ResourceScope::Any)],
        limits: BTreeMap::from([(PAYLOAD_BYTES_MAX.to_owned(), 8)]),
        expires_ms: None,
    };
    let token = node.authority.mint(&limited).expect("a token");
    // Two bytes of attributes stay where none are given.
    for (change, status) in [
        (json!({"payload_b64": "MTIzNDU2Nw=="}), 413),
        (json!({"payload_b64": "MTIzNDU2"}), 200),
        (json!({"attrs": {"a": "bc"}}), 413),
        (json!({"payload_b64": "MTIz", "attrs": {"a": "bcde"}}), 200),
        (json!({"delay_ms": 60_000}), 200),
    ] {
        let (answered, answer) = node.ask_with(&token, "PATCH", &message, change.clone()).await;
        assert_eq!(answered, status, "{change}: {answer}");
    }
    node.ok("PATCH", &message, json!({"payload_b64": "MTIzNDU2Nzg="})).await;
    let (later, _) = node.ask_with(&token, "PATCH", &message, json!({"delay_ms": 0})).await;
    assert_eq!(later, 200, "it is as large as it was");
}
