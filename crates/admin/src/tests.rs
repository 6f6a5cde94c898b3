//! The admin plane as its users meet it: over a socket, beside a real kernel.

mod node;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use node::{Node, Setup, TOKEN, call, connect, exchange, request};
use ron_policy::TaskState;
use rustls::pki_types::{PrivateKeyDer, ServerName};

const CONTROL: [&str; 6] = [
    "/reload",
    "/drain",
    "/log-level",
    "/services/work/restart",
    "/chaos/kill?task=worker",
    "/chaos/freeze?task=worker",
];

#[test]
fn every_reading_route_answers_with_its_type_and_is_not_cached() {
    let node = Node::ready(Setup::default());
    let cases = [
        ("/", 200, "text/html; charset=utf-8"),
        ("/healthz", 200, "application/json"),
        ("/readyz", 200, "application/json"),
        ("/readyz?writes", 200, "application/json"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/version", 200, "application/json"),
        ("/topology", 200, "application/json"),
        ("/topology?as=json", 200, "application/json"),
        ("/topology?as=mermaid", 200, "text/plain; charset=utf-8"),
        ("/topology?as=painting", 400, "application/problem+json"),
        ("/nowhere", 404, "application/problem+json"),
        ("/reload", 405, "application/problem+json"),
    ];
    for (path, status, content_type) in cases {
        let answer = node.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (status, content_type), "{path}: {}", answer.body);
        assert_eq!((answer.header("cache-control"), answer.header("x-content-type-options")), ("no-store", "nosniff"));
        if status >= 400 {
            assert_eq!(answer.json()["status"], status, "{path}");
        }
    }
    assert_eq!(node.get("/reload").header("allow"), "POST");
}

#[test]
fn the_reading_routes_say_what_the_kernel_says() {
    let node = Node::ready(Setup::default());
    assert_eq!(node.get("/healthz").json()["ok"], true);
    let ready = node.get("/readyz").json();
    assert_eq!((&ready["state"], &ready["services"][0]["name"]), (&"ready".into(), &"admin".into()), "{ready}");
    assert_eq!((&ready["notes"][0], &ready["accepts_writes"]), (&"mind the gap".into(), &true.into()), "{ready}");
    let topology = node.get("/topology").json();
    let workers = topology["tasks"].as_array().unwrap().iter().filter(|task| task["name"] == "worker").count();
    assert_eq!((workers, &topology["services"][1]["depends_on"][0]), (2, &"admin".into()), "{topology}");
    assert!(node.get("/topology?as=mermaid").body.starts_with("flowchart"));
    assert_eq!(node.get("/version").json()["version"], "1.2.3");
    let metrics = node.get("/metrics").body;
    for expected in ["queue_depth{queue=", "process_open_fds ", "connections_open{listener=\"admin\"} 1"] {
        assert!(metrics.contains(expected), "{expected} is missing in {metrics}");
    }
}

#[test]
fn the_page_carries_the_nonce_its_policy_names() {
    let node = Node::ready(Setup::default());
    let [first, second] = [node.get("/"), node.get("/")];
    let policy = first.header("content-security-policy");
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert_eq!(first.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_ne!(policy, second.header("content-security-policy"));
}

#[test]
fn control_needs_the_token() {
    let node = Node::ready(Setup { chaos: true, ..Setup::default() });
    for path in CONTROL {
        for token in [None, Some(""), Some(&TOKEN[1..]), Some(&*TOKEN.replace('0', "1"))] {
            let answer = call(node.address, "POST", path, token, "");
            assert_eq!((answer.status, &answer.json()["code"]), (401, &"E_CAP_AUTH".into()), "{path} {token:?}");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
        }
    }
    assert!(!node.kernel.is_draining());
}

#[test]
fn control_does_what_it_says() {
    let node = Node::ready(Setup { chaos: true, ..Setup::default() });
    let cases = [
        ("/reload", "", 200, r#"{"changed":["http.deadline"],"restarted":[],"version":7,"waiting":[]}"#),
        ("/log-level", r#"{"filter":"debug"}"#, 200, r#"{"filter":"debug"}"#),
        ("/services/work/restart", "", 202, r#"{"restarted":"work"}"#),
    ];
    for (path, body, status, expected) in cases {
        let answer = node.post(path, body);
        assert_eq!((answer.status, &*answer.body), (status, expected), "{path}");
    }
    let refused = [
        ("/log-level", r#"{"filter":"shout"}"#, 400),
        ("/log-level", r#"{"filter":"debug","more":1}"#, 400),
        ("/log-level", "debug", 400),
        ("/services/nothing/restart", "", 404),
        ("/chaos/kill", "", 400),
        ("/chaos/kill?task=worker&share=2", "", 400),
        ("/chaos/kill?task=worker&share=many", "", 400),
        ("/chaos/freeze?task=nobody", "", 404),
    ];
    for (path, body, status) in refused {
        let answer = node.post(path, body);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, "application/problem+json"),
            "{path} {body}"
        );
    }
}

#[test]
fn chaos_hits_one_instance_unless_told_a_share() {
    let node = Node::ready(Setup { chaos: true, ..Setup::default() });
    for (query, count) in [("", 1), ("&share=1.0", 2)] {
        node.wait_for(|status| status.tasks.iter().all(|task| task.view.state == TaskState::Running));
        let answer = node.post(&format!("/chaos/kill?task=worker{query}"), "");
        assert_eq!((answer.status, answer.json()["hit"].as_array().unwrap().len()), (200, count), "{}", answer.body);
        node.wait_for(|status| status.tasks.iter().map(|task| task.view.restarts_total).sum::<u64>() >= count as u64);
    }
}

#[test]
fn there_are_no_chaos_routes_unless_asked_for() {
    let node = Node::ready(Setup::default());
    for path in ["/chaos/kill?task=worker", "/chaos/freeze?task=worker"] {
        assert_eq!(node.post(path, "").status, 404, "{path}");
    }
}

#[test]
fn a_body_over_the_limit_is_refused_declared_or_not() {
    let node = Node::ready(Setup::default());
    let body = " ".repeat(16 * 1024 + 1);
    assert_eq!(node.post("/log-level", &body).status, 413);
    assert_eq!(node.post("/drain", &body).status, 413);
    let chunked = request("POST", "/log-level", Some(TOKEN), "").replace(
        "content-length: 0\r\n\r\n",
        &format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
    );
    assert_eq!(exchange(connect(node.address), &chunked).status, 413);
    assert!(!node.kernel.is_draining());
}

#[test]
fn a_refusal_arrives_although_nobody_reads_the_body_of_its_request() {
    let node = Node::ready(Setup::default());
    let body = vec![b' '; 4_000_000];
    let length = format!("content-length: {}", body.len());
    for (path, token, status) in
        [("/log-level", Some(TOKEN), "413"), ("/nowhere", None, "413"), ("/drain", None, "401")]
    {
        let head = request("POST", path, token, "");
        let head = match status {
            "413" => head.replace("content-length: 0", &length),
            // Nothing says how long it is.
            _ => head.replace("content-length: 0", "transfer-encoding: chunked") + &format!("{:x}\r\n", body.len()),
        };
        let mut stream = connect(node.address);
        stream.write_all(head.as_bytes()).unwrap();
        // Much more than the buffers of the sockets hold: it is taken and thrown away, or the answer could be lost.
        stream.write_all(&body).expect("its sender is not cut off");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("no reset overtakes it");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    assert!(!node.kernel.is_draining());
}

#[test]
fn it_answers_while_the_kernels_runtime_stands_still() {
    let barrier = Arc::new(Barrier::new(2));
    let node = Node::start(Setup { block: Some(Arc::clone(&barrier)), ..Setup::default() });
    barrier.wait();
    assert!(node.get("/metrics").body.contains("tasks_spawned_total"));
    assert_eq!(node.get("/readyz").header("content-type"), "application/json");
    while node.get("/healthz").status == 200 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stuck = node.get("/healthz");
    assert_eq!((stuck.status, &stuck.json()["ok"]), (503, &false.into()));
    assert!(stuck.json()["loop_age_ms"].as_u64().unwrap() >= 2_000);
    assert_eq!(node.post("/drain", "").status, 202);
    barrier.wait();
    node.ended();
}

#[test]
fn it_answers_until_it_is_stopped_and_then_no_more() {
    let node = Node::ready(Setup::default());
    let (admin, address) = node.drained();
    let ready = call(address, "GET", "/readyz", None, "");
    assert_eq!((ready.status, &ready.json()["state"]), (503, &"stopped".into()), "{}", ready.body);
    assert_eq!(call(address, "GET", "/metrics", None, "").status, 200);
    let mut idle = kept_alive(address);
    admin.stop();
    assert!(!admin.is_alive());
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0, "an idle connection is closed");
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
    assert!(admin.restart().is_err(), "stopped is stopped");
}

#[test]
fn a_thread_that_dies_is_started_again_on_the_same_port() {
    let node = Node::ready(Setup::default());
    node.admin.kill();
    node.wait_for(|status| {
        let server = status.tasks.iter().find(|task| task.name == "metrics_server").unwrap();
        server.view.restarts_total == 1 && server.view.state == TaskState::Running
    });
    assert_eq!(node.get("/healthz").status, 200);
    let (admin, _) = node.drained();
    admin.stop();
}

#[test]
fn connections_that_rest_give_way_and_lock_nobody_out() {
    let node = Node::ready(Setup { connections_max: 4, ..Setup::default() });
    // Of the same address as whoever asks next: some that never said a word, some that did.
    let mut crowd: Vec<_> = (0..4).map(|_| connect(node.address)).collect();
    crowd.extend((0..4).map(|_| kept_alive(node.address)));
    for _ in 0..3 {
        assert_eq!(node.get("/healthz").status, 200);
    }
    let first = crowd.first_mut().expect("many").read(&mut [0; 1]);
    assert!(!matches!(first, Ok(1..)), "the oldest went first: {first:?}");
}

#[test]
fn connections_over_the_limit_are_closed_and_counted() {
    let node = Node::ready(Setup { connections_max: 1, ..Setup::default() });
    // A request whose body does not come is worked on until its deadline.
    let mut works = connect(node.address);
    let waits = request("POST", "/log-level", Some(TOKEN), "");
    let waits = waits.replace("content-length: 0\r\n", "content-length: 1\r\nexpect: 100-continue\r\n");
    works.write_all(waits.as_bytes()).unwrap();
    let mut asked_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    works.read_exact(&mut asked_on).expect("its body is waited for");
    for _ in 0..2 {
        let closed = connect(node.address).read(&mut [0; 1]);
        assert!(!matches!(closed, Ok(1..)), "{closed:?}");
    }
    // A refusal is counted just after the close, but before the next accept.
    assert!(node.kernel.metrics().connections_refused.at("admin_connections_max").get() >= 1);
}

#[test]
fn a_header_that_does_not_end_is_not_waited_for() {
    let node = Node::ready(Setup::default());
    let mut slow = connect(node.address);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).expect("closed before the test's own patience ends");
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn it_speaks_tls() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let chain = vec![certified.cert.der().clone()];
    // Named, because more than one is compiled: libp2p brings another.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut server = server.with_single_cert(chain, key).unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let node = Node::start(Setup { tls: Some(Arc::new(server)), ..Setup::default() });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let session = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let mut stream = rustls::StreamOwned::new(session, connect(node.address));
    let answer = exchange(&mut stream, &request("GET", "/version", None, ""));
    assert_eq!(answer.json()["version"], "1.2.3");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
}

/// A connection on which one request was answered and that stays open.
fn kept_alive(address: std::net::SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(request("GET", "/version", None, "").replace("connection: close\r\n", "").as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"}") {
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    stream
}
