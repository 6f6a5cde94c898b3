//! A node with an index, and what tests ask of it.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use testkit::{Client, Reply};

use crate::member::Member;

/// BLAKE3 of `abc`, in both of its spellings.
pub const ABC_B3: &str = "b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
pub const ABC_CID: &str = "bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu";
/// A peer that is nowhere.
pub const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
/// Services of a node that resolves.
pub const SERVICES: &str = "http,oap,overlay,dht,index";

/// A node alone.
pub async fn alone() -> Member {
    let mut member = Member::running(SERVICES);
    member.start().await;
    member
}

/// One request without a token, with these headers.
pub async fn open(
    member: &Member,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Reply {
    let mut client = Client::connect(member.api()).await.expect("the node listens");
    client.request(method, path, headers, body).await.expect("the node answers")
}

/// Publishes a provider in the node's name.
pub async fn provide(member: &Member, id: &str, body: &Value) -> Value {
    let reply = member.ask(Method::POST, &format!("/providers/{id}"), body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json().expect("JSON")
}

/// Publishes the usual provider of the usual content.
pub async fn provide_abc(member: &Member) -> Value {
    let body = json!({"peer_id": PEER, "addrs": ["/ip4/10.0.0.1/tcp/4001", "/ip6/2001:db8::1/udp/4001/quic-v1"],
        "protocols": ["transport-bitswap"], "ttl_s": 3600});
    provide(member, ABC_B3, &body).await
}

/// What an id leads to.
pub async fn resolve(member: &Member, id: &str) -> Value {
    let reply = open(member, Method::GET, &format!("/resolve/{id}"), &[], "").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json().expect("JSON")
}
