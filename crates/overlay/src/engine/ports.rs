//! The ways to the engines: which one a lane falls to, and its two queues.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ron_gossip::{LaneName, MsgId};
use ron_kernel::queue::{QueueReceiver, QueueSender};
use ron_kernel::{Builder, Deadline, retry};
use ron_transport::NodeId;
use ron_types::limits::overlay::ENGINES;
use ron_types::{Error, Kind};
use tokio::sync::oneshot;

use super::{Batch, NewSubscriber, Order, PublishStream, StreamMessage, Trace, Work};
use crate::peers::Link;
use crate::specs;
use crate::words::{LaneLink, Published};

/// Wait before something that an engine had no room for is offered again.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(2));

/// The senders to every engine.
pub(crate) struct EnginePorts(Vec<EnginePort>);

struct EnginePort {
    work: QueueSender<Work>,
    orders: QueueSender<Order>,
}

/// The receivers of one engine. Clones are the same queues: a restarted engine goes on with what waits.
#[derive(Clone)]
pub(crate) struct EngineReceivers {
    pub work: QueueReceiver<Work>,
    pub orders: QueueReceiver<Order>,
}

impl EnginePorts {
    /// The queues of all engines.
    pub fn new(builder: &mut Builder) -> (Self, Vec<EngineReceivers>) {
        let one = |engine: usize| {
            let (work_in, work) = builder.queue(&specs::GOSSIP_INGRESS[engine]);
            let (orders_in, orders) = builder.queue(&specs::ENGINE_ORDERS[engine]);
            (EnginePort { work: work_in, orders: orders_in }, EngineReceivers { work, orders })
        };
        let (ports, receivers) = (0..ENGINES).map(one).unzip();
        (EnginePorts(ports), receivers)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The engine that the lane with this flow falls to.
    pub fn of(&self, flow: u64) -> usize {
        (flow % self.0.len() as u64) as usize
    }

    fn port(&self, lane: &LaneName) -> &EnginePort {
        &self.0[self.of(lane.flow())]
    }

    /// Offers frames of a peer; gives them back when there is no room.
    pub fn offer(&self, engine: usize, batch: Batch) -> Result<(), Batch> {
        self.0[engine].work.offer_or_return(Work::Frames(batch)).map_err(|(work, _)| match work {
            Work::Frames(batch) => batch,
            Work::Publish { .. } | Work::Stream { .. } | Work::Fence(_) => unreachable!("what was offered comes back"),
        })
    }

    pub async fn publish(&self, lane: LaneName, payload: Bytes, by: Deadline) -> Result<Published, Error> {
        let (outcome, answer) = oneshot::channel();
        let port = self.port(&lane);
        port.work.offer(Work::Publish { lane, payload, outcome })?;
        by.run("publish", answer).await?.map_err(|_| engine_ended())?
    }

    pub fn publish_stream(
        &self,
        lane: LaneName,
        stream: &PublishStream,
        messages: Vec<StreamMessage>,
    ) -> Result<(), (Vec<StreamMessage>, Error)> {
        let port = self.port(&lane);
        let work = Work::Stream { lane, stream: stream.clone(), messages };
        port.work.offer_or_return(work).map_err(|(work, error)| match work {
            Work::Stream { messages, .. } => (messages, error),
            Work::Publish { .. } | Work::Frames(_) | Work::Fence(_) => unreachable!("what was offered comes back"),
        })
    }

    /// Waits until the lane's engine has done everything that it was given before.
    pub async fn fence(&self, lane: &LaneName, by: Deadline) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        let mut fence = Work::Fence(done);
        while let Err((back, error)) = self.port(lane).work.offer_or_return(fence) {
            if error.kind != Kind::Busy || by.has_passed() {
                return Err(error);
            }
            fence = back;
            tokio::time::sleep(retry::jitter(RETRY_WAIT.0, RETRY_WAIT.1)).await;
        }
        by.run("publications", answer).await?.map_err(|_| engine_ended())
    }

    pub async fn subscribe(&self, new: NewSubscriber, by: Deadline) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        self.port(&new.lane).orders.send(Order::Subscribe(new, done), by).await?;
        by.run("subscribe", answer).await?.map_err(|_| engine_ended())?
    }

    pub async fn peer_up(&self, link: &Arc<Link>, by: Deadline) -> Result<(), Error> {
        for port in &self.0 {
            port.orders.send(Order::PeerUp(Arc::clone(link)), by).await?;
        }
        Ok(())
    }

    pub async fn peer_down(&self, link: &Arc<Link>, by: Deadline) -> Result<(), Error> {
        for port in &self.0 {
            port.orders.send(Order::PeerDown(Arc::clone(link)), by).await?;
        }
        Ok(())
    }

    /// The part of each peer in each lane.
    pub async fn links(&self, by: Deadline) -> Result<Vec<(NodeId, LaneLink)>, Error> {
        let mut all = Vec::new();
        for port in &self.0 {
            let (sender, answer) = oneshot::channel();
            port.orders.send(Order::Links(sender), by).await?;
            all.extend(by.run("links", answer).await?.map_err(|_| engine_ended())?);
        }
        Ok(all)
    }

    /// What is known of a message, asked of every engine: its id does not say its lane.
    pub async fn trace(&self, msg_id: MsgId, by: Deadline) -> Result<Option<Trace>, Error> {
        for port in &self.0 {
            let (sender, answer) = oneshot::channel();
            port.orders.send(Order::Trace(msg_id, sender), by).await?;
            let found = by.run("trace", answer).await?.map_err(|_| engine_ended())?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

fn engine_ended() -> Error {
    Error::new(Kind::Degraded, "the lane's engine was restarted meanwhile")
}
