//! What every route gets, each with a good and a bad case.

use std::time::Duration;

use ron_api::HttpLimits;

use crate::harness::{Node, echo, get, get_with, post};

#[tokio::test]
async fn the_development_routes_work_and_name_the_field_that_is_wrong() {
    let node = Node::start(HttpLimits::default()).await;
    let answer = node.ask(echo(r#"{"message": "hello"}"#)).await;
    assert_eq!((answer.status, answer.text()), (200, r#"{"message":"hello"}"#));
    assert_eq!(answer.header("content-type"), "application/json");
    let answer = node.ask(get("/v1/work?ms=1&kind=cpu")).await;
    assert_eq!((answer.status, answer.text()), (200, r#"{"worked_ms":1}"#));

    for (request, field) in [
        (echo(r#"{"message": 7}"#), "message"),
        (echo(r#"{"message": "a", "colour": 1}"#), "colour"),
        (echo("{}"), "message"),
        (echo(r#"{"message": "a"} and more"#), "trailing"),
        (echo("not json"), "line 1"),
        (get("/v1/work?ms=soon").into_bytes(), "ms"),
        (get("/v1/work?ms=1&speed=2").into_bytes(), "speed"),
        (get("/v1/work").into_bytes(), "ms"),
        (get("/v1/work?ms=60001").into_bytes(), "ms"),
        (get("/v1/work?ms=1&kind=dream").into_bytes(), "kind"),
    ] {
        let problem = node.ask(&request).await.problem(400, "E_SCHEMA");
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.contains(field), "{field} in {detail}");
    }
    let problem = node.ask(echo(r#"{"message": "refuse me"}"#)).await.problem(429, "E_SATURATED");
    assert_eq!((&problem["retry_after_ms"], &problem["instance"]), (&1000.into(), &"/v1/echo".into()));
}

#[tokio::test]
async fn a_correlation_id_is_taken_over_or_made() {
    let node = Node::start(HttpLimits::default()).await;
    let answer = node.ask(get_with("/call", "x-corr-id: mine-1\r\n")).await;
    assert_eq!(answer.header("x-corr-id"), "mine-1");
    assert!(answer.text().starts_with("mine-1 /call "), "{}", answer.text());
    let made = node.ask(get_with("/nowhere", "x-corr-id: not mine\r\n")).await;
    made.problem(404, "E_NOT_FOUND");
    let other = node.ask(get("/nowhere")).await;
    for answer in [&made, &other] {
        let id: uuid::Uuid = answer.header("x-corr-id").parse().expect("a uuid");
        assert_eq!(id.get_version_num(), 7);
    }
    assert_ne!(made.header("x-corr-id"), other.header("x-corr-id"));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let node = Node::start(HttpLimits::default()).await;
    node.ask(get("/v1/nothing")).await.problem(404, "E_NOT_FOUND");
    let answer = node.ask(get("/v1/echo")).await;
    answer.problem(405, "E_SCHEMA");
    assert_eq!(answer.header("allow"), "POST");
    let text = node.metrics().render();
    assert!(text.contains(r#"request_latency_seconds_count{endpoint="unmatched",method="GET"} 2"#), "{text}");
}

#[tokio::test]
async fn a_request_ends_at_its_deadline_whoever_set_it() {
    let node = Node::start(HttpLimits { request_deadline: Duration::from_millis(100), ..HttpLimits::default() }).await;
    node.ask(get("/v1/work?ms=50000")).await.problem(504, "E_TIMEOUT");
    node.ask(get_with("/v1/work?ms=50000", "x-request-deadline-ms: 50\r\n")).await.problem(504, "E_TIMEOUT");
    node.ask(get_with("/v1/work?ms=50000", "grpc-timeout: 50m\r\n")).await.problem(504, "E_TIMEOUT");
    assert_eq!(node.metrics().io_timeouts.at("request").get(), 3);
    let answer = node.ask(get_with("/v1/work?ms=200", "x-request-deadline-ms: 20000\r\n")).await;
    assert_eq!(answer.status, 200, "a caller may ask for more than the default");
    let answer = node.ask(get_with("/call", "x-request-deadline-ms: 99999999\r\n")).await;
    let left: u64 = answer.text().rsplit(' ').next().and_then(|left| left.parse().ok()).expect("seconds");
    assert!((20..=30).contains(&left), "capped to thirty seconds: {left}");
    for header in ["x-request-deadline-ms: soon\r\n", "x-request-deadline-ms: 0\r\n", "grpc-timeout: 5\r\n"] {
        node.ask(get_with("/call", header)).await.problem(400, "E_SCHEMA");
    }
}

#[tokio::test]
async fn a_full_route_refuses_and_others_go_on() {
    let node = Node::start(HttpLimits::default()).await;
    let mut held = node.connect().await;
    held.send(get_with("/hold", "x-request-deadline-ms: 30000\r\n")).await;
    node.until_in_flight(1).await;
    node.ask(get("/hold")).await.problem(429, "E_SATURATED");
    assert_eq!(node.metrics().busy_rejections.at("/hold").get(), 1);
    assert_eq!(node.ask(get("/call")).await.status, 200);
    node.release.add_permits(2);
    assert_eq!(held.answer().await.text(), "released");
    assert_eq!(node.ask(get("/hold")).await.status, 200);
}

#[tokio::test]
async fn a_panic_is_an_answer_and_the_connection_lives() {
    let node = Node::start(HttpLimits::default()).await;
    let mut client = node.connect().await;
    client.send(get("/panic")).await;
    client.answer().await.problem(500, "E_INTERNAL");
    client.send(get("/call")).await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn large_heads_are_refused_before_the_library_does_it() {
    let node = Node::start(HttpLimits { header_bytes_max: 1024, ..HttpLimits::default() }).await;
    let padding = |bytes: usize| format!("x-padding: {}\r\n", "p".repeat(bytes));
    assert_eq!(node.ask(get_with("/call", &padding(500))).await.status, 200);
    node.ask(get_with("/call", &padding(2000))).await.problem(431, "E_FRAME_TOO_LARGE");
    node.ask(get(&format!("/call?{}", "q".repeat(2000)))).await.problem(431, "E_FRAME_TOO_LARGE");
    assert_eq!(node.metrics().frame_rejects.at("header").get(), 2);
    assert_eq!(node.ask(get_with("/call", &padding(100_000))).await.status, 431, "from the library, without a body");
}

#[tokio::test]
async fn limits_change_while_the_plane_runs() {
    let node = Node::start(HttpLimits::default()).await;
    let mut client = node.connect().await;
    let request = post("/length", "", [0; 100]);
    client.send(&request).await;
    assert_eq!(client.answer().await.text(), "100");
    node.limits.publish(HttpLimits { body_bytes_max: 99, ..HttpLimits::default() });
    client.send(&request).await;
    client.answer().await.problem(413, "E_FRAME_TOO_LARGE");
}

#[tokio::test]
async fn every_answer_is_measured_under_its_route() {
    let node = Node::start(HttpLimits::default()).await;
    node.ask(echo(r#"{"message": ""}"#)).await;
    node.ask(echo("bad")).await;
    let text = node.metrics().render();
    assert!(text.contains(r#"request_latency_seconds_count{endpoint="/v1/echo",method="POST"} 2"#), "{text}");
}
