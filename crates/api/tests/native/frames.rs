//! The mailbox over OAP frames, against a real mailbox and a real authority.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use oap::{AppId, Frame};
use ron_api::frames::{Answer, Caller, FrameSurface, Reply};
use ron_api::{HttpLimits, SharedShares, mailbox_frames};
use ron_auth::{Grant, ResourceScope, Right};
use ron_kernel::{Meter, Metrics, Snapshot};
use ron_transport::Remote;
use serde_json::{Value, json};
use svc_mailbox::capabilities;

use crate::harness::{Node, within};

const SEND: u8 = 1;
const RECV: u8 = 2;
const ACK: u8 = 3;
const NACK: u8 = 4;
const EXTEND: u8 = 5;

/// A session with the surface.
struct Session {
    surface: Arc<dyn FrameSurface>,
    caller: Caller,
}

/// An answer taken apart.
#[derive(Debug)]
struct Told {
    code: u16,
    head: Value,
    bodies: Vec<u8>,
}

fn meter() -> Meter {
    let meter = Meter::new(&Metrics::new());
    meter.begin();
    meter
}

fn session(node: &Node, token: Option<&str>, meter: &Meter) -> Session {
    let shares = SharedShares::new(Snapshot::new(HttpLimits::default()), &Metrics::new());
    session_sharing(node, token, meter, shares)
}

fn session_sharing(node: &Node, token: Option<&str>, meter: &Meter, shares: Arc<SharedShares>) -> Session {
    let surface = mailbox_frames(node.mailbox.clone(), node.authority.clone(), meter);
    let caller = Caller::new(Remote::Client, IpAddr::V4(Ipv4Addr::LOCALHOST), token, shares);
    Session { surface, caller }
}

fn payload(op: u8, head: &Value, bodies: &[&[u8]]) -> Bytes {
    let (mut out, head) = (BytesMut::new(), head.to_string());
    out.put_u8(op);
    out.put_u32(head.len() as u32);
    out.put_slice(head.as_bytes());
    bodies.iter().for_each(|body| out.put_slice(body));
    out.freeze()
}

fn told(reply: Reply) -> Told {
    let Reply { code, payload } = reply;
    if code != 200 {
        return Told { code, head: serde_json::from_slice(&payload).expect("a problem"), bodies: Vec::new() };
    }
    let head_len = u32::from_be_bytes(payload[1..5].try_into().expect("four bytes")) as usize;
    let (head, bodies) = payload[5..].split_at(head_len);
    Told { code, head: serde_json::from_slice(head).expect("a head"), bodies: bodies.to_vec() }
}

fn digits(hash: &[u8; 32]) -> String {
    format!("b3:{}", blake3::Hash::from_bytes(*hash).to_hex())
}

fn chained(before: &[u8; 32], payloads: &[&[u8]]) -> [u8; 32] {
    let hashes: Vec<u8> = payloads.iter().flat_map(|payload| *blake3::hash(payload).as_bytes()).collect();
    *blake3::hash(&[&before[..], blake3::hash(&hashes).as_bytes()].concat()).as_bytes()
}

impl Session {
    async fn reply_to(&self, payload: Bytes, cap: &str) -> Reply {
        let request = Frame::request(AppId::MAILBOX, 1, payload).with_cap(cap.to_owned());
        match self.surface.answer(&self.caller, request) {
            Answer::Now(reply) => reply,
            Answer::Later(later) | Answer::Waiting(later) => within(later).await,
        }
    }

    async fn ask_raw(&self, payload: Bytes, cap: &str) -> Told {
        told(self.reply_to(payload, cap).await)
    }

    async fn ask(&self, op: u8, head: Value, bodies: &[&[u8]]) -> Told {
        self.ask_raw(payload(op, &head, bodies), "").await
    }

    async fn send(&self, topic: &str, bodies: &[&[u8]]) -> Told {
        let messages: Vec<Value> = bodies.iter().map(|body| json!({"len": body.len()})).collect();
        self.ask(SEND, json!({"topic": topic, "messages": messages}), bodies).await
    }

    async fn receipts(&self, topic: &str, count: usize) -> Vec<String> {
        let told = self.ask(RECV, json!({"topic": topic, "max_messages": count}), &[]).await;
        let messages = told.head["messages"].as_array().expect("messages");
        messages.iter().map(|message| message["receipt"].as_str().expect("a receipt").to_owned()).collect()
    }
}

impl Told {
    fn results(&self) -> &[Value] {
        self.head["results"].as_array().unwrap_or_else(|| panic!("results in {self:?}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_messages_go_in_as_one_batch_and_come_out_whole() {
    let (node, meter) = (Node::start().await, meter());
    let session = session(&node, Some(&node.token), &meter);
    let bodies: Vec<Vec<u8>> = (0..1024_u32).map(|number| [&number.to_be_bytes()[..], &[7; 60]].concat()).collect();
    let borrowed: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
    let sent = session.send("t", &borrowed).await;
    assert_eq!((sent.code, sent.results().len()), (200, 1024));
    assert!(sent.results().iter().all(|result| result["msg_id"].is_string()), "{:?}", sent.head);

    let (mut chain, mut received) = ([0; 32], Vec::new());
    for batch in 1.. {
        let told = session.ask(RECV, json!({"topic": "t", "max_messages": 100, "visibility_ms": 60_000}), &[]).await;
        let messages = told.head["messages"].as_array().expect("messages");
        let mut rest = &told.bodies[..];
        let mut payloads = Vec::new();
        for message in messages {
            let (body, later) = rest.split_at(message["len"].as_u64().expect("a length") as usize);
            assert_eq!(message["payload_hash"], digits(blake3::hash(body).as_bytes()));
            assert!(message["hash_chain"].as_str().is_some_and(|hash| hash.starts_with("b3:")));
            payloads.push(body);
            rest = later;
        }
        assert!(rest.is_empty());
        chain = chained(&chain, &payloads);
        assert_eq!((&told.head["batch"], &told.head["batch_chain"]), (&json!(batch), &json!(digits(&chain))));
        if messages.is_empty() {
            break;
        }
        received.extend(payloads.into_iter().map(<[u8]>::to_vec));
        let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
        let acked = session.ask(ACK, json!({"receipts": receipts}), &[]).await;
        assert!(acked.results().iter().all(|result| result["ok"] == true), "{acked:?}");
    }
    assert_eq!(received, bodies, "all of them, once and in order");
    let mut counted = BTreeMap::new();
    meter.take(&mut |tenant, metric, amount| {
        counted.insert((tenant.to_owned(), metric), amount);
    });
    let count = |metric| counted.get(&("someone".to_owned(), metric)).copied();
    for (metric, expected) in [
        ("mailbox.messages_sent", 1024),
        ("mailbox.bytes_sent", 1024 * 64),
        ("mailbox.messages_received", 1024),
        ("mailbox.messages_acknowledged", 1024),
    ] {
        assert_eq!(count(metric), Some(expected), "{metric}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_counts_attributes_as_it_counts_payloads() {
    let (node, meter) = (Node::start().await, meter());
    let session = session(&node, Some(&node.token), &meter);
    let message = json!({"len": 2, "attrs": {"name": "value"}});
    assert_eq!(session.ask(SEND, json!({"topic": "t", "messages": [message]}), &[b"hi"]).await.code, 200);
    assert_eq!(session.receipts("t", 1).await.len(), 1);
    let mut counted = BTreeMap::new();
    meter.take(&mut |_, metric, amount| {
        counted.insert(metric, amount);
    });
    let count = |metric| counted.get(metric).copied();
    assert_eq!((count("mailbox.bytes_sent"), count("mailbox.bytes_received")), (Some(11), Some(11)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_message_carries_comes_out_as_over_http() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    let message = json!({"len": 2, "idem_key": "k", "group": "g", "attrs": {"a": "b"}, "delay_ms": 0,
        "payload_hash": digits(blake3::hash(b"hi").as_bytes())});
    let head = json!({"topic": "t", "messages": [message], "corr_id": "c-1", "min_durability": "ram"});
    let first = session.ask(SEND, head.clone(), &[b"hi"]).await;
    assert!(first.results()[0].get("duplicate").is_none(), "{first:?}");
    let again = session.ask(SEND, head, &[b"hi"]).await;
    assert_eq!(again.results()[0], json!({"msg_id": first.results()[0]["msg_id"], "duplicate": true}));

    let over_frames = session.ask(RECV, json!({"topic": "t", "visibility_ms": 60_000}), &[]).await;
    let message = &over_frames.head["messages"][0];
    for (field, expected) in
        [("idem_key", json!("k")), ("group", json!("g")), ("attrs", json!({"a": "b"})), ("corr_id", json!("c-1"))]
    {
        assert_eq!(message[field], expected, "{field}");
    }
    let extended = session.ask(EXTEND, json!({"receipts": [message["receipt"]], "visibility_ms": 0}), &[]).await;
    assert!(extended.results()[0]["until_ts"].is_u64(), "{extended:?}");
    let over_http = node.ok("POST", "/v1/recv", json!({"topic": "t", "visibility_ms": 60_000})).await;
    let same = &over_http["messages"][0];
    for field in ["msg_id", "ts", "payload_hash", "hash_chain", "idem_key", "attrs", "first_received_ts"] {
        assert_eq!(same[field], message[field], "{field}");
    }
    let acked = session.ask(ACK, json!({"receipts": [same["receipt"], message["receipt"], "none"]}), &[]).await;
    let results = acked.results();
    assert_eq!(results[0], json!({"ok": true}), "a receipt is one whichever surface gave it");
    assert!(results[1]["error"]["code"].is_string() && results[2]["error"]["status"] == 400, "{acked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_not_what_was_sent_is_refused() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    let hash = |body: &[u8]| digits(blake3::hash(body).as_bytes());
    let send = async |body: &[u8], payload_hash: Option<String>, chain: Option<[u8; 32]>| {
        let message = json!({"len": body.len(), "payload_hash": payload_hash});
        let head = json!({"topic": "t", "messages": [message], "batch_chain": chain.as_ref().map(digits)});
        session.ask(SEND, head, &[body]).await
    };
    let refused = send(b"b", Some(hash(b"a")), None).await;
    assert_eq!((refused.code, &refused.head["code"]), (422, &json!("E_INTEGRITY")), "{refused:?}");

    let first = chained(&[0; 32], &[b"one"]);
    let second = chained(&first, &[b"two"]);
    assert_eq!(send(b"two", None, Some(second)).await.code, 422, "the first is missing");
    assert_eq!(send(b"one", Some(hash(b"one")), Some(first)).await.code, 200);
    assert_eq!(send(b"plain", None, None).await.code, 200, "a batch outside the chain");
    assert_eq!(send(b"one", None, Some(first)).await.code, 422, "again");
    assert_eq!(send(b"two", None, Some(second)).await.code, 200);
    let received = session.ask(RECV, json!({"topic": "t", "max_messages": 10}), &[]).await;
    assert_eq!(received.bodies, b"oneplaintwo", "what was refused is not in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_learn_nothing_and_tokens_hold() {
    let node = Node::start().await;
    let mint = |action, topic: &str, expires_ms| {
        let rights = vec![Right::new(action, ResourceScope::Exact(topic.to_owned()))];
        let grant = Grant { subject: "narrow".to_owned(), rights, expires_ms, ..Grant::default() };
        node.authority.mint(&grant).expect("a token")
    };
    let stranger = session(&node, None, &meter());
    assert_eq!(stranger.ask_raw(Bytes::from_static(b"\xff"), "").await.code, 401, "before the payload is read");
    assert_eq!(stranger.ask_raw(Bytes::from_static(b"\xff"), "nonsense").await.code, 401);
    assert_eq!(stranger.ask_raw(Bytes::from_static(b"\xff"), "a b").await.code, 401);
    assert_eq!(stranger.ask_raw(Bytes::from_static(b"\xff"), &node.token).await.code, 400, "known, and not understood");

    let narrow = session(&node, Some(&mint(capabilities::SEND, "mine", None)), &meter());
    assert_eq!(narrow.send("mine", &[b"x"]).await.code, 200);
    assert_eq!(narrow.send("other", &[b"x"]).await.code, 403);
    assert_eq!(narrow.ask(RECV, json!({"topic": "mine"}), &[]).await.code, 403);
    let head = json!({"topic": "mine", "visibility_ms": 60_000});
    let received = narrow.ask_raw(payload(RECV, &head, &[]), &node.token).await;
    assert_eq!(received.code, 200, "the token of the frame goes before the session's");
    let receipt = received.head["messages"][0]["receipt"].clone();
    assert_eq!(narrow.ask(ACK, json!({"receipts": [receipt]}), &[]).await.code, 403);

    // A token that ran out holds nothing longer.
    let late = session(&node, Some(&mint(capabilities::ACK, "mine", Some(ron_kernel::clock::unix_millis()))), &meter());
    let extended = late.ask(EXTEND, json!({"receipts": [receipt], "visibility_ms": 9_000}), &[]).await;
    assert_eq!(extended.code, 401, "{extended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_ends_what_its_session_may() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    assert_eq!(session.send("t", &[b"x"]).await.code, 200);
    let inspected = ron_auth::inspect(&node.token).expect("a token");
    node.authority.set_revoked(inspected.blocks.iter().map(|block| block.revocation_id.clone()));
    assert_eq!(session.send("t", &[b"x"]).await.code, 401);
    assert_eq!(session.ask(ACK, json!({"receipts": ["none"]}), &[]).await.code, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_out_of_their_bounds_are_refused_and_change_nothing() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    session.send("t", &[b"stays"]).await;
    let messages = |count: usize| json!({"topic": "t", "messages": vec![json!({"len": 0}); count]});
    let one = json!([{"len": 1}]);
    let raw = |bytes: &'static [u8]| Bytes::from_static(bytes);
    for (payload, what) in [
        (raw(b""), "nothing"),
        (raw(b"\x01\0\0\0"), "half a length"),
        (raw(b"\x01\0\0\0\x03{}"), "a head that is not there"),
        (raw(b"\x01\xff\xff\xff\xff{}"), "a head of 4 GiB"),
        (raw(b"\0\0\0\0\x02{}"), "operation 0"),
        (raw(b"\x06\0\0\0\x02{}"), "operation 6"),
        (raw(b"\x01\0\0\0\x01{}"), "a head that is no JSON"),
        (payload(SEND, &messages(0), &[]), "no messages"),
        (payload(SEND, &messages(1025), &[]), "too many messages"),
        (payload(SEND, &json!({"topic": "t", "messages": one}), &[]), "a body too few"),
        (payload(SEND, &json!({"topic": "t", "messages": one}), &[b"xy"]), "a byte too many"),
        (payload(SEND, &json!({"topic": "t", "messages": [{"len": u64::MAX}, {"len": 1}]}), &[b"x"]), "a huge length"),
        (payload(SEND, &json!({"topic": "t", "messages": [{"len": -1}]}), &[b"x"]), "a length below zero"),
        (payload(SEND, &json!({"topic": "t", "messages": one, "more": 1}), &[b"x"]), "an unknown field"),
        (payload(SEND, &json!({"topic": "/", "messages": one}), &[b"x"]), "no name of a topic"),
        (payload(SEND, &json!({"topic": "t", "messages": one, "deadline_ms": 0}), &[b"x"]), "no time"),
        (payload(SEND, &json!({"topic": "t", "messages": one, "min_durability": "x"}), &[b"x"]), "no durability"),
        (payload(SEND, &json!({"topic": "t", "messages": one, "batch_chain": "b3:00"}), &[b"x"]), "half a hash"),
        (payload(RECV, &json!({"topic": "t", "max_messages": 101}), &[]), "too many at once"),
        (payload(RECV, &json!({"topic": "t", "max_messages": 0}), &[]), "none at once"),
        (payload(RECV, &json!({"topic": "t", "max_bytes": 1_048_577}), &[]), "too many bytes"),
        (payload(RECV, &json!({"topic": "t", "wait_ms": 20_001}), &[]), "too long a wait"),
        (payload(RECV, &json!({"topic": "t", "visibility_ms": 1}), &[]), "too short a lease"),
        (payload(RECV, &json!({"topic": "t"}), &[b"x"]), "a body where there is none"),
        (payload(ACK, &json!({"receipts": []}), &[]), "no receipts"),
        (payload(ACK, &json!({"receipts": vec!["r"; 1025]}), &[]), "too many receipts"),
        (payload(NACK, &json!({"receipts": ["r"], "delay_ms": u64::MAX}), &[]), "too long a delay"),
    ] {
        let refused = session.ask_raw(payload, "").await;
        assert_eq!((refused.code, &refused.head["status"]), (400, &json!(400)), "{what}: {refused:?}");
    }
    let seen = node.ok("POST", "/v1/topics/t/browse", json!({})).await;
    assert_eq!(seen["messages"].as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(session.ask(RECV, json!({"topic": "absent"}), &[]).await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_fill_the_share_of_their_caller_until_they_have_left_and_cost_no_delivery() {
    let (node, metrics) = (Node::start().await, Metrics::new());
    // One answer takes a quarter at most, and one caller half.
    let limits = HttpLimits { answer_memory_bytes_max: 4 << 20, ..HttpLimits::default() };
    let shares = SharedShares::new(Snapshot::new(limits), &metrics);
    let session = session_sharing(&node, Some(&node.token), &meter(), shares);
    let receive = payload(RECV, &json!({"topic": "t", "max_bytes": 1 << 20, "visibility_ms": 60_000}), &[]);
    let mut replies = Vec::new();
    for _ in 0..3 {
        session.send("t", &[&[7; 512 << 10]]).await;
        replies.push(session.reply_to(receive.clone(), "").await);
    }
    assert!(replies.iter().all(|reply| reply.code == 200));
    let held = &metrics.http_answer_bytes;
    assert!((3 * (512 << 10)..1_600_000).contains(&held.get()), "{}", held.get());

    session.send("t", &[&[7; 1 << 20]]).await;
    let refused = session.ask_raw(receive.clone(), "").await;
    assert_eq!((refused.code, &refused.head["code"]), (429, &json!("E_SATURATED")), "{refused:?}");
    assert_eq!(metrics.busy_rejections.at("answer_memory").get(), 1);
    let stats = node.ok("GET", "/v1/topics/t/stats", Value::Null).await;
    assert_eq!((&stats["total"]["leased"], &stats["total"]["ready"]), (&json!(3), &json!(1)), "{stats}");

    // As frames on their way hold parts of a reply.
    let last = replies.iter_mut().map(|reply| reply.payload.split_off(reply.payload.len() - 1)).next_back();
    drop(replies);
    assert!((512 << 10..1 << 20).contains(&held.get()), "what has not left is held: {}", held.get());
    drop(last);
    assert_eq!(held.get(), 0);
    let received = session.ask_raw(receive, "").await;
    let message = &received.head["messages"][0];
    assert_eq!(
        (&message["attempt"], &received.head["batch"]),
        (&json!(1), &json!(4)),
        "what was refused was no delivery"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_given_back_rejected_and_prolonged() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    session.send("t", &[b"a", b"b", b"c"]).await;
    let receipts = session.receipts("t", 3).await;
    let nacked = session.ask(NACK, json!({"receipts": [receipts[0]], "reason": "no", "delay_ms": 5}), &[]).await;
    assert!(nacked.results()[0]["due_ts"].is_u64(), "{nacked:?}");
    let rejected = session.ask(NACK, json!({"receipts": [receipts[1]], "reject": true}), &[]).await;
    assert_eq!(rejected.results(), [json!({"dead": true})]);
    let held = session.ask(EXTEND, json!({"receipts": [receipts[2]], "visibility_ms": 60_000}), &[]).await;
    assert!(held.results()[0]["until_ts"].is_u64(), "{held:?}");
    assert!(session.ask(NACK, json!({"receipts": [receipts[0]]}), &[]).await.results()[0]["error"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_waits_for_a_message_without_holding_the_session() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    session.send("t", &[b"first"]).await;
    session.receipts("t", 1).await;
    let waiting = payload(RECV, &json!({"topic": "t", "wait_ms": 20_000}), &[]);
    let request = Frame::request(AppId::MAILBOX, 2, waiting);
    let Answer::Waiting(later) = session.surface.answer(&session.caller, request) else { panic!("nothing is there") };
    let (received, sent) = tokio::join!(within(later), session.send("t", &[b"second"]));
    assert_eq!(sent.code, 200);
    assert_eq!(told(received).bodies, b"second");
}

/// A receive that its client cancels leaves nobody on the node who takes messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_that_is_cancelled_takes_no_message() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    node.ok("PUT", "/v1/topics/t", json!({})).await;
    for number in 0..20 {
        let waiting = payload(RECV, &json!({"topic": "t", "wait_ms": 20_000}), &[]);
        let request = Frame::request(AppId::MAILBOX, number, waiting);
        let Answer::Waiting(receiving) = session.surface.answer(&session.caller, request) else { panic!("a message") };
        drop(receiving);
    }
    assert_eq!(session.send("t", &[b"one"]).await.code, 200);
    let received = session.ask(RECV, json!({"topic": "t", "wait_ms": 20_000}), &[]).await;
    assert_eq!((received.bodies.as_slice(), &received.head["messages"][0]["attempt"]), (&b"one"[..], &json!(1)));
    assert_eq!(received.head["batch"], 1, "what was cancelled is not in the chain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_message_comes_out_in_several_frames() {
    let node = Node::start().await;
    let session = session(&node, Some(&node.token), &meter());
    let body = "eHh4".repeat((1 << 20) / 3 + 1);
    let body = &body[..(1 << 20) / 3 * 4];
    node.ok("POST", "/v1/send", json!({"topic": "t", "payload_b64": body})).await;
    let request = Frame::request(AppId::MAILBOX, 9, payload(RECV, &json!({"topic": "t"}), &[]));
    let reply = match session.surface.answer(&session.caller, request) {
        Answer::Now(reply) => reply,
        Answer::Later(later) | Answer::Waiting(later) => within(later).await,
    };
    assert_eq!(reply.clone().into_frames(AppId::MAILBOX, 9, 1 << 20).count(), 2);
    assert_eq!(told(reply).bodies, vec![b'x'; (1 << 20) / 3 * 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_make_a_topic_keep_their_order() {
    let node = Node::start().await;
    for attempt in 0..20 {
        let (session, topic) = (session(&node, Some(&node.token), &meter()), format!("new-{attempt}"));
        let mut begun = Vec::new();
        for number in 0..10_u8 {
            let head = json!({"topic": topic, "messages": [{"len": 1}, {"len": 1}]});
            let request = Frame::request(AppId::MAILBOX, number.into(), payload(SEND, &head, &[&[number], &[number]]));
            begun.push(session.surface.answer(&session.caller, request));
        }
        let replies = begun.into_iter().map(|answer| async {
            match answer {
                Answer::Now(reply) => reply,
                Answer::Later(later) | Answer::Waiting(later) => within(later).await,
            }
        });
        for reply in futures_util::future::join_all(replies).await {
            assert_eq!(reply.code, 200);
        }
        let received = session.ask(RECV, json!({"topic": topic, "max_messages": 100}), &[]).await;
        assert_eq!(received.bodies, (0..10).flat_map(|number| [number, number]).collect::<Vec<u8>>());
    }
}

/// Requests that are begun and not answered hold permits, of which a subject has a share whatever its sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_frames_have_shares_of_subjects_and_addresses() {
    let node = Node::start().await;
    let limits = HttpLimits { route_concurrency_max: 2, ..HttpLimits::default() };
    let shares = SharedShares::new(Snapshot::new(limits), &Metrics::new());
    let of = |subject: &str| {
        let rights = vec![Right::new(capabilities::SEND, ResourceScope::Any)];
        let grant = Grant { subject: subject.to_owned(), rights, ..Grant::default() };
        let token = node.authority.mint(&grant).expect("a token");
        session_sharing(&node, Some(&token), &meter(), Arc::clone(&shares))
    };
    node.ok("PUT", "/v1/topics/t", json!({})).await;
    let begin = |session: &Session| {
        let request = payload(SEND, &json!({"topic": "t", "messages": [{"len": 1}]}), &[b"x"]);
        session.surface.answer(&session.caller, Frame::request(AppId::MAILBOX, 1, request))
    };
    let (mut in_line, mut held) = (Vec::new(), Vec::new());
    for _session in 0..4 {
        let session = of("greedy");
        // Somebody of the session makes what its requests need, and takes long over it.
        let caller = session.caller.clone();
        let mut making = Box::pin(async move { caller.in_order(|| false, std::future::pending::<()>()).await });
        assert!(futures_util::poll!(&mut making).is_pending());
        in_line.push(making);
        match begin(&session) {
            Answer::Later(later) => held.push(later),
            Answer::Now(reply) => panic!("{reply:?}"),
            Answer::Waiting(_) => panic!("a send is not waited for"),
        }
    }
    let Answer::Now(refused) = begin(&of("greedy")) else { panic!("half of eight is held") };
    assert_eq!(told(refused).code, 429);
    let sent = |answer: Answer| match answer {
        Answer::Now(reply) => told(reply).code,
        Answer::Later(_) | Answer::Waiting(_) => panic!("nobody is in line"),
    };
    assert_eq!(sent(begin(&of("honest"))), 200, "another has a share");
    drop(in_line);
    for later in held {
        assert_eq!(told(within(later).await).code, 200);
    }
    assert_eq!(sent(begin(&of("greedy"))), 200, "what was held is free");
}
