//! What the index refuses, and how it says so.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use ron_store::ContentId;
use serde_json::{Value, json};

use crate::index::node::{ABC_B3, ABC_CID, PEER, SERVICES, alone, open, provide_abc};
use crate::member::Member;

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn bodies_and_ids_are_read_strictly() {
    let node = alone().await;
    let provider = format!("/providers/{ABC_B3}");
    for (method, path, body) in [
        (Method::POST, provider.as_str(), json!({"peer": PEER})),
        (Method::POST, &provider, json!({"peer_id": "nobody"})),
        (Method::POST, &provider, json!({"peer_id": PEER, "addrs": ["not a multiaddr"]})),
        (Method::POST, &provider, json!({"peer_id": PEER, "addrs": vec!["/ip4/1.2.3.4/tcp/1"; 9]})),
        (Method::POST, &provider, json!({"peer_id": PEER, "ttl_s": 172_801})),
        (Method::POST, &provider, json!({"record_b64": "AAAA"})),
        (Method::POST, &provider, json!({"record_b64": "!!", "ttl_s": 1})),
        (Method::PUT, "/names/site", json!({"value": "nonsense"})),
        (Method::PUT, "/names/Site", json!({"value": ABC_B3})),
        (Method::PUT, "/names/site", json!({"value": ABC_B3, "sequence": 7})),
        (Method::PUT, "/names/site", json!({})),
        (Method::DELETE, "/names/Site", Value::Null),
        (Method::DELETE, "/providers/nonsense", Value::Null),
        (Method::DELETE, &format!("{provider}?peer_id=nobody"), Value::Null),
        (Method::POST, "/admin/pin", json!({"id": "nonsense"})),
        (Method::POST, "/admin/pin", json!({"id": "name:a", "x": 1})),
        (Method::POST, "/admin/pin", json!(["name:a"])),
        (Method::POST, "/resolve:batch", json!({"ids": []})),
        (Method::POST, "/resolve:batch", json!({"ids": vec!["name:a"; 101]})),
        (Method::POST, "/resolve:batch", json!({"ids": ["name:a", "x"]})),
        (Method::POST, "/resolve:batch", json!([["name:a"], 1, false])),
        (Method::GET, "/resolve/nonsense", Value::Null),
        (Method::GET, "/resolve/b3:00", Value::Null),
        (Method::GET, "/resolve/name:a?max=0", Value::Null),
        (Method::GET, "/resolve/name:a?most=1", Value::Null),
        (Method::GET, "/providers/name:a", Value::Null),
        (Method::GET, "/watch/nonsense", Value::Null),
    ] {
        let reply = node.ask(method.clone(), path, &body).await;
        assert_eq!(reply.status, 400, "{method} {path} {body}: {}", reply.text());
        assert_eq!(reply.json().expect("a problem")["code"], "E_SCHEMA", "{method} {path}");
    }
}

#[tokio::test]
async fn large_bodies_and_bombs_are_refused_before_they_are_read() {
    let node = alone().await;
    let bearer = node.bearer();
    let token = ("authorization", bearer.as_str());
    let path = format!("/manifests/{ABC_B3}");
    let large = open(&node, Method::PUT, &path, &[token], vec![b'a'; 2 * 1024 * 1024]).await;
    assert_eq!(large.status, 413, "{}", large.text());
    // From anybody, too: JSON of the index is no longer than its documents.
    let provider = format!("/providers/{ABC_B3}");
    for (method, path) in [
        (Method::POST, "/resolve:batch"),
        (Method::POST, provider.as_str()),
        (Method::PUT, "/names/site"),
        (Method::POST, "/admin/pin"),
    ] {
        let text = format!("{{\"ids\":[]{}}}", " ".repeat(1024 * 1024));
        let large = open(&node, method.clone(), path, &[token, JSON], text).await;
        assert_eq!(large.status, 413, "{method} {path}: {}", large.text());
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![0; 1024 * 1024 - 1]).expect("a vector grows");
    let bomb = encoder.finish().expect("a vector grows");
    let refused = open(&node, Method::PUT, &path, &[token, ("content-encoding", "gzip")], bomb.clone()).await;
    assert_eq!(refused.status, 413, "{}", refused.text());
    let refused = open(&node, Method::POST, &provider, &[token, JSON, ("content-encoding", "gzip")], bomb).await;
    assert_eq!(refused.status, 413, "{}", refused.text());
    let other = open(&node, Method::PUT, &path, &[token], "abd").await;
    assert_eq!((other.status, other.json().expect("a problem")["code"].as_str()), (422, Some("E_INTEGRITY")));
}

#[tokio::test]
async fn changes_need_a_right_and_a_signed_record_none() {
    let node = alone().await;
    let body = json!({"peer_id": PEER, "addrs": ["/ip4/10.0.0.1/tcp/1"]}).to_string();
    let provider = format!("/providers/{ABC_B3}");
    assert_eq!(open(&node, Method::POST, &provider, &[JSON], body.clone()).await.status, 401);
    let name = json!({"value": ABC_B3}).to_string();
    assert_eq!(open(&node, Method::PUT, "/names/site", &[JSON], name.clone()).await.status, 401);
    assert_eq!(open(&node, Method::POST, "/admin/pin", &[JSON], r#"{"id":"name:a"}"#).await.status, 401);
    assert_eq!(open(&node, Method::GET, "/index/lookups", &[], "").await.status, 401);
    assert_eq!(open(&node, Method::PUT, &format!("/manifests/{ABC_B3}"), &[], "abc").await.status, 401);
    assert_eq!(open(&node, Method::DELETE, &provider, &[], "").await.status, 401);
    assert_eq!(open(&node, Method::DELETE, "/names/site", &[], "").await.status, 401);
    let namer = node.mint(&["index:name:name:site"], None).await;
    let as_namer = [("authorization", namer.as_str()), JSON];
    assert_eq!(open(&node, Method::POST, &provider, &as_namer, body).await.status, 403);
    assert_eq!(open(&node, Method::PUT, "/names/other", &as_namer, name.clone()).await.status, 403);
    let set = open(&node, Method::PUT, "/names/site", &as_namer, name).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(open(&node, Method::DELETE, &provider, &as_namer, "").await.status, 403);
    assert_eq!(open(&node, Method::DELETE, "/names/other", &as_namer, "").await.status, 403);
    // A record that its owner signed needs no token; one that was changed is no record of the owner.
    let record = set.json().expect("JSON")["record_b64"].as_str().expect("a record").to_owned();
    let signed = |record: &str| json!({"record_b64": record}).to_string();
    let again = open(&node, Method::PUT, "/names/site", &[JSON], signed(&record)).await;
    assert_eq!((again.status, again.json().expect("JSON")["status"].as_str()), (200, Some("same")));
    let elsewhere = open(&node, Method::PUT, "/names/other", &[JSON], signed(&record)).await;
    assert_eq!(elsewhere.status, 400, "{}", elsewhere.text());
    let mut forged = record.into_bytes();
    // A digit within the signature, which is at the end.
    let at = forged.len() - 20;
    forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).expect("text");
    let refused = open(&node, Method::PUT, "/names/site", &[JSON], signed(&forged)).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
}

/// A batch is no way around what one address may ask.
#[tokio::test]
async fn each_id_of_a_batch_is_a_question_of_its_address() {
    let mut node = Member::running(SERVICES);
    node.configure("[index]\nper_ip_per_second = 10\n");
    node.start().await;
    let ids: Vec<String> = (0..50_u8).map(|number| ContentId::of_bytes(&[number]).to_string()).collect();
    let reply = open(&node, Method::POST, "/resolve:batch", &[JSON], json!({"ids": ids}).to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 50, "each id has its line");
    let refused = lines.iter().filter(|line| line["code"] == "E_SATURATED").count();
    // A few more are let in while the batch is answered.
    assert!((25..50).contains(&refused), "{refused} refused: {text}");
    // The next batch is refused whole, and before its body is read.
    let none = open(&node, Method::POST, "/resolve:batch", &[JSON], "no JSON").await;
    assert!(matches!(none.status, 400 | 429), "{}", none.text());
}

#[tokio::test]
async fn where_a_token_is_asked_for_nothing_is_read_without_one_and_no_cache_between_keeps_answers() {
    let mut node = Member::running(SERVICES);
    node.configure("[index]\naccess = \"token\"\n");
    node.start().await;
    provide_abc(&node).await;
    let batch = open(&node, Method::POST, "/resolve:batch", &[JSON], "no JSON").await;
    assert_eq!(batch.status, 401, "{}", batch.text());
    let bearer = node.bearer();
    for path in [format!("/resolve/{ABC_B3}"), format!("/routing/v1/providers/{ABC_CID}")] {
        assert_eq!(open(&node, Method::GET, &path, &[], "").await.status, 401, "{path}");
        let reply = open(&node, Method::GET, &path, &[("authorization", bearer.as_str())], "").await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let life = reply.header("cache-control");
        assert!(life.starts_with("private, max-age="), "{path}: {life}");
    }
}

#[tokio::test]
async fn a_right_to_some_content_holds_for_every_spelling_of_it_on_every_route() {
    let mut node = Member::running(SERVICES);
    node.configure("[index]\naccess = \"token\"\n");
    node.start().await;
    provide_abc(&node).await;
    let reader = node.mint(&[&format!("index:read:{ABC_B3}")], None).await;
    let hex = format!("f01551e20{}", ABC_B3.trim_start_matches("b3:"));
    let other = ContentId::of_bytes(b"other").cid_text();
    for route in ["/resolve", "/providers", "/watch", "/routing/v1/providers", "/routing/v1/dht/closest/peers"] {
        for (id, status) in [(ABC_B3, 200), (ABC_CID, 200), (&hex, 200), (&other, 403)] {
            let path = format!("{route}/{id}");
            // Of a stream of events the head is enough.
            let reply = open(&node, Method::HEAD, &path, &[("authorization", reader.as_str())], "").await;
            assert_eq!(reply.status, status, "{path}");
        }
    }
}

#[tokio::test]
async fn a_request_with_a_key_is_done_once() {
    let node = alone().await;
    provide_abc(&node).await;
    let bearer = node.bearer();
    let ask = async |path: &str, id: &str, key: &str| {
        let headers = [("authorization", bearer.as_str()), JSON, ("idempotency-key", key)];
        open(&node, Method::POST, path, &headers, json!({"id": id}).to_string()).await
    };
    let first = ask("/admin/pin", ABC_B3, "k-1").await;
    let answer = first.json().expect("JSON");
    assert_eq!((first.status, &answer["changed"], &answer["replayed"]), (200, &true.into(), &false.into()), "{answer}");
    let again = ask("/admin/pin", ABC_B3, "k-1").await.json().expect("JSON");
    assert_eq!((&again["changed"], &again["replayed"]), (&true.into(), &true.into()), "{again}");
    let other = ask("/admin/unpin", ABC_B3, "k-1").await;
    assert_eq!((other.status, other.json().expect("a problem")["code"].as_str()), (409, Some("E_DUPLICATE")));
    let second = ask("/admin/pin", ABC_B3, "k-2").await.json().expect("JSON");
    assert_eq!((&second["changed"], &second["replayed"]), (&false.into(), &false.into()), "it was pinned: {second}");
    assert_eq!(ask("/admin/pin", ABC_B3, "two words").await.status, 400);
    assert_eq!(ask("/admin/reindex", ABC_B3, "k-3").await.status, 200);
}
