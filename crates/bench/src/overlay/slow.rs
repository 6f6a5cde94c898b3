//! Eight subscribers, one of which stops reading: what the others notice.

use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use oap::{AppId, Frame, Hello};
use oap_client::{Client, Event, Since};
use ron_kernel::clock;
use ron_transport::{PostQuantum, Session, SessionLimits, dial_as_client};
use tokio::task::JoinSet;

use super::lanes::next_lane;
use super::node::LaneNode;

const SUBSCRIBERS: usize = 8;
const PAYLOAD_BYTES: usize = 4096;
/// Two thousand messages a second: little for the node, and enough to fill what may wait for one subscriber.
const EVERY: Duration = Duration::from_micros(500);

/// p99 in milliseconds from a publication to each of those who read.
pub async fn p99_ms(node: &LaneNode, one_is_stuck: bool, time: Duration) -> anyhow::Result<f64> {
    let lane = next_lane();
    let _stuck = if one_is_stuck { Some(subscribe_and_never_read(node, &lane).await?) } else { None };
    let mut tasks = JoinSet::new();
    for _ in usize::from(one_is_stuck)..SUBSCRIBERS {
        tasks.spawn(hear(node.client().await?, lane.clone(), time));
    }
    let publisher = node.client().await?.publisher(&lane).await?;
    let began = clock::now();
    let mut ticks = tokio::time::interval(EVERY);
    let mut stamp = vec![0; PAYLOAD_BYTES];
    // Half as long again as they hear, so that everybody has something to hear until the end.
    while began.elapsed() < time * 3 / 2 {
        ticks.tick().await;
        stamp[..8].copy_from_slice(&(since_start().as_nanos() as u64).to_be_bytes());
        publisher.publish(Bytes::copy_from_slice(&stamp)).await?;
    }
    let mut all = Histogram::<u64>::new(3)?;
    for histogram in tasks.join_all().await {
        all.add(histogram?)?;
    }
    Ok(all.value_at_quantile(0.99) as f64 / 1e6)
}

/// Time since the first call, the same for everybody in this process.
fn since_start() -> Duration {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(clock::now).elapsed()
}

async fn hear(client: Client, lane: String, time: Duration) -> anyhow::Result<Histogram<u64>> {
    let mut subscription = client.subscribe(&lane, Since::now()).await?;
    let (mut histogram, mut events) = (Histogram::new(3)?, Vec::new());
    let began = clock::now();
    while began.elapsed() < time {
        subscription.next_batch(&mut events).await?;
        let now = since_start().as_nanos() as u64;
        for event in events.drain(..) {
            let Event::Message(message) = event else { anyhow::bail!("a reader was told of a loss: {event:?}") };
            let stamp = message.payload.first_chunk().copied().map_or(now, u64::from_be_bytes);
            histogram.record(now.saturating_sub(stamp))?;
        }
    }
    Ok(histogram)
}

/// A session that asks for the lane, whose reader is kept and never polled: the bytes stay in the socket.
async fn subscribe_and_never_read(node: &LaneNode, lane: &str) -> anyhow::Result<(JoinSet<()>, impl Sized + use<>)> {
    let hello = Hello { cap: Some(node.token.clone()), ..Hello::new(oap::FRAME_BYTES_MAX as u32, 8) };
    let session = dial_as_client(&node.address, PostQuantum::Hybrid, hello, &SessionLimits::default()).await?;
    let Session { reader, writer, outbox, .. } = session;
    outbox.push(1, Frame::open(AppId::LANES, 1, format!("{{\"subscribe\":\"{lane}\"}}")))?;
    let mut writing = JoinSet::new();
    writing.spawn(async move { drop(writer.run().await) });
    Ok((writing, reader))
}
