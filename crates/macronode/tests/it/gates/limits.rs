//! Bounds: a request ends at its deadline, and a node that cannot take more says so at once and does not grow.

use std::time::{Duration, Instant};

use http::Method;
use testkit::{BoundResult, Client, Load, LoadShape, Node, Pulse, Reply, bound, percentile};
use tokio::task::JoinSet;

use crate::alone;
use crate::gates::dev_node;

const MIB: u64 = 1024 * 1024;

/// One kind of request, sent several times at once.
#[derive(Clone, Copy)]
struct Ask {
    method: &'static str,
    path: &'static str,
    body: &'static str,
    headers: &'static [(&'static str, &'static str)],
}

/// Sends the request on `at_once` connections of their own; answers and times in milliseconds.
async fn ask(node: &Node, at_once: usize, what: Ask) -> Vec<(Reply, f64)> {
    let mut requests = JoinSet::new();
    for _ in 0..at_once {
        let mut client = Client::connect(node.api).await.expect("connected");
        requests.spawn(async move {
            let method = Method::from_bytes(what.method.as_bytes()).expect("a method");
            let began = Instant::now();
            let reply = client.request(method, what.path, what.headers, what.body).await.expect("answered");
            (reply, began.elapsed().as_secs_f64() * 1e3)
        });
    }
    requests.join_all().await
}

/// On time means on time by the machine's own reckoning: what it stood still is not the node's delay.
fn check_deadline(answers: &[(Reply, f64)], deadline_ms: f64, pulse: Pulse) -> BoundResult {
    let still_ms = pulse.stop().as_secs_f64() * 1e3;
    for (reply, _) in answers {
        assert_eq!(reply.status, 504, "{}", reply.text());
        assert_eq!(reply.header("content-type"), "application/problem+json");
        assert_eq!(reply.json().expect("a problem")["code"], "E_TIMEOUT");
    }
    let mut off: Vec<f64> = answers.iter().map(|(_, took_ms)| (took_ms - deadline_ms).abs()).collect();
    let p99 = percentile(&mut off, 0.99);
    let p50 = off[off.len() / 2];
    println!(
        "deadline {deadline_ms} ms: {} requests, p50 {p50:.1}, p99 {p99:.1} ms off, still {still_ms:.1}",
        off.len()
    );
    bound(p99 <= 100.0 + still_ms, || format!("p99 of the distance to the deadline is {p99} ms, still {still_ms} ms"))
}

#[tokio::test]
async fn every_request_ends_at_its_deadline() {
    const AT_ONCE: usize = 10;
    let slow = Ask { method: "GET", path: "/v1/work?ms=10000", body: "", headers: &[] };
    let hasty = Ask { headers: &[("x-request-deadline-ms", "300")], ..slow };
    let alone = alone().await;
    let node = dev_node().start().await.expect("started");
    for (what, deadline_ms) in [(slow, 2_000.0), (hasty, 300.0)] {
        let measure = async || {
            let (pulse, mut answers) = (Pulse::start(), Vec::new());
            for _ in 0..4 {
                answers.extend(ask(&node, AT_ONCE, what).await);
            }
            check_deadline(&answers, deadline_ms, pulse)
        };
        alone.measure("deadline", measure).await;
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_worker_ends_at_its_deadline_too() {
    alone().await.measure("deadline of what waits", wait_for_a_worker).await;
}

async fn wait_for_a_worker() -> BoundResult {
    let node = dev_node().env("MACRO_WORKERS", "1").start().await.expect("started");
    let hog = Ask { method: "GET", path: "/v1/work?ms=3000", body: "", headers: &[("x-request-deadline-ms", "10000")] };
    let json = &[("content-type", "application/json")];
    let echo = Ask { method: "POST", path: "/v1/echo", body: r#"{"message":"late"}"#, headers: json };
    let taken = r#"queue_high_water{queue="work"}"#;
    let pulse = Pulse::start();
    let (hogged, echoed) = tokio::join!(ask(&node, 1, hog), async {
        while node.metric(taken).await < 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ask(&node, 10, echo).await
    });
    assert_eq!(hogged[0].0.status, 200, "a caller may ask for more time: {}", hogged[0].0.text());
    check_deadline(&echoed, 2_000.0, pulse)
}

#[tokio::test]
async fn twice_the_sustainable_load_is_refused_fast_and_held_in_bounded_memory() {
    let seconds = if testkit::soak() { 60 } else { 7 };
    alone().await.measure("refusals", async || load_twice(Duration::from_secs(seconds)).await).await;
}

async fn load_twice(lasts: Duration) -> BoundResult {
    const WORKERS: usize = 4;
    const QUEUE: usize = 32;
    const WORK_MS: usize = 50;
    // Twice what the workers can do, from so many connections that the waiting ones do not slow the others down.
    const CONNECTIONS: usize = 80;
    let every = Duration::from_millis((CONNECTIONS * WORK_MS / (2 * WORKERS)) as u64);

    let options = dev_node().env("MACRO_WORKERS", WORKERS.to_string()).env("MACRO_QUEUES__WORK", QUEUE.to_string());
    let node = options.start().await.expect("started");
    let path = format!("/v1/work?ms={WORK_MS}");
    let load = Load::shaped(node.api, LoadShape::get(CONNECTIONS, &path).every(every));
    let pulse = Pulse::start();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let steady = node.rss_bytes();
    tokio::time::sleep(lasts).await;
    let last = node.rss_bytes();
    let mut report = load.stop().await;
    let still_ms = pulse.stop().as_secs_f64() * 1000.0;

    let refused = report.latencies_ms_by_status.get_mut(&429).expect("some are refused");
    let (p50, p99, worst) = (percentile(refused, 0.5), percentile(refused, 0.99), percentile(refused, 1.0));
    let growth = last as f64 / MIB as f64 - steady as f64 / MIB as f64;
    println!("busy: {:?}, p50 {p50:.1}, p99 {p99:.1}, max {worst:.1} ms; memory {growth:+.1} MiB", report.by_status);
    assert!(last <= steady + 16 * MIB, "memory grew by {growth} MiB");
    assert_eq!(report.without_retry_after, 0, "every refusal says when to come back");
    assert_eq!(report.samples[&429].json().expect("a problem")["code"], "E_SATURATED");
    assert_eq!(report.server_errors(), 0, "{:?}", report.by_status);
    assert_eq!((report.broken, report.truncated), (0, 0));
    assert!(report.with_status(200) > 0, "what was admitted is done");
    assert_eq!(node.metric(r#"queue_dropped_total{queue="work"}"#).await, 0.0);
    let counted = node.metric(r#"busy_rejections_total{endpoint="work"}"#).await;
    assert_eq!(counted, report.with_status(429) as f64, "every refusal is counted once");
    let high_water = node.metric(r#"queue_high_water{queue="work"}"#).await;
    assert!((1.0..=QUEUE as f64).contains(&high_water), "high water {high_water}");
    bound(p99 <= 50.0 + still_ms, || format!("p99 of the refusals is {p99} ms, still {still_ms} ms"))
}
