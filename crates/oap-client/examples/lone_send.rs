//! Time of one durable send of a client that is alone: over OAP/1, over HTTP, and one bare write with its `fdatasync`.
//!
//! `cargo run --release -p oap-client --example lone_send NODE_BINARY...`; several binaries, or one twice, take turns.

use oap_client::{Client, Options, OutgoingMessage};
use ron_transport::{NodeKey, PeerAddress};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};
use testkit::{MailboxClient, Node, Outgoing};

const ROUNDS: usize = 12;
const SENDS: usize = 250;
const BODY: [u8; 256] = [7; 256];
/// What such a message takes in the log, about.
const RECORD_BYTES: usize = 512;
const RAW_FILE_BYTES: usize = 16 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Measured {
    name: String,
    node: Node,
    oap: Client,
    http: MailboxClient,
    /// Over OAP, over HTTP.
    times: [Vec<Duration>; 2],
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let mut nodes = Vec::new();
    for binary in std::env::args().skip(1) {
        nodes.push(Measured::start(binary).await?);
    }
    let folder = tempfile::tempdir()?;
    let file = File::create(folder.path().join("raw"))?;
    file.write_all_at(&vec![0; RAW_FILE_BYTES], 0)?;
    file.sync_all()?;
    let (mut raw, mut at) = (Vec::new(), 0);
    for round in 0..=ROUNDS {
        // The first round warms up.
        let is_counted = round > 0;
        for _ in 0..SENDS {
            let began = now();
            file.write_all_at(&[7; RECORD_BYTES], at)?;
            file.sync_data()?;
            at = (at + RECORD_BYTES as u64) % (RAW_FILE_BYTES - RECORD_BYTES) as u64;
            raw.extend(is_counted.then(|| began.elapsed()));
        }
        for node in &mut nodes {
            node.send(is_counted).await?;
        }
    }
    let bare = quantile(&mut raw, 50);
    println!("a write and fdatasync: p50 {bare:.1} us, p99 {:.1} us", quantile(&mut raw, 99));
    for node in &mut nodes {
        for (surface, times) in ["OAP/1", "HTTP"].iter().zip(&mut node.times) {
            let (median, late) = (quantile(times, 50), quantile(times, 99));
            println!("{surface} at {}: p50 {median:.1} us ({:.2}x), p99 {late:.1} us", node.name, median / bare);
        }
    }
    Ok(())
}

impl Measured {
    async fn start(name: String) -> Outcome<Measured> {
        let node = Node::options_for(&name).start().await?;
        let id = NodeKey::load_or_create(&node.data_dir().join("node.key"))?.node_id();
        let address: PeerAddress = format!("{id}@{}", node.oap).parse()?;
        let oap = Client::connect(&address, Options { token: Some(node.token.clone()), ..Options::default() }).await?;
        let http = MailboxClient::of(&node).await?;
        Ok(Measured { name, node, oap, http, times: Default::default() })
    }

    async fn send(&mut self, is_counted: bool) -> Outcome<()> {
        let mailbox = self.oap.mailbox();
        for _ in 0..SENDS {
            let message = OutgoingMessage { body: bytes::Bytes::from_static(&BODY), ..OutgoingMessage::default() };
            let began = now();
            for sent in mailbox.send_batch("lone", &[message]).await? {
                sent?;
            }
            self.times[0].extend(is_counted.then(|| began.elapsed()));
        }
        for _ in 0..SENDS {
            let began = now();
            let sent = self.http.send(Outgoing { topic: "lone", payload: &BODY, ..Outgoing::default() }).await?;
            self.times[1].extend(is_counted.then(|| began.elapsed()));
            assert_eq!(sent.durability, "fsynced", "{}", self.node.stderr());
        }
        Ok(())
    }
}

fn quantile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[times.len() * percent / 100].as_secs_f64() * 1e6
}

#[expect(clippy::disallowed_methods, reason = "a measurement wants the real clock")]
fn now() -> Instant {
    Instant::now()
}
