//! Peers as an operator handles them over HTTP.

use http::Method;
use serde_json::{Value, json};

use crate::member::{Member, network};
use testkit::eventually;

#[tokio::test]
async fn peers_are_shown_added_and_removed() {
    let mut members = [Member::new(), Member::new()];
    for member in &mut members {
        member.start().await;
    }
    let [first, second] = &members;
    let answer = first.ask(Method::GET, "/overlay/peers", &Value::Null).await.json().expect("JSON");
    assert_eq!(answer, json!({"node_id": first.id, "listen": first.oap.to_string(), "peers": []}));
    assert_eq!(first.publish("chat", "x").await["peers"][0]["outcome"], "no_peers");

    let wanted = json!({"node_id": second.id, "addr": second.oap.to_string()});
    for _ in 0..2 {
        let reply = first.ask(Method::POST, "/overlay/peers", &wanted).await;
        assert_eq!((reply.status, reply.json().expect("JSON")), (202, wanted.clone()), "asked again, nothing changes");
    }
    let there = first.wait_connected(&second.id).await;
    assert_eq!((&there["direction"], &there["addr"]), (&json!("out"), &json!(second.oap.to_string())), "{there}");
    assert_eq!(there["tls_group"], "X25519MLKEM768", "{there}");
    assert!(there["queued_bytes"].is_u64() && there["busy_total"] == 0 && there["lanes"].is_array(), "{there}");
    assert_eq!(second.wait_connected(&first.id).await["direction"], "in");
    assert_eq!(first.peers().await.len(), 1, "once");

    first.publish("chat", "x").await;
    eventually("a link", async || {
        let lanes = first.peer(&second.id).await?["lanes"].clone();
        (lanes == json!([{"lane": "chat", "link": "eager"}])).then_some(())
    })
    .await;

    let path = format!("/overlay/peers/{}", second.id);
    assert_eq!(first.ask(Method::DELETE, &path, &Value::Null).await.status, 204);
    assert_eq!(first.ask(Method::DELETE, &path, &Value::Null).await.status, 404, "it is no peer any more");
    assert!(first.peer(&second.id).await.is_none_or(|peer| peer["state"] == "draining"));
    eventually("the end of the session", async || second.peers().await.is_empty().then_some(())).await;
    eventually("no peer", async || {
        (first.publish("chat", "x").await["peers"][0]["outcome"] == "no_peers").then_some(())
    })
    .await;
}

#[tokio::test]
async fn wrong_ids_and_addresses_are_refused_with_their_reason() {
    let mut member = Member::new();
    member.start().await;
    let id = Member::new().id;
    for (body, words) in [
        (json!({"node_id": "12", "addr": "127.0.0.1:1"}), "node_id"),
        (json!({"node_id": id.to_uppercase(), "addr": "127.0.0.1:1"}), "node_id"),
        (json!({"node_id": id, "addr": "127.0.0.1"}), "addr"),
        (json!({"node_id": id, "addr": "127.0.0.1:0"}), "addr"),
        (json!({"node_id": id, "addr": "a b:1"}), "addr"),
        (json!({"node_id": id, "addr": "::1:5"}), "addr"),
        (json!({"node_id": id}), "addr"),
        (json!({"node_id": id, "addr": "127.0.0.1:1", "trust": true}), "trust"),
        (json!({"node_id": member.id, "addr": "127.0.0.1:1"}), ""),
    ] {
        let reply = member.ask(Method::POST, "/overlay/peers", &body).await;
        assert!(reply.status == 400 && reply.text().contains(words), "{body}: {} {}", reply.status, reply.text());
    }
    assert_eq!(member.ask(Method::DELETE, "/overlay/peers/12", &Value::Null).await.status, 400);
    assert_eq!(member.peers().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_message_is_traced_at_every_node() {
    let line = network(3, &[(1, 0), (2, 1)]).await;
    let published = line[0].publish("chat", "hello").await;
    let path = format!("/overlay/messages/{}/trace", published["msg_id"].as_str().expect("an id"));
    let trace = async |node: usize| {
        eventually("a trace", async || {
            let reply = line[node].ask(Method::GET, &path, &Value::Null).await;
            (reply.status == 200).then(|| reply.json().expect("JSON"))
        })
        .await
    };
    for (node, from) in [(0, None), (1, Some(0)), (2, Some(1))] {
        let trace = trace(node).await;
        let from: Value = from.map_or(Value::Null, |from: usize| line[from].id.as_str().into());
        assert_eq!((&trace["hops"], &trace["from"]), (&json!(node), &from), "{trace}");
        for name in ["lane", "origin", "epoch", "seq"] {
            assert_eq!(trace[name], published[name], "{name}");
        }
    }
    assert_eq!(trace(0).await["eager"], json!([line[1].id]));
    for (id, status) in [("00".repeat(16), 404), ("xyz".to_owned(), 400)] {
        let path = format!("/overlay/messages/{id}/trace");
        assert_eq!(line[0].ask(Method::GET, &path, &Value::Null).await.status, status, "{id}");
    }
}
