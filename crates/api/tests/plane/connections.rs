//! Who may connect, and how long silence may last.

use std::time::Duration;

use ron_api::HttpLimits;

use crate::harness::{Client, Node, get, within};

/// The static refusal has no correlation id: nothing of the request was read.
async fn refused(client: &mut Client, by: &str) {
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("retry-after"), answer.header("connection")), (429, "1", "close"));
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("json");
    assert_eq!(problem["code"], "E_SATURATED");
    let detail = problem["detail"].as_str().expect("text");
    assert!(detail.contains(&format!("connections.{by}")), "{detail}");
    assert_eq!(client.closed().await, 0);
}

async fn check_refusal(limits: HttpLimits, reason: &'static str, by: &str) {
    let node = Node::start(limits).await;
    let mut first = node.connect().await;
    first.send(get("/call")).await;
    assert_eq!(first.answer().await.status, 200);
    let mut second = node.connect().await;
    let counter = node.metrics().connections_refused.at(reason);
    within(reason, async {
        while counter.get() != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A request sent into the refusal must not turn it into a reset: the second half would fail.
    second.send("GET /call HT").await;
    second.send("TP/1.1\r\nhost: localhost\r\n\r\n").await;
    refused(&mut second, by).await;
    assert_eq!(node.metrics().connections_open.at("http").get(), 1);
    first.send(get("/call")).await;
    assert_eq!(first.answer().await.status, 200, "those inside are not disturbed");
}

#[tokio::test]
async fn more_connections_than_allowed_are_told_so() {
    check_refusal(HttpLimits { connections_max: 1, ..HttpLimits::default() }, "total", "max").await;
    check_refusal(HttpLimits { connections_per_ip_max: 1, ..HttpLimits::default() }, "per_ip", "per_ip_max").await;
    check_refusal(
        HttpLimits { accepts_per_ip_per_second: 1, ..HttpLimits::default() },
        "rate",
        "accepts_per_ip_per_second",
    )
    .await;
}

#[tokio::test]
async fn a_place_is_free_again_when_its_connection_ends() {
    let node = Node::start(HttpLimits { connections_max: 1, ..HttpLimits::default() }).await;
    for _ in 0..3 {
        let mut client = node.connect().await;
        client.send("GET /call HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        assert_eq!(client.answer().await.status, 200);
        client.closed().await;
        within("the place", async {
            while node.metrics().connections_open.at("http").get() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_slow_head_ends_the_connection_but_a_rest_between_requests_does_not() {
    let node = Node::start(HttpLimits { handshake_timeout: Duration::from_millis(500), ..HttpLimits::default() }).await;
    let mut silent = node.connect().await;
    assert_eq!(silent.closed().await, 0);
    let mut slow = node.connect().await;
    slow.send("GET /call HTTP/1.1\r\nhost: no").await;
    assert_eq!(slow.closed().await, 0);
    assert_eq!(node.metrics().io_timeouts.at("header").get(), 2);

    let mut resting = node.connect().await;
    for _ in 0..2 {
        resting.send(get("/call")).await;
        assert_eq!(resting.answer().await.status, 200);
        // Not a wait for something to happen: the rest itself is what is tested.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    resting.send("GET /call HT").await;
    assert_eq!(resting.closed().await, 0, "a head that begins after a rest is timed too");
    assert_eq!(node.metrics().io_timeouts.at("header").get(), 3);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let node = Node::start(HttpLimits { idle_timeout: Duration::from_millis(200), ..HttpLimits::default() }).await;
    let mut client = node.connect().await;
    client.send(get("/call")).await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(client.closed().await, 0);
    assert_eq!(node.metrics().io_timeouts.at("header").get(), 0);
}

#[tokio::test]
async fn a_request_being_worked_on_is_not_idle() {
    let limits = HttpLimits {
        idle_timeout: Duration::from_millis(400),
        handshake_timeout: Duration::from_millis(400),
        ..HttpLimits::default()
    };
    let node = Node::start(limits).await;
    assert_eq!(node.ask(get("/v1/work?ms=1600")).await.status, 200);
}
