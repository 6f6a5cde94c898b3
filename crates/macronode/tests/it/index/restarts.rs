//! A restart keeps records; amnesia keeps none.

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::index::node::{ABC_B3, PEER, SERVICES, alone, open, provide_abc, resolve};
use crate::process::BINARY;

#[tokio::test]
async fn a_restart_keeps_records_names_and_documents() {
    let mut node = alone().await;
    provide_abc(&node).await;
    let set = node.ask(Method::PUT, "/names/site", &json!({"value": ABC_B3})).await;
    assert_eq!(set.status, 200, "{}", set.text());
    let bearer = node.bearer();
    let put =
        open(&node, Method::PUT, &format!("/manifests/{ABC_B3}"), &[("authorization", bearer.as_str())], "abc").await;
    assert_eq!(put.status, 200, "{}", put.text());
    for signal in [Signal::TERM, Signal::KILL] {
        node.end(signal).await;
        node.start().await;
        let answer = resolve(&node, "name:site").await;
        assert_eq!((&answer["outcome"], &answer["source"]), (&"found".into(), &"store".into()), "{answer}");
        assert_eq!(answer["providers"][0]["peer_id"], PEER, "{answer}");
        assert_eq!(answer["manifest"]["bytes"], 3, "{answer}");
        let document = open(&node, Method::GET, &format!("/manifests/{ABC_B3}"), &[], "").await;
        assert_eq!((document.text(), document.header("etag")), ("abc".to_owned(), format!("\"{ABC_B3}\"").as_str()));
    }
}

#[tokio::test]
async fn a_forgetful_node_keeps_nothing() {
    let start = async || {
        let options = testkit::Node::options_for(BINARY).amnesia();
        options.arg("--services").arg(SERVICES).start().await.expect("a node")
    };
    let ask = async |node: &testkit::Node, method: Method, path: &str, body: Value| {
        let bearer = format!("Bearer {}", node.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        testkit::ask(node.api, method, path, &headers, body).await.expect("an answer").json().expect("JSON")
    };
    let first = start().await;
    let path = format!("/providers/{ABC_B3}");
    ask(&first, Method::POST, &path, json!({"peer_id": PEER, "addrs": ["/ip4/10.0.0.1/tcp/1"]})).await;
    let found = ask(&first, Method::GET, &format!("/resolve/{ABC_B3}"), Value::Null).await;
    assert_eq!(found["outcome"], "found", "while it lives: {found}");
    assert_eq!(ask(&first, Method::GET, "/index/stats", Value::Null).await["amnesia"], true);
    assert!(!first.data_dir().exists(), "nothing is written");
    drop(first);
    let second = start().await;
    let gone = ask(&second, Method::GET, &format!("/resolve/{ABC_B3}"), Value::Null).await;
    assert_ne!(gone["outcome"], "found", "{gone}");
}
