//! A reload is judged by what will be in force together.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use http::Method;
use testkit::{Node, Plane, Reply, ask, eventually};

use crate::options;

/// A node whose API address stands in its file, beside the other lines.
async fn start(api: SocketAddr, lines: &str) -> Node {
    let node = options().dev().configures_api().config(text(api, lines)).start().await.expect("a node");
    assert_eq!(node.api, api);
    node
}

/// An address whose port is this process's own on every address of the machine, as a move to all of them needs.
fn own_port() -> SocketAddr {
    let port = 22_000 + std::process::id() % 9_000;
    SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).expect("below 31,000")))
}

fn text(api: SocketAddr, lines: &str) -> String {
    format!("[api]\naddr = \"{api}\"\n{lines}")
}

/// Replaces the file and asks for a reload.
async fn reload(node: &Node, text: String) -> Reply {
    // At once as a whole: the node may read the file by itself at any moment.
    let (file, new) = (node.dir.path().join("macronode.toml"), node.dir.path().join("macronode.toml.new"));
    std::fs::write(&new, text).expect("written");
    std::fs::rename(new, file).expect("renamed");
    node.post(Plane::Admin, "/reload", "", &[]).await.expect("the admin plane answers")
}

fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
}

/// An address of this machine other than those the tests bind.
fn elsewhere(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 1, 2, 3), port))
}

async fn answers(address: SocketAddr) -> bool {
    let reply = ask(address, Method::POST, "/v1/echo", &[("content-type", "application/json")], r#"{"message":"a"}"#);
    reply.await.is_ok_and(|reply| reply.status == 200)
}

#[tokio::test]
async fn rule_06_unsigned_requests_never_meet_a_public_address_whichever_keys_wait_for_a_restart() {
    let api = own_port();
    let node = start(api, "[auth]\nsqs = \"off\"\n").await;
    // By itself the file is sound, but signatures would wait for a restart while the address is taken at once.
    let reply = reload(&node, text(everywhere(api.port()), "[auth]\nsqs = \"sigv4\"\n")).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    for part in ["api.addr", "auth.sqs", "in force until the process is started anew"] {
        assert!(reply.text().contains(part), "{part}: {}", reply.text());
    }
    assert!(!answers(elsewhere(api.port())).await, "nobody listens on the other addresses of the machine");
    assert!(answers(api).await);

    // What waits is told, has no effect, and does not hold back the rest of the file.
    let reply = reload(&node, text(api, "[auth]\nsqs = \"sigv4\"\n[http]\nrequest_deadline = \"4s\"\n")).await;
    let report = reply.json().expect("JSON");
    assert_eq!(reply.status, 200, "{report}");
    assert_eq!(report["waiting"], serde_json::json!(["auth.sqs"]), "{report}");
    assert_eq!(report["version"], 2, "the deadline is taken up: {report}");
    let note = node.get(Plane::Admin, "/readyz?verbose").await.expect("an answer").text();
    assert!(note.contains("`auth.sqs` is off"), "it is off until the process is started anew: {note}");
}

#[tokio::test]
async fn rule_06_the_same_port_on_another_address_is_taken_without_a_gap_and_given_back() {
    let api = own_port();
    let node = start(api, "").await;
    for (address, is_public) in [(everywhere(api.port()), true), (api, false)] {
        let reply = reload(&node, text(address, "")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        eventually("the move", async || (answers(elsewhere(api.port())).await == is_public).then_some(())).await;
        assert!(answers(api).await);
    }
}

#[tokio::test]
async fn rule_06_a_port_that_somebody_else_has_refuses_the_reload_and_http_stays_up() {
    let api = own_port();
    let node = start(api, "").await;
    let _holder = TcpListener::bind(elsewhere(api.port())).expect("free");
    let missing = node.dir.path().join("missing.pem");
    let missing = missing.display();
    let refused = [
        text(everywhere(api.port()), ""),
        text(elsewhere(api.port()), ""),
        text(api, &format!("tls_cert = \"{missing}\"\ntls_key = \"{missing}\"\n")),
    ];
    for text in refused {
        let reply = reload(&node, text).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(answers(api).await, "HTTP stays up");
    }
    assert_eq!(node.metric("config_version").await, 1.0, "nothing of it came into force");
    assert_eq!(node.metric("service_restarts_total{service=\"http\"}").await, 0.0);
}
