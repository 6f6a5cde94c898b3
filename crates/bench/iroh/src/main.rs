//! Measures one cell of iroh-gossip: `macronode-bench-iroh SUBSCRIBERS BYTES SECONDS` prints messages a second, and the
//! median and p99 of the latency in milliseconds.

// The load is the one that every system of the overlay's bench gets.
#[path = "../../src/overlay/drive.rs"]
#[allow(dead_code, reason = "shared with the bench, which needs all of it")]
mod drive;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use iroh::address_lookup::memory::MemoryLookup;
use iroh::endpoint::presets;
use iroh::protocol::Router;
use iroh::{Endpoint, EndpointAddr, EndpointId, RelayMode};
use iroh_gossip::TopicId;
use iroh_gossip::api::{Event, GossipReceiver, GossipSender, JoinOptions};
use iroh_gossip::net::Gossip;
use ron_kernel::Deadline;

use drive::{Connect, Hear, Publish};

/// The same as that of the bench.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NAME: &str = "iroh-gossip 0.101";
/// Bytes of a message with its head at most; 4 KiB by default.
const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Events that wait for a subscriber at most; more than a full window.
const EVENTS_MAX: usize = 16 * 1024;
const JOINED_WITHIN: Duration = Duration::from_secs(10);
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Subscribers and bytes of a message, as the load wants them.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    subscribers: usize,
    payload_bytes: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // In one line, which the bench quotes.
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--version"] {
        println!("{NAME}");
        return Ok(());
    }
    let [subscribers, payload_bytes, seconds] = &arguments[..] else {
        anyhow::bail!("macronode-bench-iroh SUBSCRIBERS BYTES SECONDS")
    };
    let cell = Cell { subscribers: subscribers.parse()?, payload_bytes: payload_bytes.parse()? };
    let time = Duration::try_from_secs_f64(seconds.parse()?)?;
    let figure = drive::measure(&Iroh, cell, time).await?;
    println!("{} {} {}", figure.rate, figure.p50_ms, figure.p99_ms);
    Ok(())
}

/// Makes endpoints for each measurement.
struct Iroh;

struct Publishing {
    sender: GossipSender,
    /// Number of the next message: contents that are the same are one message here.
    next: u64,
    /// Nobody publishes but this one, so nothing waits in it but news of neighbours.
    _receiver: GossipReceiver,
    _member: Member,
}

struct Hearing {
    receiver: GossipReceiver,
    /// Messages before this number made sure that everybody has joined.
    first: u64,
    _member: Member,
}

/// An endpoint in the topic. Dropping it ends it.
struct Member {
    id: EndpointId,
    gossip: Gossip,
    _router: Router,
}

impl Member {
    /// An endpoint on loopback that knows the others by this table only: no relays, no discovery.
    async fn new(known: &MemoryLookup) -> anyhow::Result<Member> {
        let endpoint = Endpoint::builder(presets::Minimal)
            .clear_ip_transports()
            .bind_addr("127.0.0.1:0")?
            .relay_mode(RelayMode::Disabled)
            .address_lookup(known.clone())
            .bind()
            .await?;
        let bound = endpoint.bound_sockets().into_iter();
        known.add_endpoint_info(bound.fold(EndpointAddr::new(endpoint.id()), EndpointAddr::with_ip_addr));
        let gossip = Gossip::builder().max_message_size(MESSAGE_BYTES_MAX).spawn(endpoint.clone());
        let id = endpoint.id();
        let router = Router::builder(endpoint).accept(iroh_gossip::ALPN, gossip.clone()).spawn();
        Ok(Member { id, gossip, _router: router })
    }

    async fn join(&self, bootstrap: &[EndpointId]) -> anyhow::Result<(GossipSender, GossipReceiver)> {
        let mut options = JoinOptions::with_bootstrap(bootstrap.iter().copied());
        options.subscription_capacity = EVENTS_MAX;
        Ok(self.gossip.subscribe_with_opts(TopicId::from_bytes([7; 32]), options).await?.split())
    }
}

impl Connect for Iroh {
    type Publishing = Publishing;
    type Hearing = Hearing;

    async fn connect(&self, subscribers: usize) -> anyhow::Result<(Publishing, Vec<Hearing>)> {
        let known = MemoryLookup::new();
        let publisher = Member::new(&known).await?;
        let (sender, receiver) = publisher.join(&[]).await?;
        let mut hearing = Vec::new();
        for _ in 0..subscribers {
            let member = Member::new(&known).await?;
            let (_, mut receiver) = member.join(&[publisher.id]).await?;
            Deadline::after(JOINED_WITHIN).run("joining", receiver.joined()).await??;
            hearing.push(Hearing { receiver, first: 0, _member: member });
        }
        let mut publishing = Publishing { sender, next: 1, _receiver: receiver, _member: publisher };
        publishing.until_all_hear(&mut hearing).await?;
        Ok((publishing, hearing))
    }
}

impl Publishing {
    /// Publishes until a message has reached everybody; what is published from then on counts.
    async fn until_all_hear(&mut self, hearing: &mut [Hearing]) -> anyhow::Result<()> {
        let deadline = Deadline::after(JOINED_WITHIN);
        while !deadline.has_passed() {
            let number = self.next;
            self.publish(&Bytes::from_static(&[0; 8]), 1).await?;
            hearing.iter_mut().for_each(|hearing| hearing.first = number);
            let all = futures_util::future::try_join_all(hearing.iter_mut().map(Hear::hear));
            if let Ok(heard) = Deadline::after(HEARD_WITHIN).run("hearing", all).await {
                heard?;
                hearing.iter_mut().for_each(|hearing| hearing.first = number + 1);
                return Ok(());
            }
        }
        anyhow::bail!("not everybody hears")
    }
}

impl Publish for Publishing {
    async fn publish(&mut self, payload: &Bytes, count: u64) -> anyhow::Result<()> {
        for _ in 0..count {
            let mut message = payload.to_vec();
            message[..8].copy_from_slice(&self.next.to_be_bytes());
            self.next += 1;
            self.sender.broadcast(message.into()).await?;
        }
        Ok(())
    }
}

impl Hear for Hearing {
    async fn hear(&mut self) -> anyhow::Result<u64> {
        let mut heard = 0;
        loop {
            let event = match self.receiver.next().now_or_never() {
                Some(event) => event,
                None if heard > 0 => return Ok(heard),
                None => self.receiver.next().await,
            };
            match event.context("the topic ended")?? {
                Event::Received(message) => {
                    let number = message.content.first_chunk().copied().map_or(0, u64::from_be_bytes);
                    heard += u64::from(number >= self.first);
                }
                Event::Lagged => anyhow::bail!("messages were dropped before a subscriber read them"),
                Event::NeighborUp(_) | Event::NeighborDown(_) => {}
            }
        }
    }
}
