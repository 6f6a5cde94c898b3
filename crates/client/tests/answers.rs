//! What a client makes of a node's answers, and of their absence, with a node that says what the test tells it.

use std::future::Future;
use std::time::Duration;

use macronode_client::{Error, Mailbox, Message, Options, Receive};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A listener and the options that lead there, with one connection for sends and acknowledgements.
async fn node() -> (TcpListener, Options) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    (listener, Options { connections: 1, patience: Duration::from_secs(30), ..Options::new(url, "secret") })
}

/// The connection that carries sends and acknowledgements, and the one that a receive has for itself.
async fn connections(listener: &TcpListener) -> [TcpStream; 2] {
    let (carrier, _) = listener.accept().await.expect("a client");
    let (receiver, _) = listener.accept().await.expect("a receive has its own connection");
    [carrier, receiver]
}

/// The next request: its path and its body. None when the client has gone.
async fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            assert!(head.contains("authorization: bearer secret"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            let length: usize = length.parse().expect("a number");
            if bytes.len() >= end + 4 + length {
                let path = head.split(' ').nth(1).expect("a path").to_owned();
                return Some((path, serde_json::from_slice(&bytes[end + 4..]).expect("JSON")));
            }
        }
        if stream.read_buf(&mut bytes).await.expect("a stream") == 0 {
            return None;
        }
    }
}

async fn answer(stream: &mut TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.expect("a client");
}

fn sent(id: &str) -> Value {
    json!({"msg_id": id, "duplicate": false, "durability": "fsynced"})
}

/// Runs both sides; the node's side must come to its end.
async fn both<T>(node: impl Future<Output = ()>, client: impl Future<Output = T>) -> T {
    tokio::join!(node, client).1
}

#[tokio::test]
async fn a_lone_send_leaves_at_once_and_what_comes_meanwhile_goes_together() {
    let (listener, options) = node().await;
    let (arrived, waiting) = (Notify::new(), Notify::new());
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let (path, body) = request(&mut stream).await.expect("the first");
        assert_eq!(
            (path.as_str(), &body),
            ("/v1/send:batch", &json!({"topic": "a", "messages": [{"payload_b64": "MA=="}]}))
        );
        arrived.notify_one();
        waiting.notified().await;
        answer(&mut stream, 200, &json!({"results": [sent("0")]})).await;
        let (_, body) = request(&mut stream).await.expect("the others");
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(3), "{body}");
        let late = json!({"error": {"code": "E_CONFLICT", "status": 409, "detail": "another payload"}});
        answer(&mut stream, 200, &json!({"results": [sent("1"), late, sent("3")]})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let first = mailbox.send("a", "0");
        let others = async {
            arrived.notified().await;
            let sends = (mailbox.send("a", "1"), mailbox.send("a", "2"), mailbox.send("a", "3"));
            // Looked at in this order: all three wait when the node goes on.
            tokio::join!(sends.0, sends.1, sends.2, async { waiting.notify_one() })
        };
        let (first, (one, two, three, ())) = tokio::join!(first, others);
        assert_eq!(first.expect("sent").msg_id, "0");
        assert_eq!((one.expect("sent").msg_id, three.expect("sent").msg_id), ("1".to_owned(), "3".to_owned()));
        assert_eq!(two.expect_err("refused").code(), Some("E_CONFLICT"));
    };
    both(node, client).await;
}

#[tokio::test]
async fn what_is_wrong_with_one_is_not_told_to_the_others() {
    let (listener, options) = node().await;
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        while let Some((_, body)) = request(&mut stream).await {
            let messages = body["messages"].as_array().expect("messages");
            if messages.iter().any(|message| message["group"] == "no good") {
                let problem = json!({"code": "E_SCHEMA", "detail": "group", "status": 400});
                answer(&mut stream, 400, &problem).await;
            } else {
                let results: Vec<Value> = messages.iter().map(|_| sent("1")).collect();
                answer(&mut stream, 200, &json!({"results": results})).await;
            }
        }
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let bad = Message { group: Some("no good".to_owned()), ..Message::new("x") };
        let (one, two, three) = tokio::join!(mailbox.send("a", "1"), mailbox.send("a", bad), mailbox.send("a", "3"));
        assert!(one.is_ok() && three.is_ok(), "{one:?} {three:?}");
        assert_eq!(two.expect_err("refused").code(), Some("E_SCHEMA"));
    };
    both(node, client).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_is_unknown_and_a_key_makes_it_safe_to_repeat() {
    let (listener, options) = node().await;
    let node = async {
        // The request is read, and then nothing more is heard of this node.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.expect("a client");
            request(&mut stream).await.expect("a send");
        }
        let (mut stream, _) = listener.accept().await.expect("the same again");
        let (_, body) = request(&mut stream).await.expect("a send");
        assert_eq!(body["messages"][0]["idem_key"], "k", "{body}");
        answer(&mut stream, 200, &json!({"results": [sent("1")]})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let lost = mailbox.send("a", "x").await.expect_err("lost");
        assert!(matches!(lost, Error::Unknown(_)), "{lost}");
        let keyed = Message { idem_key: Some("k".to_owned()), ..Message::new("x") };
        assert_eq!(mailbox.send("a", keyed).await.expect("the second try").msg_id, "1");
    };
    both(node, client).await;
}

#[tokio::test]
async fn what_broke_in_the_node_may_have_been_done() {
    let (listener, options) = node().await;
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let lost = json!({"code": "E_DEGRADED", "status": 503, "detail": "not known", "retry_after_ms": 1});
        request(&mut stream).await.expect("a send");
        answer(&mut stream, 200, &json!({"results": [{"error": lost}]})).await;
        request(&mut stream).await.expect("another send");
        answer(&mut stream, 503, &lost).await;
        let (_, body) = request(&mut stream).await.expect("the one with a key, not those before");
        assert_eq!(body["messages"][0]["idem_key"], "k", "{body}");
        answer(&mut stream, 503, &lost).await;
        request(&mut stream).await.expect("the same again");
        answer(&mut stream, 200, &json!({"results": [sent("1")]})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        for _ in 0..2 {
            let lost = mailbox.send("a", "x").await.expect_err("lost");
            assert!(matches!(lost, Error::Unknown(_)), "{lost}");
        }
        let keyed = Message { idem_key: Some("k".to_owned()), ..Message::new("x") };
        assert_eq!(mailbox.send("a", keyed).await.expect("the second try").msg_id, "1");
    };
    both(node, client).await;
}

#[tokio::test]
async fn a_busy_node_is_asked_again_and_a_closed_connection_is_opened_anew() {
    let (listener, options) = node().await;
    let closed = Notify::new();
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        request(&mut stream).await.expect("a send");
        answer(
            &mut stream,
            429,
            &json!({"code": "E_SATURATED", "status": 429, "detail": "full", "retry_after_ms": 20}),
        )
        .await;
        request(&mut stream).await.expect("the same again");
        let busy = json!({"error": {"code": "E_SATURATED", "status": 429, "detail": "full", "retry_after_ms": 20}});
        answer(&mut stream, 200, &json!({"results": [busy]})).await;
        request(&mut stream).await.expect("the same again");
        answer(&mut stream, 200, &json!({"results": [sent("1")]})).await;
        drop(stream);
        closed.notify_one();
        let (mut stream, _) = listener.accept().await.expect("another connection");
        let (path, body) = request(&mut stream).await.expect("an acknowledgement");
        assert_eq!((path.as_str(), &body), ("/v1/ack", &json!({"receipts": ["r"]})));
        answer(&mut stream, 200, &json!({"results": [{"receipt": "r", "ok": true}]})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        assert_eq!(mailbox.send("a", "x").await.expect("at the third try").msg_id, "1");
        closed.notified().await;
        mailbox.ack("r").await.expect("acknowledged");
    };
    both(node, client).await;
}

#[tokio::test]
async fn a_node_whose_mailbox_is_not_there_yet_is_asked_again() {
    let (listener, options) = node().await;
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let out = json!({"code": "E_UNAVAILABLE", "status": 503, "detail": "not available now", "retry_after_ms": 1});
        let leaving = json!({"code": "E_CANCELED", "status": 503, "detail": "shutting down", "retry_after_ms": 1});
        for refusal in [&out, &leaving] {
            request(&mut stream).await.expect("a send without a key");
            answer(&mut stream, 503, refusal).await;
        }
        request(&mut stream).await.expect("the same again");
        answer(&mut stream, 200, &json!({"results": [sent("1")]})).await;
        request(&mut stream).await.expect("an acknowledgement");
        answer(&mut stream, 503, &out).await;
        request(&mut stream).await.expect("the same again");
        answer(&mut stream, 200, &json!({"results": [{"receipt": "r", "ok": true}]})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        assert_eq!(mailbox.send("a", "x").await.expect("at the third try").msg_id, "1");
        mailbox.ack("r").await.expect("at the second try");
    };
    both(node, client).await;
}

#[tokio::test]
async fn a_send_that_may_have_been_done_is_not_told_as_refused_by_a_later_try() {
    let (listener, options) = node().await;
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        request(&mut stream).await.expect("a send");
        drop(stream);
        let (mut stream, _) = listener.accept().await.expect("the same again");
        request(&mut stream).await.expect("a send");
        answer(&mut stream, 403, &json!({"code": "E_CAP_SCOPE", "status": 403, "detail": "revoked meanwhile"})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let keyed = Message { idem_key: Some("k".to_owned()), ..Message::new("x") };
        mailbox.send("a", keyed).await.expect_err("refused at the second try")
    };
    let error = both(node, client).await;
    assert!(matches!(error, Error::Unknown(_)), "{error}");
}

#[tokio::test]
async fn refusals_carry_the_nodes_own_words() {
    let (listener, options) = node().await;
    let node = async {
        let [_carrier, mut stream] = connections(&listener).await;
        let (path, body) = request(&mut stream).await.expect("a receive");
        let expected =
            json!({"topic": "a", "max_messages": 3, "max_bytes": 524_288, "visibility_ms": 7000, "wait_ms": 1000});
        assert_eq!((path.as_str(), &body), ("/v1/recv", &expected));
        answer(&mut stream, 404, &json!({"code": "E_NOT_FOUND", "status": 404, "detail": "no topic a"})).await;
        request(&mut stream).await.expect("a receive");
        stream.write_all(b"HTTP/1.1 502 Bad\r\ncontent-length: 4\r\n\r\noops").await.expect("a client");
        request(&mut stream).await.expect("a receive");
        answer(&mut stream, 200, &json!({"surprise": 1})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let receive = Receive::up_to(3).waiting(Duration::from_secs(1)).holding(Duration::from_secs(7));
        let refused = mailbox.receive("a", receive).await.expect_err("no topic");
        assert_eq!(refused.to_string(), "E_NOT_FOUND: no topic a");
        let strange = mailbox.receive("a", receive).await.expect_err("no node");
        assert!(strange.to_string().contains("status 502 Bad Gateway without a reason"), "{strange}");
        let senseless = mailbox.receive("a", receive).await.expect_err("no messages");
        assert!(senseless.to_string().contains("not of this version"), "{senseless}");
    };
    both(node, client).await;
}

#[tokio::test]
async fn nobody_at_the_address() {
    let (listener, options) = node().await;
    drop(listener);
    let error = Mailbox::connect(options).await.expect_err("nobody");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_call_that_is_given_up_before_its_turn_is_never_sent() {
    let (listener, options) = node().await;
    let (arrived, given_up) = (Notify::new(), Notify::new());
    let node = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        request(&mut stream).await.expect("the first");
        arrived.notify_one();
        given_up.notified().await;
        answer(&mut stream, 200, &json!({"results": [sent("1")]})).await;
        let (_, body) = request(&mut stream).await.expect("the last");
        assert_eq!(body["messages"], json!([{"payload_b64": "Mw=="}]), "the second never came");
        answer(&mut stream, 200, &json!({"results": [sent("3")]})).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let second = async {
            arrived.notified().await;
            tokio::select! {
                biased;
                _ = mailbox.send("a", "2") => panic!("it was not its turn"),
                () = std::future::ready(()) => given_up.notify_one(),
            }
        };
        let (first, ()) = tokio::join!(mailbox.send("a", "1"), second);
        first.expect("sent");
        mailbox.send("a", "3").await.expect("sent");
    };
    both(node, client).await;
}

#[tokio::test]
async fn a_call_ends_when_its_patience_does_whatever_it_waits_for() {
    let (listener, options) = node().await;
    // The first is on its way, the second waits for the connection, the third to be let in.
    let options = Options { pending_max: 2, ..options };
    let (patience, arrived, over) = (options.patience, Notify::new(), Notify::new());
    let node = async {
        let [mut carrier, mut receiver] = connections(&listener).await;
        request(&mut carrier).await.expect("the first");
        request(&mut receiver).await.expect("a receive");
        arrived.notify_one();
        // A node that keeps its connections and says nothing.
        over.notified().await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let receive = Receive::up_to(1).waiting(Duration::from_secs(5));
        let others = async {
            arrived.notified().await;
            // Nothing comes over the network any more: time passes as fast as it is waited for.
            tokio::time::pause();
            tokio::join!(timed(mailbox.ack("r")), timed(mailbox.ack("r")))
        };
        let outcomes = tokio::join!(timed(mailbox.send("a", "1")), timed(mailbox.receive("a", receive)), others);
        over.notify_one();
        outcomes
    };
    let (first, received, (second, third)) = Box::pin(both(node, client)).await;
    assert!(matches!((&first.0, &received.0), (Some(Error::Unknown(_)), Some(Error::Unknown(_)))), "{first:?}");
    let at_most = patience + Duration::from_secs(1);
    for (error, time) in [first, second, third] {
        assert!(error.is_some() && time <= at_most, "{error:?} after {time:?}");
    }
    assert!(received.1 <= at_most + Duration::from_secs(5), "{received:?}");
}

/// The error of a call, and the time it took.
#[expect(clippy::disallowed_methods, reason = "the time of a runtime whose clock the test moves")]
async fn timed<T>(call: impl Future<Output = Result<T, Error>>) -> (Option<Error>, Duration) {
    let began = tokio::time::Instant::now();
    let error = call.await.err();
    (error, began.elapsed())
}

fn delivered(receipt: &str) -> Value {
    json!({"msg_id": "01", "topic": "a", "ts": 1, "payload_b64": "MA==", "attempt": 1, "receipt": receipt, "fence": 1})
}

#[tokio::test]
async fn a_consumer_takes_ahead_and_asks_again_only_when_nothing_is_left() {
    let (listener, options) = node().await;
    let node = async {
        let [_carrier, mut stream] = connections(&listener).await;
        for answered in [json!([]), json!([delivered("r1"), delivered("r2")]), json!([delivered("r3")])] {
            let (path, body) = request(&mut stream).await.expect("a receive");
            let asked =
                json!({"topic": "a", "max_messages": 2, "max_bytes": 524288, "visibility_ms": 30000, "wait_ms": 20000});
            assert_eq!((path.as_str(), body), ("/v1/recv", asked));
            answer(&mut stream, 200, &json!({"messages": answered})).await;
        }
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let consumer = mailbox.consumer("a", Receive::up_to(2));
        let (left, right) = (consumer.clone(), consumer.clone());
        let (first, second) = tokio::join!(left.next(), right.next());
        let third = consumer.next().await;
        [first, second, third].map(|message| message.expect("a message").receipt)
    };
    assert_eq!(Box::pin(both(node, client)).await, ["r1", "r2", "r3"]);
}

#[tokio::test]
async fn what_lay_too_long_is_held_anew_and_left_out_if_it_is_lost() {
    let (listener, options) = node().await;
    let node = async {
        let [_carrier, mut stream] = connections(&listener).await;
        request(&mut stream).await.expect("a receive");
        let messages = ["fresh", "held", "lost", "kept"].map(delivered);
        answer(&mut stream, 200, &json!({"messages": messages})).await;
        let lost = json!({"error": {"code": "E_NOT_FOUND", "status": 404, "detail": "the lease has ended"}});
        let ok = json!({"receipt": "x", "ok": true});
        for (receipt, result) in [("held", ok.clone()), ("lost", lost), ("kept", ok)] {
            let (path, body) = request(&mut stream).await.expect("an extension");
            let asked = json!({"receipts": [receipt], "visibility_ms": 600_000});
            assert_eq!((path.as_str(), body), ("/v1/extend", asked));
            answer(&mut stream, 200, &json!({"results": [result]})).await;
        }
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let consumer = mailbox.consumer("a", Receive::up_to(4).holding(Duration::from_mins(10)));
        let first = consumer.next().await.expect("a message").receipt;
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(5)).await;
        tokio::time::resume();
        let [second, third] = [consumer.next().await, consumer.next().await];
        [first, second.expect("a message").receipt, third.expect("a message").receipt]
    };
    assert_eq!(both(node, client).await, ["fresh", "held", "kept"]);
}

#[tokio::test]
async fn a_consumer_outlasts_a_node_that_is_away_and_hears_a_refusal() {
    let (listener, options) = node().await;
    let node = async {
        let [_carrier, mut stream] = connections(&listener).await;
        request(&mut stream).await.expect("a receive");
        drop(stream);
        let (mut stream, _) = listener.accept().await.expect("the same receiver");
        request(&mut stream).await.expect("a receive");
        answer(&mut stream, 200, &json!({"messages": [delivered("r1"), delivered("r2")]})).await;
        let (path, body) = request(&mut stream).await.expect("something given back");
        assert_eq!((path.as_str(), body), ("/v1/extend", json!({"receipts": ["r2"], "visibility_ms": 0})));
        answer(&mut stream, 200, &json!({"results": [{"receipt": "r2", "ok": true}]})).await;
        request(&mut stream).await.expect("a receive");
        let refusal = json!({"error": {"code": "E_FORBIDDEN", "status": 403, "detail": "not yours"}});
        answer(&mut stream, 403, &refusal).await;
    };
    let client = async {
        let mailbox = Mailbox::connect(options).await.expect("a node");
        let consumer = mailbox.consumer("a", Receive::up_to(2));
        assert_eq!(consumer.next().await.expect("a message").receipt, "r1");
        consumer.give_back().await.expect("given back");
        consumer.next().await.expect_err("refused")
    };
    let refused = both(node, client).await;
    assert!(matches!(refused, Error::Refused { status: 403, .. }), "{refused}");
}
