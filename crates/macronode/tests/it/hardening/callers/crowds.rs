//! One tenant with a thousand requests that take their time: nobody else notices.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::{BoundResult, MailboxClient, Node, Outgoing, Pulse, Take, bound, eventually, percentile};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{make_topic, tenant};
use crate::options;

const CONNECTIONS: usize = 4;
const STREAMS: usize = 256;

type Body = BoxBody<Bytes, Infallible>;

/// Requests of one tenant on four HTTP/2 connections, each as full as it may be, and begun again when they end; dropped
/// with the value.
struct Crowd {
    _tasks: JoinSet<()>,
}

impl Crowd {
    async fn start(address: SocketAddr, request: fn(&str) -> Request<Body>, token: &str) -> Crowd {
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).await.expect("the node listens");
            let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            let (sender, connection): (SendRequest<Body>, _) = handshake.expect("the node speaks HTTP/2");
            tasks.spawn(async move { drop(connection.await) });
            for _ in 0..STREAMS {
                let (mut sender, token) = (sender.clone(), token.to_owned());
                tasks.spawn(async move {
                    while sender.ready().await.is_ok() {
                        let _answer: Result<Response<Incoming>, _> = sender.send_request(request(&token)).await;
                    }
                });
            }
        }
        Crowd { _tasks: tasks }
    }
}

fn post(path: &str, token: &str) -> http::request::Builder {
    Request::post(format!("http://localhost{path}"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("x-request-deadline-ms", "30000")
}

/// A long poll on a topic without messages.
fn long_poll(token: &str) -> Request<Body> {
    let body = Full::from(r#"{"topic":"idle","wait_ms":20000}"#);
    post("/v1/recv", token).body(body.boxed()).expect("a request")
}

/// A send whose body comes a byte at a time and never ends.
fn slow_body(token: &str) -> Request<Body> {
    let bytes = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
    });
    post("/v1/send", token).body(StreamBody::new(bytes).boxed()).expect("a request")
}

/// Sends, takes and acknowledges one message; the time of each of the three in milliseconds.
async fn round(client: &mut MailboxClient, times: &mut Vec<f64>) {
    let began = Instant::now();
    let message = Outgoing { topic: "jobs", payload: b"honest work", ..Outgoing::default() };
    client.send(message).await.expect("sent");
    let sent = Instant::now();
    let take = Take { max: 1, visibility_ms: 30_000, wait_ms: 0 };
    let delivered = client.recv("jobs", take).await.expect("answered");
    let taken = Instant::now();
    let receipts: Vec<&str> = delivered.iter().map(|message| message.receipt.as_str()).collect();
    assert_eq!(client.ack(&receipts).await.expect("answered"), [true]);
    times.extend([sent - began, taken - sent, taken.elapsed()].map(|time| time.as_secs_f64() * 1e3));
}

/// A node with an honest client whose calls are measured.
struct Measured {
    node: Node,
    client: MailboxClient,
    times: Vec<f64>,
}

impl Measured {
    async fn start() -> Measured {
        let node = options().amnesia().start().await.expect("started");
        for topic in ["jobs", "idle"] {
            make_topic(&node, topic).await;
        }
        let token = tenant(&node, "honest").await;
        let client = MailboxClient::connect(node.api, &token).await.expect("connected");
        Measured { node, client, times: Vec::new() }
    }
}

/// Measures two nodes in turns, of which one has the crowd: what the machine does to the one it does to the other.
async fn nobody_else_notices(what: &str, request: fn(&str) -> Request<Body>, holds: &str) {
    let measure = async || answered_beside_a_crowd(what, request, holds).await;
    crate::alone().await.measure(what, measure).await;
}

async fn answered_beside_a_crowd(what: &str, request: fn(&str) -> Request<Body>, holds: &str) -> BoundResult {
    let (mut quiet, mut crowded) = (Measured::start().await, Measured::start().await);
    let token = tenant(&crowded.node, "greedy").await;
    let crowd = Crowd::start(crowded.node.api, request, &token).await;
    let wanted = (CONNECTIONS * STREAMS) as f64;
    let node = &crowded.node;
    eventually(what, async || (node.metric(holds).await >= wanted).then_some(())).await;
    let (pulse, rounds) = (Pulse::start(), if testkit::soak() { 5_000 } else { 400 });
    for number in 0..rounds + 50 {
        // The first rounds warm both nodes up.
        if number == 50 {
            (quiet.times, crowded.times) = (Vec::new(), Vec::new());
        }
        round(&mut quiet.client, &mut quiet.times).await;
        round(&mut crowded.client, &mut crowded.times).await;
    }
    let still_ms = pulse.stop().as_secs_f64() * 1e3;
    let [quiet_p50, crowded_p50] = [&mut quiet.times, &mut crowded.times].map(|times| percentile(times, 0.5));
    let [quiet_p99, crowded_p99] = [&mut quiet.times, &mut crowded.times].map(|times| percentile(times, 0.99));
    println!(
        "{what}: p50 {quiet_p50:.2} {crowded_p50:.2}, p99 {quiet_p99:.2} {crowded_p99:.2}, still {still_ms:.1} ms"
    );
    for endpoint in ["/v1/recv", "/v1/send", "waiting", "body_memory"] {
        let refused = crowded.node.metric(&format!("busy_rejections_total{{endpoint=\"{endpoint}\"}}")).await;
        assert_eq!(refused, 0.0, "not even the crowd is refused anything at {endpoint}");
    }
    drop(crowd);
    bound(crowded_p50 <= 1.2 * quiet_p50 + 0.2, || format!("p50 {crowded_p50} ms beside {quiet_p50} ms"))?;
    let has_still_p99 = crowded_p99 <= 1.2 * quiet_p99 + still_ms;
    bound(has_still_p99, || format!("p99 {crowded_p99} beside {quiet_p99} ms, still {still_ms} ms"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_09_a_thousand_long_polls_of_one_tenant_change_nobody_elses_latency() {
    nobody_else_notices("long polls", long_poll, "http_waiting").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_09_a_thousand_slow_bodies_of_one_tenant_change_nobody_elses_latency() {
    nobody_else_notices("slow bodies", slow_body, r#"tasks_spawned_total{kind="http_stream"}"#).await;
}
