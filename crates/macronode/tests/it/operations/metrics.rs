//! The scrape: well-formed by Prometheus's own judge, and no larger for what strangers ask.

use std::io::Write as _;
use std::process::{Command, Stdio};

use http::Method;
use testkit::frames::RawSession;
use testkit::{Client, Node, Plane};

use crate::operations::{echo, has_tool};
use crate::options;
use testkit::ask;

const JSON: (&str, &str) = ("content-type", "application/json");

/// One request of every kind there is, good and bad.
async fn traffic_of_every_kind(node: &Node) {
    assert_eq!(echo(node.api).await.expect("an answer").status, 200);
    let large = "a".repeat(5 * 1024 * 1024);
    let long = "a".repeat(20 * 1024);
    for (method, path, headers, body, status) in [
        ("GET", "/v1/work?ms=1", vec![], "", 200),
        ("GET", "/v1/work?ms=1&kind=cpu", vec![], "", 200),
        ("POST", "/v1/echo", vec![JSON], "{", 400),
        ("POST", "/v1/echo", vec![], "{}", 415),
        ("POST", "/v1/echo", vec![JSON], large.as_str(), 413),
        ("POST", "/v1/echo", vec![JSON, ("x-long", long.as_str())], "{}", 431),
        ("GET", "/v1/work?ms=1000", vec![("x-request-deadline-ms", "20")], "", 504),
        ("GET", "/v1/echo", vec![], "", 405),
        ("GET", "/nowhere", vec![], "", 404),
        ("POST", "/nowhere", vec![], "", 404),
        ("PUT", "/nowhere", vec![], "", 404),
        ("DELETE", "/nowhere", vec![], "", 404),
        ("BREW", "/nowhere", vec![], "", 404),
    ] {
        let method: Method = method.parse().expect("a method");
        let reply = ask(node.api, method.clone(), path, &headers, body.to_owned()).await.expect("an answer");
        assert_eq!(reply.status, status, "{method} {path}");
    }
    let mut frames = RawSession::hello(node.oap, &node.token).await;
    assert_eq!(&frames.echo(1, b"x").await.payload[..], b"x");
    frames.write(&[0xff; 4]).await;
    assert_eq!(frames.farewell().await, Some(oap::status::TOO_LARGE));
    // As a whole: a file that is read while it is still empty would be a good one.
    let (file, new) = (node.dir.path().join("macronode.toml"), node.dir.path().join("macronode.toml.new"));
    std::fs::write(&new, "nonsense = 1\n").expect("written");
    std::fs::rename(new, file).expect("renamed");
    assert_eq!(node.post(Plane::Admin, "/reload", "", &[]).await.expect("an answer").status, 400);
    assert_eq!(node.post(Plane::Admin, "/services/http/restart", "", &[]).await.expect("an answer").status, 202);
    testkit::eventually("http again", async || echo(node.api).await.ok().filter(|reply| reply.status == 200)).await;
}

async fn scrape(node: &Node) -> String {
    let reply = node.get(Plane::Admin, "/metrics").await.expect("the admin plane answers");
    assert!(reply.header("content-type").starts_with("text/plain; version=0.0.4"), "{:?}", reply.headers);
    reply.text()
}

#[tokio::test]
async fn promtool_finds_nothing_wrong() {
    if !has_tool("promtool", "promtool_finds_nothing_wrong") {
        return;
    }
    let node = options().dev().config("").start().await.expect("the node starts");
    traffic_of_every_kind(&node).await;
    let text = scrape(&node).await;
    assert!(text.contains("frame_reject_total{reason=\"too_large\"} 1"), "{text}");
    let mut judge = Command::new("promtool");
    judge.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut judge = judge.spawn().expect("promtool starts");
    judge.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
    let verdict = judge.wait_with_output().expect("promtool ends");
    let said = String::from_utf8([verdict.stdout, verdict.stderr].concat()).expect("text");
    // The contract fixes these names, although Prometheus would rather have seconds, and another ending.
    const FIXED: [&str; 3] = ["scanner_wake_jitter_ms", "index_dht_lookup_ms", "resolve_deadline_hit"];
    let is_fixed = |line: &&str| line.split(' ').next().is_some_and(|name| FIXED.contains(&name));
    let findings: Vec<_> = said.lines().filter(|line| !is_fixed(line)).collect();
    assert!(findings.is_empty(), "{findings:?}\n{text}");
    assert!(matches!(verdict.status.code(), Some(0 | 3)), "3 stands for remarks: {:?}", verdict.status);
}

#[tokio::test]
async fn strangers_cannot_make_the_scrape_grow() {
    let node = options().dev().config("").start().await.expect("the node starts");
    traffic_of_every_kind(&node).await;
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let before = scrape(&node).await;
    let mut client = Client::connect(node.api).await.expect("the node listens");
    for number in 0..500_u64 {
        // A walk through names nobody has used before.
        let name = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The address of a queue looks like the shorter ones.
        let path = if number % 8 < 4 { format!("/v1/{name:x}") } else { format!("/v1/{name:x}/{number}") };
        let path = format!("{path}?{name:o}={number}");
        let corr_id = format!("{name:x}-{number}");
        let method = ["GET", "POST", "DELETE", "PROPFIND"][number as usize % 4].parse().expect("a method");
        let reply = client.request(method, &path, &[("x-corr-id", &corr_id)], "").await.expect("an answer");
        assert_eq!((reply.status, reply.header("x-corr-id")), (404, corr_id.as_str()));
    }
    let after = scrape(&node).await;
    assert_eq!(series(&before), series(&after), "before:\n{before}\nafter:\n{after}");
    let counted = |endpoint: &str| {
        let series = format!("request_latency_seconds_count{{endpoint=\"{endpoint}\",method=\"GET\"}}");
        testkit::metric_in(&after, &series)
    };
    assert!(counted("unmatched") >= 62.0 && counted("unmatched") + counted("/{account}/{queue}") >= 125.0);
}
