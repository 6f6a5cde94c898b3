//! Leaving: requests in flight get their answer, resting connections end at once, new requests are sent elsewhere.

use std::time::Duration;

use ron_api::HttpLimits;

use crate::harness::{Node, echo, get, get_with};

#[tokio::test]
async fn a_request_in_flight_is_answered_and_its_connection_closed() {
    let mut node = Node::start(HttpLimits::default()).await;
    let mut resting = node.connect().await;
    resting.send(get("/call")).await;
    assert_eq!(resting.answer().await.status, 200);
    let mut fresh = node.connect().await;
    let mut busy = node.connect().await;
    busy.send(get_with("/hold", "x-request-deadline-ms: 20000\r\n")).await;
    node.until_in_flight(1).await;

    node.begin_drain().await;
    assert_eq!(resting.closed().await, 0);
    assert_eq!(fresh.closed().await, 0);
    node.release.add_permits(1);
    let answer = busy.answer().await;
    assert_eq!((answer.text(), answer.header("connection")), ("released", "close"));
    assert_eq!(busy.closed().await, 0);
    let report = node.ended().await;
    assert_eq!((report.code, report.aborted.len()), (0, 0), "{report:?}");
    assert_eq!(node.metrics().tasks_aborted.at("http_connection").get(), 0);
    assert_eq!(node.metrics().connections_open.at("http").get(), 0);
}

#[tokio::test]
async fn resting_connections_do_not_hold_up_the_end() {
    let mut node = Node::start(HttpLimits::default()).await;
    let mut clients = Vec::new();
    let requests = [(get("/call").into_bytes(), 200), (echo("bad"), 400)];
    for (request, status) in requests.iter().cycle().take(20) {
        let mut client = node.connect().await;
        client.send(request).await;
        assert_eq!(client.answer().await.status, *status);
        clients.push(client);
    }
    let mut half = node.connect().await;
    half.send("GET /call HT").await;
    node.begin_drain().await;
    let report = node.ended().await;
    assert_eq!(report.code, 0, "{report:?}");
    assert!(report.drained_in < Duration::from_millis(2000), "{report:?}");
}

#[tokio::test]
async fn a_request_that_outlasts_the_drain_is_cut() {
    let mut node = Node::start(HttpLimits::default()).await;
    let mut busy = node.connect().await;
    busy.send(get_with("/hold", "x-request-deadline-ms: 30000\r\n")).await;
    node.until_in_flight(1).await;
    node.begin_drain().await;
    node.ended().await;
    assert_eq!(busy.closed().await, 0);
    assert_eq!(node.metrics().tasks_aborted.at("http_connection").get(), 1);
}

#[tokio::test]
async fn a_request_that_comes_too_late_is_sent_elsewhere() {
    let mut node = Node::start(HttpLimits::default()).await;
    let mut late = node.connect().await;
    late.send("GET /call HT").await;
    let mut resting = node.connect().await;
    resting.send(get("/call")).await;
    assert_eq!(resting.answer().await.status, 200, "so the half request was read as well");
    node.begin_drain().await;
    assert_eq!(resting.closed().await, 0);
    late.send("TP/1.1\r\nhost: localhost\r\n\r\n").await;
    let answer = late.answer().await;
    answer.problem(503, "E_CANCELED");
    assert_eq!((answer.header("retry-after"), answer.header("connection")), ("1", "close"));
    assert_eq!(late.closed().await, 0);
    assert_eq!(node.metrics().tasks_canceled.at("http_request").get(), 1);
    assert_eq!(node.ended().await.code, 0);
}

#[tokio::test]
async fn a_restarted_listener_serves_again() {
    let node = Node::start(HttpLimits::default()).await;
    let mut before = node.connect().await;
    before.send(get("/call")).await;
    assert_eq!(before.answer().await.status, 200);
    node.handle.restart_service("plane").await.expect("restarted");
    assert_eq!(before.closed().await, 0);
    assert_eq!(node.ask(get("/call")).await.status, 200);
}
