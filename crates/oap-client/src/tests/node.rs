//! A node made of a session: echoes, passes publications to subscriptions, and keeps a mailbox of one queue.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use oap::{AppId, Flags, Frame, Hello, Step, Streams, status};
use ron_kernel::Deadline;
use ron_transport::{GoAway, Heard, NodeKey, Outbox, PeerAddress, PostQuantum, Session, SessionLimits, Tls, accept};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::{Client, Options};

pub(super) const TOKEN: &str = "token";
/// Echo answers this with how many requests the mailbox had.
pub(super) const MAILBOX_REQUESTS: &str = "mailbox requests";
/// Echo answers this with how many publishers have not ended their streams.
pub(super) const PUBLISHERS: &str = "publishers";
/// Echo answers this with how many receives were cancelled.
pub(super) const CANCELLED: &str = "cancelled";
/// A topic in which receives are served as by a node that does not know cancels.
pub(super) const OLD: &str = "old";
/// The same for a client whose token allows no nacks.
pub(super) const UNNACKABLE: &str = "unnackable";
/// A request with a message of this body is refused as a whole.
pub(super) const UNFIT: &str = "unfit for any topic";

/// A client and the node it is connected to, which ends with the set.
pub(super) async fn connected(options: Options) -> (Client, JoinSet<()>) {
    let tls = Tls::new(&NodeKey::generate().expect("a key"), PostQuantum::Hybrid).expect("TLS");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let address = PeerAddress::new(tls.node_id(), &address).expect("an address");
    let mut set = JoinSet::new();
    set.spawn(async move {
        let (tcp, _) = listener.accept().await.expect("a connection");
        let hello = Hello::new(64 * 1024, 8);
        let session = accept(tcp, &tls, hello, &SessionLimits::default()).await.expect("a session");
        serve(session).await;
    });
    let client = Client::connect(&address, options).await.expect("connected");
    (client, set)
}

pub(super) fn with_token() -> Options {
    Options { token: Some(TOKEN.into()), ..Options::default() }
}

struct Node {
    outbox: Outbox,
    is_allowed: bool,
    /// Lane of each publishing stream.
    publishers: HashMap<u64, String>,
    /// Number and lane of each subscription.
    subscribers: Vec<(u64, String)>,
    seq: u64,
    mailbox: Vec<Bytes>,
    /// Messages that were received and neither acknowledged nor given back.
    leased: Vec<Bytes>,
    /// Receives that wait for a message: number, topic, how many.
    waiting: Vec<(u64, String, usize)>,
    cancelled: u64,
    mailbox_requests: u64,
    chain_in: [u8; 32],
    batches_out: (u64, [u8; 32]),
}

async fn serve(session: Session) {
    let Session { facts, mut reader, writer, outbox } = session;
    let mut set = JoinSet::new();
    set.spawn(async move { drop(writer.run().await) });
    let mut streams = Streams::new(facts.agreed.max_inflight);
    let is_allowed = facts.their_hello.cap.as_deref() == Some(TOKEN);
    let mut node = Node {
        outbox,
        is_allowed,
        publishers: HashMap::new(),
        subscribers: Vec::new(),
        seq: 0,
        mailbox: Vec::new(),
        leased: Vec::new(),
        waiting: Vec::new(),
        cancelled: 0,
        mailbox_requests: 0,
        chain_in: [0; 32],
        batches_out: (0, [0; 32]),
    };
    let mut heard = Vec::new();
    while reader.next_batch(&mut heard).await.is_ok() {
        for heard in heard.drain(..) {
            let Heard::Frame(frame) = heard else { continue };
            let step = streams.accept(&frame).expect("the client keeps the rules");
            let (corr, app) = (frame.corr, frame.app);
            if let Some((code, payload)) = node.take(step, frame).await {
                streams.finished(corr);
                node.send(Frame::response(app, corr, code, payload)).await;
            }
            for (corr, answer) in node.served() {
                streams.finished(corr);
                node.send(Frame::response(AppId::MAILBOX, corr, status::OK, answer)).await;
            }
        }
    }
    set.join_all().await;
}

impl Node {
    async fn send(&self, frame: Frame) {
        let _ = self.outbox.send(frame.corr, frame).await;
    }

    /// What is answered at once.
    async fn take(&mut self, step: Step, frame: Frame) -> Option<(u16, Bytes)> {
        if !self.is_allowed {
            let problem = json!({"status": 401, "code": "unauthenticated", "detail": "no token"});
            return matches!(step, Step::Whole | Step::Opens).then(|| (401, problem.to_string().into()));
        }
        match (step, frame.app) {
            (Step::Whole, AppId::ECHO) if &frame.payload[..] == b"leave" => {
                self.outbox.close(&GoAway::new(status::UNAVAILABLE, 0, "bye"), Deadline::after(Duration::from_secs(5)));
                None
            }
            (Step::Whole, AppId::ECHO) if &frame.payload[..] == MAILBOX_REQUESTS.as_bytes() => {
                Some((status::OK, self.mailbox_requests.to_string().into()))
            }
            (Step::Whole, AppId::ECHO) if &frame.payload[..] == PUBLISHERS.as_bytes() => {
                Some((status::OK, self.publishers.len().to_string().into()))
            }
            (Step::Whole, AppId::ECHO) if &frame.payload[..] == CANCELLED.as_bytes() => {
                Some((status::OK, self.cancelled.to_string().into()))
            }
            (Step::Whole, AppId::ECHO) => Some((status::OK, frame.payload)),
            (Step::Whole, AppId::MAILBOX) => {
                self.mailbox_requests += 1;
                match is_unfit(&frame.payload) {
                    true => Some(refused(400)),
                    false => self.mailbox(frame.corr, &frame.payload),
                }
            }
            (Step::Event, AppId::MAILBOX) => {
                assert!(frame.is_cancel(), "a client pushes nothing else");
                let knows_it = |(corr, topic, _): &&(u64, String, usize)| {
                    *corr == frame.corr && topic != OLD && topic != UNNACKABLE
                };
                let corr = self.waiting.iter().find(knows_it).map(|(corr, _, _)| *corr)?;
                self.waiting.retain(|(waiting, _, _)| *waiting != corr);
                self.cancelled += 1;
                Some(refused(503))
            }
            (Step::Opens, AppId::LANES) => self.open(&frame).await,
            (Step::Continues, AppId::LANES) => self.publish(frame).await,
            (Step::Closes, AppId::LANES) => {
                self.subscribers.retain(|(corr, _)| *corr != frame.corr);
                self.publishers.remove(&frame.corr);
                Some((status::OK, Bytes::new()))
            }
            (Step::Ignored, _) => None,
            _ => Some((status::NOT_FOUND, Bytes::new())),
        }
    }

    async fn open(&mut self, frame: &Frame) -> Option<(u16, Bytes)> {
        let opening: Value = serde_json::from_slice(&frame.payload).expect("JSON");
        let name = |key: &str| opening[key].as_str().map(str::to_owned);
        if name("publish").or_else(|| name("subscribe")).as_deref() == Some("forbidden") {
            let problem = json!({"status": 403, "code": "forbidden", "detail": "not this lane", "retry_after_ms": 7});
            return Some((403, problem.to_string().into()));
        }
        if let Some(lane) = name("publish") {
            self.publishers.insert(frame.corr, lane);
        }
        if let Some(lane) = name("subscribe") {
            self.send(Frame::event(AppId::LANES, frame.corr, [&[0][..], &[9; 32]].concat())).await;
            self.subscribers.push((frame.corr, lane));
        }
        None
    }

    /// A message goes to every subscription of its lane, in parts where it is too large for a frame.
    async fn publish(&mut self, frame: Frame) -> Option<(u16, Bytes)> {
        self.seq += 1;
        let lane = &self.publishers[&frame.corr];
        let mut event = BytesMut::new();
        event.put_u8(1);
        event.put_slice(&[9; 32]);
        event.put_u64(5);
        event.put_u64(self.seq);
        event.put_u8(0);
        event.put_slice(&frame.payload);
        for (corr, _) in self.subscribers.iter().filter(|(_, subscribed)| subscribed == lane) {
            for part in parts(&event, self.outbox.frame_bytes_max() - 38) {
                self.send(Frame { corr: *corr, ..part }).await;
            }
        }
        if frame.has(Flags::ACK_REQ) {
            let outcome = json!({"msg_id": "01", "origin": "09".repeat(32), "epoch": 5, "seq": self.seq, "peers": []});
            self.send(Frame::partial_response(AppId::LANES, frame.corr, 202, outcome.to_string())).await;
        }
        None
    }

    /// What is answered at once; a receive that finds nothing may wait.
    fn mailbox(&mut self, corr: u64, payload: &Bytes) -> Option<(u16, Bytes)> {
        let head_len = u32::from_be_bytes(payload[1..5].try_into().expect("four bytes")) as usize;
        let head: Value = serde_json::from_slice(&payload[5..5 + head_len]).expect("JSON");
        let mut bodies = payload.slice(5 + head_len..);
        let results: Vec<Value> = match payload[0] {
            1 => {
                if !self.continues_chain(&head) {
                    return Some(refused(422));
                }
                let send = |message: &Value| {
                    let body = bodies.split_to(message["len"].as_u64().expect("a length") as usize);
                    assert_eq!(message["payload_hash"], format!("b3:{}", blake3::hash(&body)), "each has its hash");
                    self.mailbox.push(body);
                    json!({"msg_id": format!("id-{}", self.mailbox.len() - 1)})
                };
                head["messages"].as_array().expect("messages").iter().map(send).collect()
            }
            2 => {
                let max = head["max_messages"].as_u64().expect("a number") as usize;
                if self.mailbox.is_empty() && head["wait_ms"] != 0 {
                    self.waiting.push((corr, head["topic"].as_str().expect("a topic").to_owned(), max));
                    return None;
                }
                return Some((status::OK, self.recv(max, head["topic"] == UNNACKABLE)));
            }
            4 if head["receipts"][0] == "unnackable" => return Some(refused(403)),
            3 | 4 => {
                self.give_back(payload[0] == 4);
                let settle = |receipt: &Value| match receipt.as_str() {
                    Some("stale") => json!({"error": {"code": "conflict", "status": 409, "detail": "too late"}}),
                    _ => json!({"ok": true}),
                };
                head["receipts"].as_array().expect("receipts").iter().map(settle).collect()
            }
            _ => {
                self.give_back(head["visibility_ms"] == 0);
                vec![json!({"until_ts": head["visibility_ms"]})]
            }
        };
        Some((status::OK, answer(payload[0], &json!({"durability": "ram", "results": results}), &[])))
    }

    /// What is leased can be received again, or else it is settled.
    fn give_back(&mut self, is_given_back: bool) {
        let leased = std::mem::take(&mut self.leased);
        if is_given_back {
            self.mailbox.extend(leased);
        }
    }

    fn continues_chain(&mut self, head: &Value) -> bool {
        let Some(given) = head["batch_chain"].as_str() else { return true };
        let hash_of = |message: &Value| {
            let digits = message["payload_hash"].as_str().and_then(|text| text.strip_prefix("b3:"));
            *blake3::Hash::from_hex(digits.expect("a hash")).expect("digits").as_bytes()
        };
        let hashes: Vec<u8> = head["messages"].as_array().expect("messages").iter().flat_map(hash_of).collect();
        let next = blake3::hash(&[&self.chain_in[..], blake3::hash(&hashes).as_bytes()].concat());
        let continues = given == format!("b3:{next}");
        if continues {
            self.chain_in = *next.as_bytes();
        }
        continues
    }

    /// Answers to receives that waited for what is there now.
    fn served(&mut self) -> Vec<(u64, Bytes)> {
        let mut answers = Vec::new();
        while !self.mailbox.is_empty() && !self.waiting.is_empty() {
            let (corr, topic, max) = self.waiting.remove(0);
            answers.push((corr, self.recv(max, topic == UNNACKABLE)));
        }
        answers
    }

    fn recv(&mut self, max: usize, is_unnackable: bool) -> Bytes {
        let out: Vec<Bytes> = self.mailbox.drain(..max.min(self.mailbox.len())).collect();
        self.leased.extend(out.iter().cloned());
        let receipt = if is_unnackable { "unnackable" } else { "receipt" };
        let hashes: Vec<u8> = out.iter().flat_map(|body| *blake3::hash(body).as_bytes()).collect();
        let chain = *blake3::hash(&[&self.batches_out.1[..], blake3::hash(&hashes).as_bytes()].concat()).as_bytes();
        self.batches_out = (self.batches_out.0 + 1, chain);
        let head = |body: &Bytes| {
            // A body that changed on the way has the hash of another.
            let hashed = if &body[..] == b"damaged" { &b"whole"[..] } else { body };
            json!({"msg_id": "id", "len": body.len(), "ts": 1, "payload_hash": format!("b3:{}", blake3::hash(hashed)),
                "attempt": 1, "receipt": receipt, "fence": 1, "until_ts": 2})
        };
        let heads: Vec<Value> = out.iter().map(head).collect();
        let chain = format!("b3:{}", blake3::Hash::from_bytes(chain));
        answer(2, &json!({"messages": heads, "batch": self.batches_out.0, "batch_chain": chain}), &out)
    }
}

fn refused(status: u16) -> (u16, Bytes) {
    (status, json!({"status": status, "code": "refused", "detail": "as the test wants it"}).to_string().into())
}

fn is_unfit(payload: &[u8]) -> bool {
    payload.windows(UNFIT.len()).any(|window| window == UNFIT.as_bytes())
}

fn answer(op: u8, head: &Value, bodies: &[Bytes]) -> Bytes {
    let (mut out, head) = (BytesMut::new(), head.to_string());
    out.put_u8(op);
    out.put_u32(head.len() as u32);
    out.put_slice(head.as_bytes());
    bodies.iter().for_each(|body| out.put_slice(body));
    out.freeze()
}

fn parts(event: &[u8], part_bytes_max: usize) -> Vec<Frame> {
    let chunks: Vec<Bytes> = event.chunks(part_bytes_max).map(Bytes::copy_from_slice).collect();
    let last = chunks.len() - 1;
    let flags = |place| match (last, place) {
        (0, _) => Flags::EVENT,
        (_, 0) => Flags::EVENT | Flags::START,
        (last, place) if place == last => Flags::EVENT | Flags::END,
        _ => Flags::EVENT,
    };
    let part = |(place, chunk)| Frame { flags: flags(place), ..Frame::event(AppId::LANES, 0, chunk) };
    chunks.into_iter().enumerate().map(part).collect()
}
