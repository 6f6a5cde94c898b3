//! Web pages in a browser on the same machine: their requests are refused on both planes.

use std::net::SocketAddr;

use testkit::{Node, Plane, shown_in_browser};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{SLACK, read_head};
use crate::options;

/// A node whose queues anybody on the machine may use.
async fn open_node() -> Node {
    options().amnesia().config("[auth]\nsqs = \"off\"\n").start().await.expect("started")
}

/// The status of a request with these lines in its head, `Host` among them.
async fn status(address: SocketAddr, request_line: &str, head: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the node listens");
    let request = format!("{request_line} HTTP/1.1\r\n{head}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the node reads");
    let head = tokio::time::timeout(SLACK, read_head(&mut stream)).await.expect("an answer");
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// What browsers say of requests that other pages send.
fn of_foreign_pages(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    vec![
        format!("host: {address}\r\norigin: https://evil.example\r\n"),
        format!("host: {address}\r\norigin: null\r\n"),
        format!("host: localhost:{port}\r\norigin: http://localhost:3000\r\n"),
        format!("host: {address}\r\nsec-fetch-site: cross-site\r\n"),
        format!("host: {address}\r\nsec-fetch-site: same-site\r\nsec-fetch-mode: no-cors\r\n"),
        format!("host: evil.example:{port}\r\nsec-fetch-site: same-origin\r\n"),
        format!("host: evil.example:{port}\r\norigin: http://evil.example:{port}\r\n"),
        format!("host: 127.0.0.1.evil.example\r\n"),
    ]
}

/// What the node's own pages, people and programs send.
fn of_own_pages_and_programs(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    vec![
        format!("host: {address}\r\n"),
        format!("host: localhost:{port}\r\n"),
        format!("host: [::1]:{port}\r\n"),
        format!("host: {address}\r\nsec-fetch-site: none\r\nsec-fetch-mode: navigate\r\n"),
        format!("host: {address}\r\nsec-fetch-site: same-origin\r\norigin: http://{address}\r\n"),
    ]
}

#[tokio::test]
async fn rule_21_web_pages_reach_neither_unsigned_queues_nor_the_admin_plane() {
    let node = open_node().await;
    let made = status(node.api, "GET /?Action=CreateQueue&QueueName=jobs", &format!("host: {}\r\n", node.api)).await;
    assert_eq!(made, "200");
    let planes = [
        (node.api, vec!["GET /?Action=GetQueueUrl&QueueName=jobs", "POST /", "GET /docs", "GET /nowhere"]),
        (node.admin, vec!["GET /", "GET /metrics", "GET /topology", "GET /readyz", "POST /drain"]),
    ];
    for (address, requests) in planes {
        for request in requests {
            for head in of_foreign_pages(address) {
                assert_eq!(status(address, request, &head).await, "403", "{request}\n{head}");
            }
            for head in of_own_pages_and_programs(address) {
                assert_ne!(status(address, request, &head).await, "403", "{request}\n{head}");
            }
        }
    }
}

#[tokio::test]
async fn rule_21_a_credential_is_asked_for_instead_where_one_is_needed() {
    let node = options().amnesia().start().await.expect("started");
    let head = format!("host: queues.example\r\nauthorization: Bearer {}\r\n", node.token);
    // Behind a proxy of the same machine, callers keep the name they know the node by.
    assert_eq!(status(node.api, "GET /v1/topics", &head).await, "200");
    assert_eq!(status(node.api, "GET /v1/topics", "host: queues.example\r\n").await, "401");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_21_the_nodes_own_pages_work_in_a_browser() {
    let node = open_node().await;
    let pages = [format!("http://{}/docs", node.api), format!("http://localhost:{}/", node.admin.port())];
    for (page, expected) in pages.into_iter().zip(["/v1/send", "shard_worker"]) {
        let Some(shown) = shown_in_browser(&page, 4_000).await else { return };
        assert!(shown.contains(expected), "{page} lacks {expected}: {shown:.2000}");
    }
    let scrape = node.get(Plane::Admin, "/metrics").await.expect("answered");
    assert_eq!(scrape.status, 200);
}
