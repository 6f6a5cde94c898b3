//! Bad input, each kind once: the exact status and code, the field named, and nothing changed by it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use testkit::{Client, MailboxClient, Node, Outgoing, Take};

use crate::options;
use testkit::{ask, eventually};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn refused(node: &Node, path: &str, body: &str) -> (u16, Value) {
    let bearer = format!("Bearer {}", node.token);
    let reply = ask(node.api, Method::POST, path, &[JSON, ("authorization", &bearer)], body.to_owned()).await;
    let reply = reply.expect("an answer");
    (reply.status, reply.json().expect("a problem body"))
}

#[tokio::test]
async fn malformed_requests_are_refused_by_name_and_change_nothing() {
    let node = options().start().await.expect("the node starts");
    let large = STANDARD.encode(vec![7; 1024 * 1024 + 1]);
    let long_name = "n".repeat(300);
    let many = vec![json!({"payload_b64": "aGk="}); 101];
    for (path, body, status, code, named) in [
        ("/v1/send", json!({"topic": "t", "payload_b64": large}), 413, "E_FRAME_TOO_LARGE", "payload"),
        ("/v1/send", json!({"topic": "t", "payload_b64": "not base64!"}), 400, "E_SCHEMA", "payload_b64"),
        ("/v1/send", json!({"topic": "t", "payload_b64": "aGk=", "colour": 1}), 400, "E_SCHEMA", "colour"),
        ("/v1/send", json!({"topic": "t"}), 400, "E_SCHEMA", "payload_b64"),
        ("/v1/send", json!({"topic": "a b", "payload_b64": "aGk="}), 400, "E_SCHEMA", "topic"),
        ("/v1/send", json!({"topic": "", "payload_b64": "aGk="}), 400, "E_SCHEMA", "topic"),
        ("/v1/send", json!({"topic": long_name, "payload_b64": "aGk="}), 400, "E_SCHEMA", "topic"),
        ("/v1/send", json!({"topic": "t", "payload_b64": "aGk=", "delay_ms": -1}), 400, "E_SCHEMA", "delay_ms"),
        ("/v1/send", json!({"topic": "t", "payload_b64": "aGk=", "idem_key": ""}), 400, "E_SCHEMA", "idem_key"),
        ("/v1/recv", json!({"topic": "t", "max_messages": 0}), 400, "E_SCHEMA", "max_messages"),
        ("/v1/recv", json!({"topic": "t", "max_messages": -5}), 400, "E_SCHEMA", "max_messages"),
        ("/v1/recv", json!({"topic": "t", "max_messages": 101}), 400, "E_SCHEMA", "max_messages"),
        ("/v1/recv", json!({"topic": "t", "wait_ms": 20001}), 400, "E_SCHEMA", "wait_ms"),
        ("/v1/recv", json!({"topic": "nowhere"}), 404, "E_NOT_FOUND", "nowhere"),
        ("/v1/ack", json!({"receipts": "x"}), 400, "E_SCHEMA", "receipts"),
        ("/v1/send:batch", json!({"topic": "t", "messages": many}), 400, "E_SCHEMA", "messages"),
    ] {
        let (got, problem) = refused(&node, path, &body.to_string()).await;
        let shown: String = body.to_string().chars().take(120).collect();
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{path} {shown}: {problem}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(named), "{path} {shown} names {named}: {problem}");
    }
    let mut mailbox = MailboxClient::of(&node).await.expect("the node listens");
    let topics = mailbox.get("/v1/topics").await.expect("listed");
    let held: u64 = match topics["topics"].as_array().expect("a list").is_empty() {
        true => 0,
        false => mailbox.held("t").await.expect("counted"),
    };
    assert_eq!(held, 0, "nothing was taken in");
}

#[tokio::test]
async fn receipts_are_good_once_for_their_lease_and_on_their_node() {
    let node = options().start().await.expect("the node starts");
    let mut mailbox = MailboxClient::of(&node).await.expect("the node listens");
    mailbox.send(Outgoing { topic: "t", payload: b"x", ..Outgoing::default() }).await.expect("sent");
    let take = Take { max: 1, visibility_ms: 300, wait_ms: 5_000 };
    let first = mailbox.recv("t", take).await.expect("received").remove(0);
    let error_of = |answer: Value| answer["results"][0]["error"].clone();
    for foreign in ["", "AAAA", "not a receipt"] {
        let answer = mailbox.post("/v1/ack", &json!({ "receipts": [foreign] })).await.expect("answered");
        assert_eq!(error_of(answer)["status"], 400, "{foreign:?}");
    }
    // The lease runs out and somebody else has the message: the first receipt is worth nothing.
    let long = Take { visibility_ms: 60_000, wait_ms: 20_000, ..take };
    let second = mailbox.recv("t", long).await.expect("received again").remove(0);
    let late = mailbox.post("/v1/ack", &json!({ "receipts": [first.receipt] })).await.expect("answered");
    assert_eq!(error_of(late)["status"], 404);
    assert_eq!(mailbox.ack(&[&second.receipt]).await.expect("answered"), [true]);
    let twice = mailbox.post("/v1/ack", &json!({ "receipts": [second.receipt] })).await.expect("answered");
    assert_eq!(error_of(twice)["status"], 404);

    let elsewhere = options().start().await.expect("another node starts");
    let mut other = MailboxClient::of(&elsewhere).await.expect("it listens");
    let foreign = other.post("/v1/ack", &json!({ "receipts": [second.receipt] })).await.expect("answered");
    assert_eq!(error_of(foreign)["status"], 400, "another node's receipt");
}

/// Mints a capability through the API.
async fn mint(mailbox: &mut MailboxClient, ops: &[&str], topics: &[&str], expires_in_ms: u64) -> String {
    let grant = json!({ "subject": "guest", "ops": ops, "topics": topics, "expires_in_ms": expires_in_ms });
    let minted = mailbox.post("/v1/tokens", &grant).await.expect("minted");
    minted["token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn capabilities_hold_for_what_they_say_and_no_longer() {
    let node = options().start().await.expect("the node starts");
    let mut operator = MailboxClient::of(&node).await.expect("the node listens");
    let token = mint(&mut operator, &["send"], &["orders"], 60_000).await;
    let mut guest = MailboxClient::connect(node.api, &token).await.expect("the node listens");
    let to = |topic| Outgoing { topic, payload: b"x", ..Outgoing::default() };
    guest.send(to("orders")).await.expect("within its scope");
    assert_eq!(guest.send(to("other")).await.expect_err("another topic").status(), Some(403));
    let take = Take { max: 1, visibility_ms: 1_000, wait_ms: 0 };
    assert_eq!(guest.recv("orders", take).await.expect_err("another operation").status(), Some(403));
    assert_eq!(guest.get("/v1/topics").await.expect_err("an operator's").status(), Some(403));
    let tampered: String = token.chars().rev().collect();
    for (bearer, status) in [(tampered.as_str(), 401), ("nonsense", 401), ("", 401)] {
        let mut stranger = MailboxClient::connect(node.api, bearer).await.expect("the node listens");
        assert_eq!(stranger.send(to("orders")).await.expect_err("no capability").status(), Some(status), "{bearer}");
    }
    let brief = mint(&mut operator, &["send"], &["orders"], 1).await;
    let expired = eventually("the end of the capability", async || {
        let mut late = MailboxClient::connect(node.api, &brief).await.ok()?;
        late.send(to("orders")).await.err().and_then(|error| error.status())
    });
    assert_eq!(expired.await, 401);
}

#[tokio::test]
async fn a_capability_revoked_in_mid_stream_ends_the_stream() {
    let node = options().start().await.expect("the node starts");
    let mut operator = MailboxClient::of(&node).await.expect("the node listens");
    operator.send(Outgoing { topic: "t", payload: b"x", ..Outgoing::default() }).await.expect("sent");
    let token = mint(&mut operator, &["recv"], &["t"], 600_000).await;
    let bearer = format!("Bearer {token}");
    let body = json!({ "topic": "t", "credit": 10 }).to_string();
    let streaming = async {
        let mut client = Client::connect(node.api).await.expect("the node listens");
        let headers = [JSON, ("authorization", bearer.as_str())];
        client.request(Method::POST, "/v1/recv/stream", &headers, body).await.expect("the stream ends well").text()
    };
    let revoking = async {
        let delivered = async || operator.stats("t").await.ok().filter(|total| total["leased"] == 1);
        eventually("the delivery", delivered).await;
        let revoke = std::process::Command::new(env!("CARGO_BIN_EXE_macronode"))
            .args(["token", "revoke", "--token", &token, "--data-dir"])
            .arg(node.data_dir())
            .output()
            .expect("the binary runs");
        assert!(revoke.status.success(), "{}", String::from_utf8_lossy(&revoke.stderr));
    };
    let (streamed, ()) = tokio::join!(streaming, revoking);
    let last = streamed.lines().last().unwrap_or_default();
    assert!(streamed.contains("msg_id") && last.contains(r#""end":"revoked""#), "{streamed}");
}

#[tokio::test]
async fn ten_thousand_topics_are_held_and_listed_in_pages() {
    let node = options().start().await.expect("the node starts");
    let mut mailbox = MailboxClient::of(&node).await.expect("the node listens");
    let count = if testkit::soak() { 10_000 } else { 1_000 };
    for number in 0..count {
        let topic = format!("t{number}");
        mailbox.send(Outgoing { topic: &topic, payload: b"x", ..Outgoing::default() }).await.expect("sent");
    }
    let (mut listed, mut after) = (0, String::new());
    loop {
        let page = mailbox.get(&format!("/v1/topics?limit=500{after}")).await.expect("listed");
        listed += page["topics"].as_array().expect("a list").len();
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(listed, count);
}
