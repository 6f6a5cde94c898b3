//! What sessions cost on this machine: memory of idle ones, frames a second over TLS, handshakes a second.
//!
//! `cargo run --release -p ron-transport --example session_cost [-- idle|frames|handshakes]`

use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame, Hello};
use ron_kernel::clock;
use ron_transport::{
    Closed, Heard, NodeKey, PeerAddress, PostQuantum, Session, SessionLimits, Tls, accept, dial, dial_as_client,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const IDLE_SESSIONS: usize = 500;
const HANDSHAKES: usize = 1000;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let chosen = std::env::args().nth(1);
    let wants = |name: &str| chosen.as_deref().is_none_or(|chosen| chosen == name);
    if wants("idle") {
        idle_sessions().await;
    }
    if wants("frames") {
        for (payload_bytes, count) in [(64, 3_000_000), (1024, 1_000_000), (65_536, 40_000)] {
            frames_per_second(payload_bytes, count).await;
            loopback_per_second(payload_bytes + oap::HEADER_BYTES, count).await;
        }
    }
    if wants("handshakes") {
        for post_quantum in [PostQuantum::Hybrid, PostQuantum::Off] {
            handshakes_per_second(post_quantum).await;
        }
    }
}

struct Node {
    tls: Tls,
    listener: TcpListener,
    address: PeerAddress,
    limits: SessionLimits,
}

async fn node(post_quantum: PostQuantum) -> Node {
    let tls = Tls::new(&NodeKey::generate().expect("a key"), post_quantum).expect("TLS");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let address = PeerAddress::new(tls.node_id(), &address).expect("an address");
    Node { tls, listener, address, limits: SessionLimits::default() }
}

fn hello() -> Hello {
    Hello::new(oap::FRAME_BYTES_MAX as u32, 64)
}

async fn pair(node: &Node, dialler: &Tls) -> (Session, Session) {
    let accepting = async {
        let (tcp, _) = node.listener.accept().await.expect("a connection");
        accept(tcp, &node.tls, hello(), &node.limits).await.expect("a session")
    };
    let (dialled, accepted) = tokio::join!(dial(&node.address, dialler, hello(), &node.limits), accepting);
    (dialled.expect("a session"), accepted)
}

/// Runs both halves of a session that only hears PING.
async fn live(session: Session) -> Closed {
    let Session { mut reader, writer, .. } = session;
    let mut heard = Vec::new();
    tokio::select! {
        closed = writer.run() => closed,
        ended = reader.next_batch(&mut heard) => ended.err().unwrap_or(Closed::Done),
    }
}

async fn idle_sessions() {
    let node = node(PostQuantum::Hybrid).await;
    let dialler = Tls::new(&NodeKey::generate().expect("a key"), PostQuantum::Hybrid).expect("TLS");
    let mut set = JoinSet::new();
    // The first ones pay for what all share.
    for _ in 0..20 {
        let (one, other) = pair(&node, &dialler).await;
        set.spawn(live(one));
        set.spawn(live(other));
    }
    let before = resident_bytes();
    for _ in 0..IDLE_SESSIONS {
        let (one, other) = pair(&node, &dialler).await;
        set.spawn(live(one));
        set.spawn(live(other));
    }
    let each = resident_bytes().saturating_sub(before) / (2 * IDLE_SESSIONS);
    println!("idle: {each} bytes for each side of {IDLE_SESSIONS} sessions");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

async fn frames_per_second(payload_bytes: usize, count: usize) {
    let node = node(PostQuantum::Hybrid).await;
    let dialler = Tls::new(&NodeKey::generate().expect("a key"), PostQuantum::Hybrid).expect("TLS");
    let (one, other) = pair(&node, &dialler).await;
    let Session { reader: _kept, writer, outbox, .. } = one;
    let mut set = JoinSet::new();
    set.spawn(async move { drop(writer.run().await) });
    let payload = Bytes::from(vec![7; payload_bytes]);
    let began = clock::now();
    set.spawn(async move {
        let mut batch = std::collections::VecDeque::new();
        for corr in 0..count as u64 {
            batch.push_back(Frame::event(AppId::GOSSIP, corr, payload.clone()));
            if batch.len() == 64 {
                outbox.send_all(1, &mut batch).await.expect("open");
            }
        }
        outbox.send_all(1, &mut batch).await.expect("open");
        std::future::pending::<()>().await;
    });
    let Session { mut reader, writer: _other_writer, .. } = other;
    let (mut heard, mut got, mut batches) = (Vec::new(), 0, 0);
    while got < count {
        reader.next_batch(&mut heard).await.expect("frames");
        got += heard.drain(..).filter(|heard| matches!(heard, Heard::Frame(_))).count();
        batches += 1;
    }
    report("session over TLS", payload_bytes, count, clock::now() - began);
    println!("  {} frames in a batch", count / batches);
}

/// The same bytes over TCP without TLS and frames: what the kernel allows.
async fn loopback_per_second(frame_bytes: usize, count: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (from, to) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (mut from, mut to) = (from.expect("connected"), to.expect("accepted").0);
    let total = frame_bytes * count;
    let began = clock::now();
    let mut set = JoinSet::new();
    set.spawn(async move {
        let buffer = vec![7; 64 * 1024];
        let mut left = total;
        while left > 0 {
            let now = left.min(buffer.len());
            tokio::io::AsyncWriteExt::write_all(&mut from, &buffer[..now]).await.expect("written");
            left -= now;
        }
    });
    let mut buffer = vec![0; 128 * 1024];
    let mut left = total;
    while left > 0 {
        left -= tokio::io::AsyncReadExt::read(&mut to, &mut buffer).await.expect("read");
    }
    report("loopback, 64 KiB writes", frame_bytes, count, clock::now() - began);
}

fn report(what: &str, bytes: usize, count: usize, took: Duration) {
    let rate = count as f64 / took.as_secs_f64();
    println!("{what}: {bytes} B: {rate:.0}/s, {:.0} MB/s", rate * bytes as f64 / 1e6);
}

async fn handshakes_per_second(post_quantum: PostQuantum) {
    let node = node(post_quantum).await;
    let began = clock::now();
    for _ in 0..HANDSHAKES {
        let accepting = async {
            let (tcp, _) = node.listener.accept().await.expect("a connection");
            accept(tcp, &node.tls, hello(), &node.limits).await.expect("a session")
        };
        let dialling = dial_as_client(&node.address, post_quantum, hello(), &node.limits);
        let (dialled, _accepted) = tokio::join!(dialling, accepting);
        dialled.expect("a session");
    }
    let rate = HANDSHAKES as f64 / (clock::now() - began).as_secs_f64();
    println!("handshakes, both sides on one thread, {post_quantum:?}: {rate:.0}/s");
}
