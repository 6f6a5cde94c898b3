//! A node that asks somebody else's router beside its peers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use ron_kernel::clock;
use ron_store::{ContentId, ProviderFields, ProviderRecord};
use ron_transport::NodeKey;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::index::node::{ABC_CID, PEER, SERVICES, open, resolve};
use crate::member::Member;
use testkit::eventually;

/// A router that answers every question about providers with one line, as a search that goes on: the stream stays open.
/// Ends with what it returns.
struct EndlessRouter {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl EndlessRouter {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, asked) = (listener.local_addr().expect("bound"), Arc::new(AtomicUsize::new(0)));
        let (mut serving, counted) = (JoinSet::new(), Arc::clone(&asked));
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(say_one_line(stream, Arc::clone(&counted)));
            }
        });
        EndlessRouter { address, asked, _serving: serving }
    }
}

async fn say_one_line(stream: TcpStream, asked: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        if stream.read_line(&mut request).await.expect("a request") == 0 {
            return;
        }
    }
    assert!(request.starts_with(&format!("GET /routing/v1/providers/{ABC_CID} ")), "{request}");
    asked.fetch_add(1, Ordering::SeqCst);
    let line = format!("{{\"Schema\":\"peer\",\"ID\":\"{PEER}\",\"Addrs\":[\"/ip4/192.0.2.7/tcp/4001\"]}}\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{:x}\r\n{line}\r\n", line.len());
    stream.write_all(answer.as_bytes()).await.expect("it reads");
    // Until the node has had enough and closes.
    let _ = stream.read_line(&mut request).await;
}

/// A record of somebody who made up a key to say that they have the content.
fn made_up() -> ProviderRecord {
    let (key, issued_ms) = (NodeKey::generate().expect("a key"), clock::unix_millis());
    let fields = ProviderFields {
        key: ABC_CID.parse::<ContentId>().expect("a CID").key(),
        peer: key.node_id().into(),
        addrs: vec!["/ip4/203.0.113.6/tcp/1".parse().expect("an address")],
        protocols: Vec::new(),
        region: None,
        sequence: 1,
        issued_ms,
        expires_ms: issued_ms + 3_600_000,
    };
    ProviderRecord::sign(fields, &key).expect("within bounds")
}

#[tokio::test]
async fn a_record_that_anybody_posted_does_not_silence_the_router() {
    let router = EndlessRouter::start().await;
    let mut node = Member::running(SERVICES);
    node.configure(&format!("[index]\nupstreams = [\"http://{}\"]\nunknown_ttl = \"0ms\"\n", router.address));
    node.start().await;
    let stranger = made_up();
    let record = json!({"record_b64": BASE64.encode(stranger.encode())}).to_string();
    let json = ("content-type", "application/json");
    let posted = open(&node, Method::POST, &format!("/providers/{ABC_CID}"), &[json], record).await;
    assert_eq!(posted.status, 200, "{}", posted.text());
    let both = async || {
        let answer = resolve(&node, ABC_CID).await;
        let peers: Vec<&Value> = answer["providers"].as_array()?.iter().map(|one| &one["peer_id"]).collect();
        let expected = [stranger.peer.to_string(), PEER.to_owned()].map(Value::from);
        expected.iter().all(|peer| peers.contains(&peer)).then_some(())
    };
    eventually("the stranger beside the provider that the router knows", both).await;
}

#[tokio::test]
async fn a_router_that_keeps_its_stream_open_is_heard() {
    let router = EndlessRouter::start().await;
    let mut node = Member::running(SERVICES);
    // What is not known is asked for again at once: on a busy machine the router may be late the first time.
    node.configure(&format!("[index]\nupstreams = [\"http://{}\"]\nunknown_ttl = \"0ms\"\n", router.address));
    node.start().await;
    let found = async || {
        let answer = resolve(&node, ABC_CID).await;
        (answer["outcome"] == "found").then_some(answer)
    };
    let answer = eventually("a provider that only the router knows", found).await;
    assert_eq!(answer["providers"][0]["peer_id"], PEER, "{answer}");
    assert!(router.asked.load(Ordering::SeqCst) >= 1);
    // It did what it should: its breaker is closed, and it is asked again.
    let before = router.asked.load(Ordering::SeqCst);
    let again = open(&node, Method::GET, &format!("/resolve/{ABC_CID}?fresh=true"), &[], "").await;
    let again: Value = again.json().expect("JSON");
    assert_ne!(again["outcome"], "degraded", "{again}");
    assert!(router.asked.load(Ordering::SeqCst) > before);
}
