//! The surface of the index as programs use it: many ids at once, changes as they come, answers that are known.

use futures_util::FutureExt as _;
use http::request::Builder;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use ron_store::ContentId;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::index::node::{ABC_B3, ABC_CID, PEER, SERVICES, alone, open, provide_abc, resolve};
use crate::index::routers::{Router, upstreams};
use crate::member::Member;

#[tokio::test]
async fn an_answer_that_is_known_is_not_sent_again() {
    let node = alone().await;
    provide_abc(&node).await;
    let path = format!("/resolve/{ABC_CID}");
    let first = open(&node, Method::GET, &path, &[], "").await;
    let etag = first.header("etag").to_owned();
    assert!(etag.starts_with("W/\"") && first.header("cache-control").starts_with("public, max-age="));
    let again = open(&node, Method::GET, &path, &[("if-none-match", &etag)], "").await;
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, etag.as_str()));
    let answer = first.json().expect("JSON");
    assert_eq!((&answer["outcome"], &answer["id"]), (&"found".into(), &ABC_B3.into()), "{answer}");
    let terms = answer["providers"][0]["terms"].as_object().expect("the parts of the score");
    assert!(terms.values().all(Value::is_number), "{answer}");
    let nothing = open(&node, Method::GET, "/resolve/name:nothing", &[], "").await;
    let answer = nothing.json().expect("JSON");
    assert!(nothing.status == 200 && answer["outcome"] != "found", "{answer}");
    assert_eq!(answer["providers"], json!([]));
}

#[tokio::test]
async fn many_ids_are_answered_a_line_each() {
    let node = alone().await;
    provide_abc(&node).await;
    let ids = [ABC_B3, ABC_CID, "name:nothing"];
    let body = json!({"ids": ids}).to_string();
    let reply = open(&node, Method::POST, "/resolve:batch", &[("content-type", "application/json")], body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-ndjson"), "{}", reply.text());
    let lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), ids.len());
    for id in ids {
        let line = lines.iter().find(|line| line["asked"] == id).unwrap_or_else(|| panic!("{id}"));
        assert_eq!(line["outcome"] == "found", id != "name:nothing", "{line}");
    }
}

#[tokio::test]
async fn lines_of_providers_have_their_scores() {
    let node = alone().await;
    provide_abc(&node).await;
    let headers = [("accept", "application/x-ndjson")];
    let reply = open(&node, Method::GET, &format!("/providers/{ABC_B3}"), &headers, "").await;
    let line: Value = serde_json::from_str(reply.text().trim()).expect("one line");
    assert_eq!((&line["peer_id"], line["score"].is_number()), (&PEER.into(), true), "{line}");
    let document = open(&node, Method::GET, &format!("/providers/{ABC_B3}"), &[], "").await.json().expect("JSON");
    assert_eq!((&document["outcome"], &document["providers"][0]["peer_id"]), (&"found".into(), &PEER.into()));
}

/// The body of an answer, as far as it has come.
struct Arriving {
    body: Incoming,
    text: String,
    _driver: JoinSet<()>,
}

impl Arriving {
    async fn of(node: &Member, request: Builder, body: String, media_type: &str) -> Arriving {
        let stream = TcpStream::connect(node.api()).await.expect("the node listens");
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("a connection");
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        let request = request.header("host", node.api().to_string()).body(Full::<bytes::Bytes>::from(body));
        let response = sender.send_request(request.expect("a request")).await.expect("an answer");
        assert_eq!(response.headers()["content-type"], media_type);
        Arriving { body: response.into_body(), text: String::new(), _driver: driver }
    }

    /// Waits for more; false at the end.
    async fn more(&mut self) -> bool {
        let frame = tokio::time::timeout(testkit::PATIENCE_MAX, self.body.frame()).await.expect("more in time");
        let Some(frame) = frame else { return false };
        let data = frame.expect("no error").into_data().expect("data");
        self.text += std::str::from_utf8(&data).expect("text");
        true
    }
}

#[tokio::test]
async fn a_batch_is_answered_in_the_order_in_which_answers_are_found() {
    let (release, released) = watch::channel(false);
    let router = Router::start(move |_| {
        let mut released = released.clone();
        async move { released.wait_for(|released| *released).await.ok().map(|_| PEER.to_owned()) }.boxed()
    })
    .await;
    let mut node = Member::running(SERVICES);
    node.configure(&upstreams(&[router]));
    node.start().await;
    provide_abc(&node).await;
    // The router knows of the first, and has not said so; the second is the node's own word.
    let late = ContentId::of_bytes(b"late").to_string();
    let request = Request::post("/resolve:batch").header("content-type", "application/json");
    let body = json!({"ids": [late, ABC_B3]}).to_string();
    let mut lines = Arriving::of(&node, request, body, "application/x-ndjson").await;
    while !lines.text.ends_with('\n') {
        assert!(lines.more().await, "{}", lines.text);
    }
    let line: Value = serde_json::from_str(lines.text.trim_end()).expect("one line");
    assert_eq!((&line["asked"], &line["outcome"]), (&ABC_B3.into(), &"found".into()), "{line}");
    release.send_replace(true);
    while lines.more().await {}
    let asked: Vec<Value> = lines.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((asked.len(), &asked[1]["asked"]), (2, &late.into()), "{asked:?}");
}

/// Events of a stream until one of this kind came, with the data of that.
async fn event(node: &Member, path: &str, kind: &str, cause: impl AsyncFnOnce()) -> Value {
    let mut events = Arriving::of(node, Request::get(path), String::new(), "text/event-stream").await;
    let mut cause = Some(cause);
    loop {
        assert!(events.more().await, "the stream goes on");
        let text = &events.text;
        if text.contains("event: ready")
            && let Some(cause) = cause.take()
        {
            cause().await;
        }
        let found = text.split("\n\n").find_map(|event| {
            let data = event.strip_prefix(&format!("event: {kind}\ndata: "))?;
            serde_json::from_str(data).ok()
        });
        if let Some(data) = found {
            return data;
        }
    }
}

#[tokio::test]
async fn changes_are_heard_as_they_come() {
    let node = alone().await;
    let provider = event(&node, &format!("/watch/{ABC_CID}"), "provider", async || {
        provide_abc(&node).await;
    })
    .await;
    assert_eq!((&provider["provider"]["peer_id"], &provider["withdrawn"]), (&PEER.into(), &false.into()), "{provider}");
    let set = async || {
        let reply = node.ask(Method::PUT, "/names/site", &json!({"value": ABC_B3})).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    let name = event(&node, "/names/site/watch", "name", set).await;
    assert_eq!(name["name"]["value"], ABC_B3, "{name}");
}

#[tokio::test]
async fn what_is_said_of_the_node_itself_is_found_by_its_name() {
    let node = alone().await;
    let stats = node.ask(Method::GET, "/index/stats", &Value::Null).await.json().expect("JSON");
    assert_eq!(stats["node_key"], node.id.as_str(), "{stats}");
    let bearer = node.bearer();
    let own = crate::index::node::provide(&node, ABC_B3, &json!({})).await;
    assert_eq!(own["provider"]["peer_id"], stats["peer_id"], "{own}");
    assert_eq!(own["provider"]["vouched"], false, "it speaks for itself: {own}");
    let addrs = own["provider"]["addrs"].as_array().expect("a list");
    assert!(!addrs.is_empty(), "where it listens: {own}");
    assert_eq!(resolve(&node, ABC_B3).await["providers"][0]["peer_id"], stats["peer_id"]);
    let page = open(&node, Method::GET, "/index", &[], "").await;
    assert!(page.status == 200 && page.header("content-security-policy").starts_with("default-src 'none'"));
    for file in ["page.mjs", "course.mjs", "live.mjs", "page.css", "frame.css"] {
        assert_eq!(open(&node, Method::GET, &format!("/index/page/{file}"), &[], "").await.status, 200, "{file}");
    }
    let capacity = open(&node, Method::GET, "/index/capacity", &[("authorization", &bearer)], "").await;
    assert!(capacity.json().expect("JSON")["workers"].as_u64() > Some(0));
}
