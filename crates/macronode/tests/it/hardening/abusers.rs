//! Four kinds of abusers at once beside one honest client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use biscuit_auth::UnverifiedBiscuit;
use biscuit_auth::builder::BlockBuilder;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Method, Request, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ron_kernel::Deadline;
use serde_json::json;
use testkit::{BoundResult, Node, PATIENCE_MAX, Plane, Pulse, Signal, bound, percentile};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::options;

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// HTTP/2 connections of each kind of abuser that holds streams, and streams on each.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 256;
/// Pause of a stream whose request was ended before it asks again: what is tested is what they hold, not how many
/// requests two cores can refuse in a second for a client that runs on them, too.
const AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Token bombs, none like another.
const BOMBS: usize = 200;
const FORM_BYTES: usize = 4 * 1024 * 1024;
const ABUSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const MIB: u64 = 1024 * 1024;
/// Requests of the honest client in one window, and windows in a phase; of the windows the middle one counts.
const WINDOW: usize = 200;
const WINDOWS: usize = 5;
const ROUNDS_MAX: usize = 3;
/// A drain ends within this, with the time a busy machine takes to end a process.
const DRAINED_WITHIN: Duration = PATIENCE_MAX;

/// A connection from one address of this machine; every address of 127/8 is ours.
#[derive(Clone)]
struct Caller {
    sender: SendRequest<Body>,
    token: Arc<str>,
}

impl Caller {
    async fn connect(node: SocketAddr, source: Ipv4Addr, token: &Arc<str>) -> Caller {
        Caller::try_connect(node, source, token).await.expect("the node listens")
    }

    async fn try_connect(node: SocketAddr, source: Ipv4Addr, token: &Arc<str>) -> Option<Caller> {
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind((source, 0).into()).ok()?;
        let stream = socket.connect(node).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.ok()?;
        tokio::spawn(async move { drop(connection.await) });
        Some(Caller { sender, token: Arc::clone(token) })
    }

    /// Status of one request; none if the connection ended.
    async fn post(&mut self, path: &str, kind: &str, body: Body) -> Option<u16> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://127.0.0.1{path}"))
            .header(header::CONTENT_TYPE, kind)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(body)
            .expect("a request");
        self.sender.ready().await.ok()?;
        let response = self.sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        response.into_body().collect().await.ok()?;
        Some(status)
    }

    async fn json(&mut self, path: &str, body: serde_json::Value) -> Option<u16> {
        self.post(path, "application/json", Full::new(Bytes::from(body.to_string())).boxed_unsync()).await
    }
}

async fn mint(node: &Node, subject: &str, rights: &[&str]) -> Arc<str> {
    let body = json!({ "subject": subject, "rights": rights }).to_string();
    let bearer = format!("Bearer {}", node.token);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let reply = node.post(Plane::Api, "/v1/tokens", body, &headers).await.expect("an answer");
    let reply = reply.json().expect("JSON");
    reply["token"].as_str().unwrap_or_else(|| panic!("{reply}")).into()
}

/// The abusers' token with rules appended that would take an engine of rules for ages; each number gives another one,
/// so that remembering one does not help.
fn bomb(token: &str, number: usize) -> Arc<str> {
    let facts: String = (0..40).map(|n| format!("n({});", n + 1_000 * number)).collect();
    let rules = "m($a, $b, $c, $d, $e) <- n($a), n($b), n($c), n($d), n($e); check if m($a, $a, $b, $c, $d), $a == $b;";
    let block = BlockBuilder::new().code(format!("{facts}{rules}")).expect("valid rules");
    let token = UnverifiedBiscuit::from_base64(token).expect("a token").append(block).expect("appended");
    token.to_base64().expect("written").into()
}

/// A body of which only the beginning ever comes.
fn slow_body() -> Body {
    let begun = futures_util::stream::once(async { Ok(Frame::data(Bytes::from_static(b"{\"topic\":"))) });
    StreamBody::new(begun.chain(futures_util::stream::pending())).boxed_unsync()
}

/// Everything the abusers do, until it is dropped. Counts requests of each kind that were answered or are held.
struct Abuse {
    bombs: Arc<AtomicU64>,
    forms: Arc<AtomicU64>,
    /// Bombs and forms that were not refused.
    wrong: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Abuse {
    async fn start(node: SocketAddr, token: &Arc<str>) -> Abuse {
        let [bombs, forms, wrong] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (poller, slow) =
                (Caller::connect(node, ABUSER, token).await, Caller::connect(node, ABUSER, token).await);
            for stream in 0..STREAMS {
                // Spread, so that those who ask again do not come all at once.
                let first = AGAIN_AFTER * u32::try_from(stream).expect("small") / STREAMS as u32;
                let (mut poller, mut slow) = (poller.clone(), slow.clone());
                tasks.spawn(async move {
                    tokio::time::sleep(first).await;
                    let poll = json!({ "topic": "abuse.polls", "wait_ms": 20_000, "max_messages": 1 });
                    while poller.json("/v1/recv", poll.clone()).await.is_some() {
                        tokio::time::sleep(AGAIN_AFTER).await;
                    }
                });
                tasks.spawn(async move {
                    tokio::time::sleep(first).await;
                    while slow.post("/v1/send", "application/json", slow_body()).await.is_some() {
                        tokio::time::sleep(AGAIN_AFTER).await;
                    }
                });
            }
        }
        // Made beforehand: signing them costs this process more than refusing them costs the node.
        let made: Arc<[Arc<str>]> = (0..BOMBS).map(|number| bomb(token, number)).collect();
        for start in 0..4 {
            let (token, bombs, made) = (Arc::clone(token), Arc::clone(&bombs), Arc::clone(&made));
            let wrong = Arc::clone(&wrong);
            tasks.spawn(async move {
                let mut caller = Caller::connect(node, ABUSER, &token).await;
                for bomb in made.iter().cycle().skip(start * BOMBS / 4) {
                    caller.token = Arc::clone(bomb);
                    let status =
                        caller.json("/v1/send", json!({ "topic": "abuse.bombs", "payload_b64": "Yg==" })).await;
                    let Some(status) = status else { return };
                    wrong.fetch_add(u64::from(!matches!(status, 401 | 403 | 429)), Ordering::Relaxed);
                    bombs.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        let form = Bytes::from("a=b&".repeat(FORM_BYTES / 4));
        for _ in 0..2 {
            let (token, forms, form) = (Arc::clone(token), Arc::clone(&forms), form.clone());
            let wrong = Arc::clone(&wrong);
            tasks.spawn(async move {
                let mut caller = Caller::connect(node, ABUSER, &token).await;
                loop {
                    let body = Full::new(form.clone()).boxed_unsync();
                    match caller.post("/", "application/x-www-form-urlencoded", body).await {
                        Some(status) => {
                            wrong.fetch_add(u64::from(!(400..500).contains(&status)), Ordering::Relaxed);
                        }
                        // Refused before the body was read, which may close the connection.
                        None => match Caller::try_connect(node, ABUSER, &token).await {
                            Some(again) => caller = again,
                            None => return,
                        },
                    }
                    forms.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
        }
        Abuse { bombs, forms, wrong, _tasks: tasks }
    }
}

/// A node with what both clients need, and the honest client's connection to it.
async fn prepared() -> (Node, Caller) {
    let node = options().start().await.expect("a node");
    let bearer = format!("Bearer {}", node.token);
    for topic in ["honest.jobs", "abuse.polls", "abuse.bombs"] {
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = json!({ "topic": topic, "payload_b64": "Zmlyc3Q=" }).to_string();
        node.post(Plane::Api, "/v1/send", body, &headers).await.expect("made by its first message");
    }
    let honest = mint(&node, "honest", &["mailbox:send:honest.*"]).await;
    let caller = Caller::connect(node.api, HONEST, &honest).await;
    (node, caller)
}

/// Milliseconds of one durable send, which must be taken.
async fn honest_send(caller: &mut Caller) -> f64 {
    let started = Instant::now();
    let call = caller.json("/v1/send", json!({ "topic": "honest.jobs", "payload_b64": "d29yaw==" }));
    let status = Deadline::after(PATIENCE_MAX).run("honest send", call).await;
    assert_eq!(status.ok(), Some(Some(200)), "the honest client is served");
    started.elapsed().as_secs_f64() * 1_000.0
}

/// The middle of the windows' p99 at two nodes, asked in turns: what the machine does to one it does to the other.
async fn honest_p99(callers: [&mut Caller; 2]) -> [f64; 2] {
    let [one, other] = callers;
    let mut windows = [Vec::new(), Vec::new()];
    for _ in 0..WINDOWS {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..WINDOW {
            times[0].push(honest_send(one).await);
            times[1].push(honest_send(other).await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for (window, times) in windows.iter_mut().zip(&mut times) {
            window.push(percentile(times, 0.99));
        }
    }
    windows.map(|mut windows| percentile(&mut windows, 0.5))
}

/// Whether the honest client's p99 at the abused node is within 1.5 of that at the other, but for the time that the
/// machine itself stood still.
async fn stays_near(abused: &mut Caller, quiet: &mut Caller) -> bool {
    let pulse = Pulse::start();
    let [abused, quiet] = honest_p99([abused, quiet]).await;
    let stood_still = pulse.stop().as_secs_f64() * 1_000.0;
    eprintln!("p99 {abused:.2} ms among abusers, {quiet:.2} ms beside them; machine late by {stood_still:.2} ms");
    abused <= 1.5 * quiet + stood_still
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_09_four_kinds_of_abusers_at_once_change_little_for_an_honest_client() {
    crate::alone().await.measure("abusers", serve_beside_abusers).await;
}

async fn serve_beside_abusers() -> BoundResult {
    // The abusers and both nodes share two cores: only the other node tells what the machine alone does to an answer.
    let (_quiet, mut at_quiet) = prepared().await;
    let (mut node, mut caller) = prepared().await;
    let abuser = mint(&node, "abuser", &["mailbox:send:abuse.*", "mailbox:recv:abuse.*"]).await;
    honest_p99([&mut caller, &mut at_quiet]).await;
    let before = node.rss_bytes();

    let abuse = Abuse::start(node.api, &abuser).await;
    // The disk or the host may spoil a round, not three in a row.
    let (mut rounds, mut is_near) = (0, false);
    while !is_near && rounds < ROUNDS_MAX {
        is_near = stays_near(&mut caller, &mut at_quiet).await;
        rounds += 1;
    }
    let grown = node.rss_bytes().saturating_sub(before);
    let (bombs, forms) = (abuse.bombs.load(Ordering::Relaxed), abuse.forms.load(Ordering::Relaxed));
    eprintln!("{bombs} token bombs, {forms} forms, {grown} bytes grown");
    assert_eq!(abuse.wrong.load(Ordering::Relaxed), 0, "token bombs and forms without a signature are refused");
    assert!(grown < 128 * MIB, "{grown} bytes more than before");

    // With the abusers still at it.
    node.signal(Signal::Term);
    let exit = node.wait_exit(DRAINED_WITHIN).await.expect("the node drains in time");
    assert!(matches!(exit.code(), Some(0 | 75)), "{exit}");
    bound(bombs > 20 && forms > 5, || format!("the abusers did little: {bombs} token bombs, {forms} forms"))?;
    bound(is_near, || "p99 among abusers is not within 1.5 of that beside them".to_owned())
}
