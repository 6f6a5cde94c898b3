//! Lanes of this node through its client.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use oap_client::{Client, Event, Options, Publisher, Since, Subscription};

use super::drive::{Connect, Hear, Publish};
use super::node::LaneNode;

/// A lane for each measurement, so that none hears another's rest.
static NEXT_LANE: AtomicU64 = AtomicU64::new(0);

pub struct LanePublishing(Publisher);

pub struct LaneHearing {
    subscription: Subscription,
    events: Vec<Event>,
}

impl Connect for LaneNode {
    type Publishing = LanePublishing;
    type Hearing = LaneHearing;

    async fn connect(&self, subscribers: usize) -> anyhow::Result<(LanePublishing, Vec<LaneHearing>)> {
        let lane = next_lane();
        let mut hearing = Vec::new();
        for _ in 0..subscribers {
            let subscription = self.client().await?.subscribe(&lane, Since::now()).await?;
            hearing.push(LaneHearing { subscription, events: Vec::new() });
        }
        Ok((LanePublishing(self.client().await?.publisher(&lane).await?), hearing))
    }
}

/// The name of a lane that nobody used yet.
pub fn next_lane() -> String {
    format!("bench-{}", NEXT_LANE.fetch_add(1, Ordering::Relaxed))
}

impl LaneNode {
    /// A session of its own.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::connect(&self.address, Options { token: Some(self.token.clone()), ..Options::default() }).await?)
    }
}

impl Publish for LanePublishing {
    async fn publish(&mut self, payload: &Bytes, count: u64) -> anyhow::Result<()> {
        Ok(self.0.publish_all((0..count).map(|_| payload.clone())).await?)
    }
}

impl Hear for LaneHearing {
    async fn hear(&mut self) -> anyhow::Result<u64> {
        self.events.clear();
        self.subscription.next_batch(&mut self.events).await?;
        let lost = self.events.iter().find(|event| !matches!(event, Event::Message(_)));
        anyhow::ensure!(lost.is_none(), "not every message came: {lost:?}");
        Ok(self.events.len() as u64)
    }
}
