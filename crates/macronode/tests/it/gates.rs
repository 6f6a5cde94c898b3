//! The acceptance gates that name the kernel, on the real binary: drain, deadline, backpressure, chaos.
//!
//! Each test has its own node on free ports. The runtime of the nodes comes from `MACRO_TEST_RUNTIME`.
#![allow(clippy::disallowed_methods, reason = "a test measures the node with its own clock")]

mod drain;
mod faults;
mod limits;

use std::time::Duration;

use testkit::{LoadShape, Node, NodeOptions, Plane};

/// A node with the development routes.
fn dev_node() -> NodeOptions {
    Node::options_for(env!("CARGO_BIN_EXE_macronode")).dev()
}

/// A hundred echoes a second from each connection.
fn echoes(connections: usize) -> LoadShape {
    LoadShape::post(connections, "/v1/echo", r#"{"message":"hello"}"#).every(Duration::from_millis(10))
}

/// Orders chaos and says which instances were hit.
async fn chaos(node: &Node, order: &str) -> Vec<String> {
    let reply = node.post(Plane::Admin, &format!("/chaos/{order}"), "", &[]).await.expect("the admin plane answers");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let hit = reply.json().expect("JSON")["hit"].as_array().expect("a list").clone();
    hit.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}
