//! The rules of callers over frames: the shares are those of HTTP, tokens cost no more, and revoked ones end at once.

use bytes::Bytes;
use oap::{AppId, Frame, status};
use serde_json::{Value, json};
use testkit::Node;
use testkit::frames::RawSession;

use super::{SLACK, make_topic, tenant};
use crate::hardening::tokens::{append, bomb};
use crate::options;

const SEND: u8 = 1;
const RECV: u8 = 2;

fn request(corr: u64, op: u8, head: &Value, body: &[u8]) -> Frame {
    let head = head.to_string();
    let payload = [&[op][..], &(head.len() as u32).to_be_bytes(), head.as_bytes(), body].concat();
    Frame::request(AppId::MAILBOX, corr, Bytes::from(payload))
}

fn long_poll(corr: u64) -> Frame {
    request(corr, RECV, &json!({"topic": "idle", "wait_ms": 20_000, "deadline_ms": 30_000}), b"")
}

fn send(corr: u64, body: &[u8]) -> Frame {
    request(corr, SEND, &json!({"topic": "idle", "messages": [{"len": body.len()}]}), body)
}

async fn session(node: &Node, token: &str) -> RawSession {
    RawSession::hello(node.oap, token).await
}

async fn answer(raw: &mut RawSession) -> Frame {
    tokio::time::timeout(SLACK, raw.answer()).await.expect("an answer at once").expect("the session lives")
}

async fn waiting(node: &Node, wanted: f64) {
    testkit::eventually("waits", async || (node.metric("http_waiting").await == wanted).then_some(())).await;
}

#[tokio::test]
async fn rule_09_waits_over_frames_have_the_shares_of_all_waits() {
    let node = options().amnesia().config("[http]\nwaiting_max = 16\n").start().await.expect("started");
    make_topic(&node, "idle").await;
    let (greedy, honest) = (tenant(&node, "greedy").await, tenant(&node, "honest").await);
    // Sessions cost a tenant nothing, so that there are many changes nothing.
    let mut sessions = Vec::new();
    for number in 0..4 {
        let mut raw = session(&node, &greedy).await;
        for corr in 1..=8 {
            raw.write(&long_poll(corr).to_bytes()).await;
        }
        for _ in 0..if number == 0 { 0 } else { 8 } {
            let refused = answer(&mut raw).await;
            assert_eq!(refused.code, status::BUSY, "half is held: {refused:?}");
        }
        sessions.push(raw);
        waiting(&node, 8.0).await;
    }
    // The share is one on both planes.
    let wait = [("POST /v1/recv", &greedy, true), ("POST /v1/recv", &honest, false)];
    for (line, token, is_refused) in wait {
        let headers = format!("content-type: application/json\r\nauthorization: Bearer {token}\r\n");
        let asked = (line, headers, r#"{"topic":"idle","wait_ms":100}"#);
        let mut stream = super::begin_wait(&node, &asked).await;
        let head = tokio::time::timeout(SLACK, super::read_head(&mut stream)).await.expect("answered");
        assert_eq!(head.starts_with("HTTP/1.1 429 "), is_refused, "{head}");
    }
    let mut other = session(&node, &honest).await;
    other.write(&long_poll(1).to_bytes()).await;
    waiting(&node, 9.0).await;
    drop(sessions);
    waiting(&node, 1.0).await;
}

#[tokio::test]
async fn rule_11_payloads_of_frames_have_the_budget_of_all_bodies() {
    let config = "[http]\nmax_body_bytes = \"64KiB\"\nbody_memory = \"256KiB\"\n";
    let node = options().amnesia().config(config).start().await.expect("started");
    make_topic(&node, "idle").await;
    let token = tenant(&node, "greedy").await;
    let mut raw = session(&node, &token).await;
    raw.write(&send(1, &vec![7; 300 * 1024]).to_bytes()).await;
    assert_eq!(answer(&mut raw).await.code, status::BUSY, "more than the memory for bodies");
    raw.write(&send(2, &vec![7; 100 * 1024]).to_bytes()).await;
    assert_eq!(answer(&mut raw).await.code, status::OK);
    assert_eq!(node.metric("http_body_bytes").await, 0.0, "given back with the answer");
}

#[tokio::test]
async fn rule_01_a_token_over_frames_costs_no_more_than_its_size() {
    let node = options().start().await.expect("started");
    make_topic(&node, "idle").await;
    let good = tenant(&node, "honest").await;
    let mut honest = session(&node, &good).await;
    let regular = "check if resource($r), $r.matches(\"(a*)*b\");";
    let bombs = [append(&good, &bomb()), append(&good, regular), append(&good, "check if operation(\"x\") or true;")];
    for (corr, token) in (1..).zip(bombs.iter().cycle().take(12)) {
        // Once as the token of the session, once as that of a request.
        let mut shown = session(&node, token).await;
        shown.write(&send(1, b"x").to_bytes()).await;
        let mut carried = session(&node, &good).await;
        carried.write(&send(1, b"x").with_cap(token.clone()).to_bytes()).await;
        honest.write(&send(corr, b"x").to_bytes()).await;
        for raw in [&mut shown, &mut carried] {
            assert_eq!(answer(raw).await.code, status::UNAUTHENTICATED);
        }
        assert_eq!(answer(&mut honest).await.code, status::OK);
    }
}

#[tokio::test]
async fn rule_01_a_token_revoked_in_mid_session_ends_what_the_session_may() {
    let node = options().start().await.expect("started");
    make_topic(&node, "idle").await;
    let token = tenant(&node, "leaver").await;
    let mut raw = session(&node, &token).await;
    raw.write(&send(1, b"x").to_bytes()).await;
    assert_eq!(answer(&mut raw).await.code, status::OK);
    let id = ron_auth::inspect(&token).expect("read").blocks[0].revocation_id.clone();
    ron_auth::Revocations::append(&node.data_dir().join(ron_auth::REVOKED_FILE), &id, "").expect("revoked");
    let mut corr = 1;
    testkit::eventually("the list is taken up", async || {
        corr += 1;
        raw.write(&send(corr, b"x").to_bytes()).await;
        (answer(&mut raw).await.code == status::UNAUTHENTICATED).then_some(())
    })
    .await;
    // From then on the open session is as good as none.
    for frame in [send(100_000, b"x"), long_poll(100_001), request(100_002, 3, &json!({"receipts": ["none"]}), b"")] {
        raw.write(&frame.to_bytes()).await;
        assert_eq!(answer(&mut raw).await.code, status::UNAUTHENTICATED);
    }
}
