//! A star of nodes, one of which is stopped (SIGSTOP) while its session stands: what the others and the hub notice.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use oap_client::{Event, NodeId, Published, Publisher, Since, Subscription};
use ron_kernel::{Deadline, clock};
use rustix::process::Signal;
use svc_overlay::config::{FrameLimits, Options};
use svc_overlay::memory::{self, Use};
use tokio::task::JoinSet;

use super::lanes::next_lane;
use super::node::{CROWD, LaneNode, LaneNodeOptions};
use crate::mailbox::scratch::Scratch;

/// Nodes around the hub; the first is stopped.
pub const LEAVES: usize = 4;
const PAYLOAD_BYTES: usize = 4096;
/// A thousand messages a second: little for the machine, so that times say how long a message takes and not how long it
/// waits for a core.
const EVERY: Duration = Duration::from_millis(1);
/// Bytes of the messages that fill the way to the stopped node, and how many it takes at most: buffers of the kernel,
/// the queue, and the credit of a lane.
const FILL_BYTES: usize = 64 * 1024;
const FILL_MESSAGES_MAX: usize = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Measurements, one for each round.
#[derive(Clone, Debug, Default)]
pub struct StoppedFigures {
    /// p99 in milliseconds from a publication to each of the others, while everybody runs.
    pub running_ms: Vec<f64>,
    /// The same while one is stopped and its queue is full.
    pub stopped_ms: Vec<f64>,
    /// Median and p99 of the time in which a publication was answered that found the queue full.
    pub busy_p50_ms: Vec<f64>,
    pub busy_p99_ms: Vec<f64>,
    /// Bytes that the hub holds beyond what it held with everybody running.
    pub grown_bytes: Vec<f64>,
    /// Bytes that the formula allows.
    pub formula_bytes: f64,
}

/// Measures all rounds on one star, after one that is thrown away; what was measured before a failure stays.
pub async fn measure(
    binary: &Path,
    scratch: &Scratch,
    (rounds, time): (usize, Duration),
    figures: &mut StoppedFigures,
) -> anyhow::Result<()> {
    figures.formula_bytes = formula_bytes() as f64;
    let mut star = Star::start(binary, scratch).await?;
    for round in 0..=rounds {
        eprintln!("a stopped peer: round {round} of {rounds}");
        // Twice as long as a cell: of a p99 only one message in a hundred speaks.
        let one = star.round(2 * time).await?;
        if round > 0 {
            figures.running_ms.push(one.running_ms);
            figures.stopped_ms.push(one.stopped_ms);
            figures.busy_p50_ms.push(millis(&one.busy, 0.5));
            figures.busy_p99_ms.push(millis(&one.busy, 0.99));
            figures.grown_bytes.push(one.grown_bytes);
        }
    }
    Ok(())
}

/// What one lane among these peers may cost with the node's own settings.
fn formula_bytes() -> usize {
    let (read_timeout, write_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    let frames = FrameLimits { frame_bytes_max: oap::FRAME_BYTES_MAX, read_timeout, write_timeout };
    memory::bytes_max(
        &Options::default().live(frames),
        Use { engines: 1, peers: LEAVES, quic_peers: 0, subscriptions: 0 },
    )
}

struct Round {
    running_ms: f64,
    stopped_ms: f64,
    /// Nanoseconds of publications that were told `busy`.
    busy: Histogram<u64>,
    grown_bytes: f64,
}

struct Star {
    hub: LaneNode,
    leaves: Vec<LaneNode>,
    publisher: Publisher,
    /// One for each leaf, in their order.
    heard: Vec<Arc<HeardAtLeaf>>,
    listening: JoinSet<anyhow::Result<()>>,
    /// Memory of the hub when everybody had joined.
    memory_before: u64,
}

/// What a subscriber at a leaf heard.
struct HeardAtLeaf {
    newest: AtomicU64,
    /// Nanoseconds from publication to here of messages that carry their time.
    times: Mutex<Histogram<u64>>,
    /// Whether it may miss messages: the one that is stopped may.
    may_miss: bool,
}

impl HeardAtLeaf {
    fn times(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Star {
    async fn start(binary: &Path, scratch: &Scratch) -> anyhow::Result<Star> {
        let node = |name: String, peer| {
            let folder = scratch.folder(&name);
            async move { LaneNodeOptions { binary, folder: folder?, config: CROWD.to_owned(), peer }.start().await }
        };
        let hub = node("hub".to_owned(), None).await?;
        let (lane, mut leaves, mut heard, mut listening) = (next_lane(), Vec::new(), Vec::new(), JoinSet::new());
        for number in 0..LEAVES {
            let leaf = node(format!("leaf-{number}"), Some(&hub.address)).await?;
            let times = Mutex::new(Histogram::new(3)?);
            let at_leaf = Arc::new(HeardAtLeaf { newest: AtomicU64::new(0), times, may_miss: number == 0 });
            let subscription = leaf.client().await?.subscribe(&lane, Since::now()).await?;
            listening.spawn(listen(subscription, Arc::clone(&at_leaf)));
            leaves.push(leaf);
            heard.push(at_leaf);
        }
        let publisher = hub.client().await?.publisher(&lane).await?;
        let mut star = Star { hub, leaves, publisher, heard, listening, memory_before: 0 };
        star.until_all_hear().await?;
        star.memory_before = star.hub.memory_bytes()?;
        Ok(star)
    }

    /// Everybody running, then one stopped, then that one back.
    async fn round(&mut self, time: Duration) -> anyhow::Result<Round> {
        let (running, _) = self.publish_for(time, None).await?;
        let stopped = self.leaves[0].address.node_id;
        self.leaves[0].signal(Signal::STOP);
        let during = async {
            self.fill_the_way_to(stopped).await?;
            let (times, busy) = self.publish_for(time, Some(stopped)).await?;
            anyhow::Ok((times, busy, self.hub.memory_bytes()?))
        };
        let during = during.await;
        self.leaves[0].signal(Signal::CONT);
        let (times, busy, memory) = during?;
        self.until_all_hear().await?;
        Ok(Round {
            running_ms: millis(&running, 0.99),
            stopped_ms: millis(&times, 0.99),
            busy,
            grown_bytes: memory.saturating_sub(self.memory_before) as f64,
        })
    }

    /// Publishes large messages until the stopped node is told as busy, and waits until the others have them.
    async fn fill_the_way_to(&mut self, stopped: NodeId) -> anyhow::Result<()> {
        let payload = Bytes::from(vec![0; FILL_BYTES]);
        for _ in 0..FILL_MESSAGES_MAX {
            let published = self.publisher.publish_acked(payload.clone()).await?;
            if outcome_for(&published, stopped) == Some("busy") {
                return self.until_others_heard(published.seq).await;
            }
        }
        anyhow::bail!("a stopped peer is never told as busy")
    }

    /// Publishes at an even pace: the times until the others have heard, and those of answers that said `busy`.
    async fn publish_for(
        &mut self,
        time: Duration,
        stopped: Option<NodeId>,
    ) -> anyhow::Result<(Histogram<u64>, Histogram<u64>)> {
        self.others().for_each(|heard| heard.times().reset());
        let (began, mut busy, mut last) = (clock::now(), Histogram::new(3)?, 0);
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut payload = vec![0; PAYLOAD_BYTES];
        while began.elapsed() < time {
            ticks.tick().await;
            let asked = since_start();
            payload[..8].copy_from_slice(&asked.to_be_bytes());
            let published = self.publisher.publish_acked(Bytes::copy_from_slice(&payload)).await?;
            let took = since_start() - asked;
            last = published.seq;
            match stopped.map(|stopped| outcome_for(&published, stopped)) {
                None => {}
                Some(Some("busy")) => busy.record(took)?,
                Some(other) => anyhow::bail!("a stopped peer whose queue is full is told as {other:?}"),
            }
        }
        self.until_others_heard(last).await?;
        let mut all = Histogram::new(3)?;
        self.others().try_for_each(|heard| all.add(&*heard.times()))?;
        Ok((all, busy))
    }

    fn others(&self) -> impl Iterator<Item = &HeardAtLeaf> {
        self.heard.iter().skip(1).map(|heard| &**heard)
    }

    /// Publishes until every node is a peer that takes messages and its subscriber has heard one of these. Not every
    /// one is heard at the node that was stopped: while it catches up, its subscriber may be told that it lags.
    async fn until_all_hear(&mut self) -> anyhow::Result<()> {
        let (deadline, mut first_sent_to_all) = (Deadline::after(PATIENCE), None);
        loop {
            let published = self.publisher.publish_acked(Bytes::from_static(&[0; 8])).await?;
            let sent = published.peers.iter().filter(|peer| peer.outcome == "sent").count();
            if sent == LEAVES {
                first_sent_to_all.get_or_insert(published.seq);
            }
            if first_sent_to_all.is_some_and(|seq| self.all_heard(0, seq)) {
                return Ok(());
            }
            self.check_listeners()?;
            anyhow::ensure!(!deadline.has_passed(), "not everybody hears what goes to {:?}", published.peers);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the leaves that ran all the time have heard this number.
    async fn until_others_heard(&mut self, seq: u64) -> anyhow::Result<()> {
        let deadline = Deadline::after(PATIENCE);
        while !self.all_heard(1, seq) {
            self.check_listeners()?;
            anyhow::ensure!(!deadline.has_passed(), "not everybody heard number {seq}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Listeners go on for ever; one that ended says why.
    fn check_listeners(&mut self) -> anyhow::Result<()> {
        self.listening.try_join_next().map_or(Ok(()), |ended| ended?)
    }

    /// Whether the leaves from this one on have heard this number or a later one.
    fn all_heard(&self, from: usize, seq: u64) -> bool {
        self.heard[from..].iter().all(|heard| heard.newest.load(Ordering::Acquire) >= seq)
    }
}

async fn listen(mut subscription: Subscription, heard: Arc<HeardAtLeaf>) -> anyhow::Result<()> {
    let mut events = Vec::new();
    loop {
        subscription.next_batch(&mut events).await?;
        let now = since_start();
        for event in events.drain(..) {
            match event {
                Event::Message(message) => {
                    let stamp = message.payload.first_chunk().copied().map_or(0, u64::from_be_bytes);
                    if stamp > 0 {
                        heard.times().record(now.saturating_sub(stamp))?;
                    }
                    heard.newest.fetch_max(message.seq, Ordering::AcqRel);
                }
                Event::Epoch { .. } => {}
                lost if !heard.may_miss => anyhow::bail!("a node that ran missed messages: {lost:?}"),
                _ => {}
            }
        }
    }
}

fn outcome_for(published: &Published, peer: NodeId) -> Option<&str> {
    published.peers.iter().find(|outcome| outcome.node_id == peer).map(|outcome| outcome.outcome.as_str())
}

fn millis(nanos: &Histogram<u64>, quantile: f64) -> f64 {
    nanos.value_at_quantile(quantile) as f64 / 1e6
}

/// Nanoseconds since the first call, the same for everybody in this process; never 0.
fn since_start() -> u64 {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(clock::now).elapsed().as_nanos() as u64 + 1
}
