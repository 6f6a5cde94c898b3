//! A lane by WebSocket, as a program would use it.

use futures_util::{SinkExt as _, StreamExt as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::PATIENCE_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::member::{Member, network};

struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    /// Shakes hands; the status line and the head of the answer if it is a refusal.
    async fn try_open(member: &Member, bearer: &str, target: &str) -> Result<Socket, String> {
        let mut stream = TcpStream::connect(member.api()).await.expect("the node listens");
        let head = format!(
            "GET {target} HTTP/1.1\r\nhost: x\r\nauthorization: {bearer}\r\nconnection: keep-alive, Upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.expect("an answer"));
        }
        let answer = String::from_utf8(answer).expect("text");
        if !answer.starts_with("HTTP/1.1 101 ") {
            return Err(answer);
        }
        assert!(answer.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
        Ok(Socket(WebSocketStream::from_raw_socket(stream, Role::Client, None).await))
    }

    /// Opens a socket on the lane and waits until it hears.
    async fn open(member: &Member, bearer: &str, query: &str) -> Socket {
        let target = format!("/overlay/lanes/chat/subscribe{query}");
        let mut socket = Socket::try_open(member, bearer, &target).await.expect("allowed");
        assert_eq!(socket.next().await, json!({"type": "ready", "lane": "chat", "node_id": member.id}));
        socket
    }

    /// What comes next, apart from the node's own PING: on a machine that is busy a test may live to see one.
    async fn message(&mut self) -> Message {
        loop {
            let next = tokio::time::timeout(PATIENCE_MAX, self.0.next()).await;
            match next.expect("a frame in time").expect("the socket goes on").expect("a frame") {
                Message::Ping(_) => {}
                message => return message,
            }
        }
    }

    /// The next object.
    async fn next(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }

    async fn send(&mut self, text: impl ToString) {
        self.0.send(Message::text(text.to_string())).await.expect("sent");
    }

    /// The code with which the node ends the socket.
    async fn close_code(&mut self) -> CloseCode {
        match self.message().await {
            Message::Close(Some(frame)) => frame.code,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_burst_comes_whole_by_websocket() {
    let mut member = Member::new();
    member.start().await;
    let count = 1_000;
    let publisher = member.oap_client().await.publisher("chat").await.expect("opened");
    publisher.publish_all((0..count).map(|_| "x".into())).await.expect("sent");
    publisher.finish().await.expect("published");
    let mut socket = Socket::open(&member, &member.bearer(), &format!("?from={}:1", member.id)).await;
    for seq in 1..=count {
        assert_eq!(socket.next().await["seq"], seq);
    }
}

#[tokio::test]
async fn messages_come_and_go_by_websocket() {
    let pair = network(2, &[(1, 0)]).await;
    let mut first = Socket::open(&pair[0], &pair[0].bearer(), "?own=false").await;
    let mut second = Socket::open(&pair[1], &pair[1].bearer(), "").await;

    first.send(json!({"publish": {"payload_b64": "aGk="}})).await;
    let heard = second.next().await;
    let expected = json!({
        "type": "message", "msg_id": heard["msg_id"], "origin": pair[0].id, "lane": "chat", "epoch": heard["epoch"],
        "seq": 1, "payload_b64": "aGk=", "hops": 1,
    });
    assert_eq!(heard, expected);

    first.send(json!({"publish": {"payload_b64": "aG8=", "id": "mine"}})).await;
    let answer = first.next().await;
    assert_eq!((&answer["type"], &answer["id"], &answer["seq"]), (&json!("published"), &json!("mine"), &json!(2)));
    assert_eq!(answer["peers"], json!([{"node_id": pair[1].id, "outcome": "sent"}]));
    assert_eq!(second.next().await["msg_id"], answer["msg_id"]);

    let mut replay = Socket::open(&pair[1], &pair[1].bearer(), &format!("?from={}:2", pair[0].id)).await;
    assert_eq!(replay.next().await["msg_id"], answer["msg_id"]);
    replay.0.send(Message::Ping("x".into())).await.expect("sent");
    assert_eq!(replay.message().await, Message::Pong("x".into()));
    replay.0.close(None).await.expect("closed");
    assert!(matches!(replay.message().await, Message::Close(_)), "the node says goodbye as well");
}

#[tokio::test]
async fn large_messages_pass_and_larger_ones_end_the_socket() {
    let pair = network(2, &[(1, 0)]).await;
    let mut first = Socket::open(&pair[0], &pair[0].bearer(), "?own=false").await;
    let mut second = Socket::open(&pair[1], &pair[1].bearer(), "").await;
    let payload = "QUJD".repeat(2_500 * 1024 / 3);
    first.send(json!({"publish": {"payload_b64": payload}})).await;
    let heard = second.next().await;
    assert!(heard["payload_b64"] == payload.as_str(), "its content is another");

    first.send("x".repeat(6 << 20)).await;
    assert_eq!(first.close_code().await, CloseCode::Size);
}

#[tokio::test]
async fn what_a_client_says_wrongly_is_told_and_what_it_may_not_is_refused() {
    let mut member = Member::new();
    member.start().await;
    let reader = member.mint(&["overlay:subscribe:chat"], None).await;
    let mut socket = Socket::open(&member, &reader, "").await;
    for (text, code) in [
        (r#"{"publish":{"payload_b64":"aGk="}}"#, "E_CAP_SCOPE"),
        ("hello", "E_SCHEMA"),
        (r#"{"publish":{}}"#, "E_SCHEMA"),
        (r#"{"publish":{"payload_b64":"!"}}"#, "E_SCHEMA"),
        (r#"{"subscribe":"other"}"#, "E_SCHEMA"),
    ] {
        socket.send(text).await;
        let answer = socket.next().await;
        assert_eq!((&answer["type"], &answer["code"]), (&json!("refused"), &json!(code)), "{text}: {answer}");
    }
    // Nobody publishes on a lane of the node itself, whatever a token says.
    let everything = member.mint(&["overlay:publish:*", "overlay:subscribe:*"], None).await;
    let mut own = Socket::try_open(&member, &everything, "/overlay/lanes/_dht/subscribe").await.expect("it is heard");
    assert_eq!(own.next().await["type"], "ready");
    own.send(r#"{"publish":{"payload_b64":"aGk="}}"#).await;
    assert_eq!(own.next().await["code"], "E_CAP_SCOPE");
    socket.send("x".repeat(5000)).await;
    assert_eq!(socket.close_code().await, CloseCode::Size, "whoever may not publish has nothing long to say");

    let mut socket = Socket::open(&member, &reader, "").await;
    socket.0.send(Message::binary(vec![1])).await.expect("sent");
    assert_eq!(socket.close_code().await, CloseCode::Unsupported);

    for (bearer, target, status) in [
        ("Bearer AAAA", "/overlay/lanes/chat/subscribe", "401"),
        (reader.as_str(), "/overlay/lanes/other/subscribe", "403"),
        (reader.as_str(), "/overlay/lanes/a%20b/subscribe", "400"),
        (reader.as_str(), "/overlay/lanes/chat/subscribe?from=1", "400"),
    ] {
        let refusal = Socket::try_open(&member, bearer, target).await.err().expect("refused");
        assert!(refusal.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {refusal}");
    }
}

#[tokio::test]
async fn a_token_that_runs_out_ends_its_socket() {
    let mut member = Member::new();
    member.start().await;
    let bearer = member.mint(&["overlay:subscribe:chat"], Some(1_000)).await;
    let mut socket = Socket::open(&member, &bearer, "").await;
    assert_eq!(socket.close_code().await, CloseCode::Policy);
}

#[tokio::test]
async fn a_drain_ends_sockets_even_those_that_nobody_reads() {
    let mut member = Member::new();
    member.start().await;
    let mut reading = Socket::open(&member, &member.bearer(), "").await;
    let stuck = Socket::open(&member, &member.bearer(), "").await;
    // More than all buffers on the way to a client that reads nothing.
    for _ in 0..6 {
        member.publish("chat", vec![0; 4 << 20]).await;
        reading.next().await;
    }
    member.process().signal(Signal::TERM);
    assert_eq!(reading.close_code().await, CloseCode::Away);
    let status = member.process().wait_exit().await;
    assert_eq!(status.code(), Some(0), "{}", member.process().stderr());
    drop(stuck);
}
