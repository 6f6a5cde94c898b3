//! Who may do what, and what is refused before anything is read.

use http::Method;
use serde_json::{Value, json};
use testkit::{Client, PATIENCE_MAX};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::member::Member;
use crate::overlay::subscriber::Subscriber;

async fn node() -> Member {
    let mut member = Member::new();
    member.start().await;
    member
}

#[tokio::test]
async fn without_a_token_nothing_is_done() {
    let member = node().await;
    for (method, path) in [
        (Method::GET, "/overlay/peers".to_owned()),
        (Method::POST, "/overlay/peers".to_owned()),
        (Method::DELETE, format!("/overlay/peers/{}", member.id)),
        (Method::POST, "/overlay/lanes/chat/publish".to_owned()),
        (Method::GET, "/overlay/lanes/chat/subscribe".to_owned()),
        (Method::GET, format!("/overlay/messages/{}/trace", "00".repeat(16))),
    ] {
        for headers in [&[][..], &[("authorization", "Bearer AAAA")]] {
            let mut client = Client::connect(member.api()).await.expect("the node listens");
            let reply = client.request(method.clone(), &path, headers, "").await.expect("an answer");
            assert_eq!(reply.status, 401, "{method} {path} {headers:?}");
        }
    }
}

#[tokio::test]
async fn a_token_allows_its_lanes_and_no_others() {
    let member = node().await;
    let publisher = member.mint(&["overlay:publish:chat", "overlay:publish:news.*"], None).await;
    let reader = member.mint(&["overlay:subscribe:chat"], None).await;
    let admin = member.mint(&["overlay:admin:*"], None).await;
    let publish = async |bearer: &str, lane: &str| {
        let path = format!("/overlay/lanes/{lane}/publish");
        member.ask_as(bearer, Method::POST, &path, &json!({"payload_b64": "aGk="})).await.status
    };
    for (bearer, lane, status) in [
        (&publisher, "chat", 202),
        (&publisher, "news.today", 202),
        (&publisher, "news", 403),
        (&publisher, "other", 403),
        (&reader, "chat", 403),
        (&admin, "chat", 403),
    ] {
        assert_eq!(publish(bearer, lane).await, status, "{lane}");
    }
    let subscribe = async |bearer: &str, lane: &str| Subscriber::open_as(&member, bearer, lane, "").await.map(drop);
    assert_eq!(subscribe(&reader, "chat").await, Ok(()));
    for (bearer, lane) in [(&reader, "other"), (&publisher, "chat"), (&admin, "chat")] {
        assert_eq!(subscribe(bearer, lane).await, Err(403), "{lane}");
    }
    let peers = async |bearer: &str| member.ask_as(bearer, Method::GET, "/overlay/peers", &Value::Null).await.status;
    assert_eq!((peers(&admin).await, peers(&publisher).await, peers(&reader).await), (200, 403, 403));
}

#[tokio::test]
async fn the_lane_of_the_node_itself_is_not_published_on() {
    let member = node().await;
    let everything = member.mint(&["overlay:publish:*", "overlay:subscribe:*"], None).await;
    for bearer in [&everything, &member.bearer()] {
        let path = "/overlay/lanes/_dht/publish";
        let reply = member.ask_as(bearer, Method::POST, path, &json!({"payload_b64": "aGk="})).await;
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert_eq!(reply.json().expect("JSON")["code"], "E_CAP_SCOPE");
    }
    for lane in ["_", "_other", "_dht_", "_DHT", "a_dht", ".", "..", "-"] {
        assert_eq!(member.publish(lane, "x").await["seq"], 1, "{lane}: every other name of a lane is free");
    }
    let client = member.oap_client().await;
    let is_refused =
        |error: oap_client::Error| matches!(error, oap_client::Error::Refused(refusal) if refusal.status == 403);
    let publisher = client.publisher("_dht").await.expect("a refusal shows at the first publication");
    assert!(publisher.publish_acked("x").await.is_err_and(is_refused), "a stream");
    let whole = client.request(oap::AppId::LANES, "{\"publish\":\"_dht\"}\nx").await;
    assert!(whole.is_err_and(is_refused), "a message");
    // Who may hear everything hears these as well.
    Subscriber::open_as(&member, &everything, "_dht", "").await.map(drop).expect("it is heard");
}

#[tokio::test]
async fn names_and_sizes_have_their_bounds() {
    let member = node().await;
    let long = "x".repeat(81);
    for lane in ["a%20b", "a%2Fb", &long, "%C3%A4"] {
        let path = format!("/overlay/lanes/{lane}/publish");
        assert_eq!(member.ask(Method::POST, &path, &json!({"payload_b64": ""})).await.status, 400, "{lane}");
        assert_eq!(Subscriber::open_as(&member, &member.bearer(), lane, "").await.err(), Some(400), "{lane}");
    }
    let longest = "A.b_c-9".to_owned() + &"x".repeat(73);
    assert_eq!(member.publish(&longest, "x").await["lane"], longest.as_str());
    for query in ["?from=x:1", "?own=maybe", "?since=1"] {
        assert_eq!(Subscriber::open_as(&member, &member.bearer(), "chat", query).await.err(), Some(400), "{query}");
    }

    let bearer = member.bearer();
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    for (bytes, status) in [(4 << 20, 202), ((4 << 20) + 1, 413)] {
        let mut client = Client::connect(member.api()).await.expect("the node listens");
        let reply = client.request(Method::POST, "/overlay/lanes/chat/publish", &headers, vec![1; bytes]).await;
        assert_eq!(reply.expect("an answer").status, status, "{bytes} bytes");
    }
}

#[tokio::test]
async fn the_right_is_checked_before_the_body_is_read() {
    let member = node().await;
    let reader = member.mint(&["overlay:subscribe:chat"], None).await;
    for (bearer, lane, status) in [(reader, "chat", "403"), (member.bearer(), "a%20b", "400")] {
        let mut stream = TcpStream::connect(member.api()).await.expect("the node listens");
        let head = format!(
            "POST /overlay/lanes/{lane}/publish HTTP/1.1\r\nhost: x\r\nauthorization: {bearer}\r\ncontent-length: 1000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("written");
        // Not one byte of the body is sent.
        let mut answer = [0; 12];
        let read = tokio::time::timeout(PATIENCE_MAX, stream.read_exact(&mut answer)).await;
        read.expect("an answer in time").expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
    }
}
