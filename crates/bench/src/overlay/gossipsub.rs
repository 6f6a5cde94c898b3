//! rust-libp2p's gossipsub: endpoints in this process over TCP with noise and yamux, each subscriber connected with the
//! publisher.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use libp2p::gossipsub::{Behaviour, ConfigBuilder, Event, IdentTopic, MessageAuthenticity, PublishError};
use libp2p::identity::Keypair;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, noise, tcp, yamux};
use ron_kernel::Deadline;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::drive::{Connect, Hear, Publish};

/// Name and version, for the page.
pub const NAME: &str = "gossipsub (rust-libp2p 0.57)";

/// Bytes of a message with its head at most; 64 KiB by default, head included.
const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// A message that waits longer than this is dropped; 5 s by default, which a full window may take.
const QUEUED_FOR_MAX: Duration = Duration::from_mins(1);
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// A topic for each measurement, so that none hears another's rest.
static NEXT_TOPIC: AtomicU64 = AtomicU64::new(0);

/// Makes endpoints for each measurement.
pub struct Gossipsub;

/// An endpoint that publishes; its swarm runs in a task of its own.
pub struct Publishing {
    orders: mpsc::Sender<Order>,
    _running: JoinSet<()>,
}

/// Publications that are asked for at once, and where to say what became of them.
struct Order {
    payload: Bytes,
    count: u64,
    done: oneshot::Sender<Result<(), PublishError>>,
}

/// An endpoint that hears; its swarm runs in a task of its own.
pub struct Hearing {
    heard: Arc<Heard>,
    _running: JoinSet<()>,
}

/// Messages that came since somebody asked.
#[derive(Default)]
struct Heard {
    count: AtomicU64,
    changed: Notify,
}

impl Connect for Gossipsub {
    type Publishing = Publishing;
    type Hearing = Hearing;

    async fn connect(&self, subscribers: usize) -> anyhow::Result<(Publishing, Vec<Hearing>)> {
        let topic = IdentTopic::new(format!("bench-{}", NEXT_TOPIC.fetch_add(1, Ordering::Relaxed)));
        let mut publisher = endpoint(&topic)?;
        let address = listen(&mut publisher).await?;
        let mut hearing = Vec::new();
        for _ in 0..subscribers {
            let mut subscriber = endpoint(&topic)?;
            subscriber.dial(address.clone())?;
            hearing.push(hear_in_task(subscriber));
        }
        let known = until_subscribed(&mut publisher, subscribers);
        Deadline::after(CONNECTED_WITHIN).run("subscribing", known).await?;
        Ok((publish_in_task(publisher, topic), hearing))
    }
}

/// An endpoint with the settings as they come, but for bounds that a window would exceed.
fn endpoint(topic: &IdentTopic) -> anyhow::Result<Swarm<Behaviour>> {
    let config =
        ConfigBuilder::default().max_transmit_size(MESSAGE_BYTES_MAX).publish_queue_duration(QUEUED_FOR_MAX).build()?;
    let behaviour = |key: &Keypair| Behaviour::new(MessageAuthenticity::Signed(key.clone()), config);
    let mut swarm = SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, yamux::Config::default)?
        .with_behaviour(|key| behaviour(key).map_err(Box::<dyn std::error::Error + Send + Sync>::from))?
        .with_swarm_config(|config| config.with_idle_connection_timeout(QUEUED_FOR_MAX))
        .build();
    swarm.behaviour_mut().subscribe(topic)?;
    Ok(swarm)
}

async fn listen(swarm: &mut Swarm<Behaviour>) -> anyhow::Result<Multiaddr> {
    swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse()?)?;
    loop {
        if let SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
            return Ok(address);
        }
    }
}

/// Waits until so many others have told the publisher that they subscribe: from then on it sends to all of them.
async fn until_subscribed(swarm: &mut Swarm<Behaviour>, subscribers: usize) {
    let mut known = 0;
    while known < subscribers {
        if let SwarmEvent::Behaviour(Event::Subscribed { .. }) = swarm.select_next_some().await {
            known += 1;
        }
    }
}

fn hear_in_task(mut swarm: Swarm<Behaviour>) -> Hearing {
    let heard = Arc::new(Heard::default());
    let (counting, mut running) = (Arc::clone(&heard), JoinSet::new());
    running.spawn(async move {
        loop {
            if let SwarmEvent::Behaviour(Event::Message { .. }) = swarm.select_next_some().await {
                counting.count.fetch_add(1, Ordering::AcqRel);
                counting.changed.notify_one();
            }
        }
    });
    Hearing { heard, _running: running }
}

fn publish_in_task(mut swarm: Swarm<Behaviour>, topic: IdentTopic) -> Publishing {
    #[expect(clippy::disallowed_methods, reason = "a queue of the bench, not of a node")]
    let (orders, mut ordered) = mpsc::channel::<Order>(1);
    let mut running = JoinSet::new();
    running.spawn(async move {
        loop {
            tokio::select! {
                Some(order) = ordered.recv() => {
                    let outcome = publish(&mut swarm, &topic, &order.payload, order.count).await;
                    // Whoever ordered it may have given up.
                    let _ = order.done.send(outcome);
                }
                _ = swarm.select_next_some() => {}
            }
        }
    });
    Publishing { orders, _running: running }
}

/// Publishes so many times; where all queues are full the swarm runs until there is room.
async fn publish(
    swarm: &mut Swarm<Behaviour>,
    topic: &IdentTopic,
    payload: &Bytes,
    count: u64,
) -> Result<(), PublishError> {
    let mut left = count;
    while left > 0 {
        match swarm.behaviour_mut().publish(topic.clone(), payload.to_vec()) {
            Ok(_) => left -= 1,
            Err(PublishError::AllQueuesFull(_)) => drop(swarm.select_next_some().await),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Publish for Publishing {
    async fn publish(&mut self, payload: &Bytes, count: u64) -> anyhow::Result<()> {
        let (done, outcome) = oneshot::channel();
        let sent = self.orders.send(Order { payload: payload.clone(), count, done }).await;
        sent.ok().context("the publisher ended")?;
        Ok(outcome.await.context("the publisher ended")??)
    }
}

impl Hear for Hearing {
    async fn hear(&mut self) -> anyhow::Result<u64> {
        loop {
            match self.heard.count.swap(0, Ordering::AcqRel) {
                0 => self.heard.changed.notified().await,
                count => return Ok(count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_hears_what_is_published() {
        let (mut publishing, mut hearing) = Gossipsub.connect(2).await.expect("endpoints");
        let payload = Bytes::from(vec![7; 64 * 1024]);
        publishing.publish(&payload, 3).await.expect("published");
        for hearing in &mut hearing {
            let mut heard = 0;
            while heard < 3 {
                heard += hearing.hear().await.expect("running");
            }
            assert_eq!(heard, 3);
        }
    }
}
