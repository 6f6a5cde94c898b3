//! The event bus. A receiver that falls behind is handed the current snapshot, so lag cannot be mishandled.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use ron_policy::State;
use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::metrics::Metrics;
use crate::queue::QueueProbe;
use crate::spec::{Fate, Overflow, QueueKind, QueueSpec};
use crate::status::NodeStatus;

/// The bus itself, declared like every other channel.
pub const BUS: QueueSpec = QueueSpec {
    owner: "macronode",
    service: "kernel",
    name: "bus",
    kind: QueueKind::Broadcast,
    capacity: ron_types::limits::BUS_CAPACITY,
    bytes_max: None,
    from: "1",
    to: "N",
    overflow: Overflow::DropOldest,
    answer: "a lagged receiver is handed the current snapshot",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};

/// What the kernel tells everybody.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum KernelEvent {
    /// A service changed its state.
    Health {
        /// The service.
        service: &'static str,
        /// Its new state.
        state: State,
    },
    /// A new configuration is in force.
    ConfigUpdated {
        /// Its version.
        version: u64,
    },
    /// A task of a service ended although nobody asked it to.
    ServiceCrashed {
        /// The service.
        service: &'static str,
        /// The task.
        task: &'static str,
        /// How it ended.
        reason: String,
    },
    /// The drain has begun.
    Shutdown,
}

/// What a receiver gets: the next event, or the whole picture if it missed some.
#[derive(Clone, Debug)]
pub enum BusItem {
    /// The next event in order.
    Event(KernelEvent),
    /// Events were missed; this is how things stand now.
    Resync(Arc<NodeStatus>),
}

/// The sending side and the source of receivers. Clones share the bus.
#[derive(Clone)]
pub struct Bus {
    sender: broadcast::Sender<KernelEvent>,
    status: watch::Sender<Arc<NodeStatus>>,
}

/// One receiver, named for the service that reads it.
pub struct BusReceiver {
    receiver: broadcast::Receiver<KernelEvent>,
    status: watch::Receiver<Arc<NodeStatus>>,
    lagged: Counter,
}

impl Bus {
    #[expect(clippy::disallowed_methods, reason = "this is the replacement the ban names")]
    pub(crate) fn new(capacity: usize, status: watch::Sender<Arc<NodeStatus>>) -> Self {
        Bus { sender: broadcast::channel(capacity).0, status }
    }

    pub(crate) fn probe(&self, capacity: usize, metrics: &Metrics) -> QueueProbe {
        let sender = self.sender.clone();
        QueueProbe::of(&BUS, capacity, metrics, move || sender.len())
    }

    /// Tells everybody; nobody listening is fine.
    pub fn publish(&self, event: KernelEvent) {
        let _ = self.sender.send(event);
    }

    /// A receiver that sees every event from now on; `service` labels its lag.
    pub fn subscribe(&self, service: &'static str, metrics: &Metrics) -> BusReceiver {
        BusReceiver {
            receiver: self.sender.subscribe(),
            status: self.status.subscribe(),
            lagged: metrics.bus_lagged.at(service),
        }
    }
}

impl BusReceiver {
    /// The next event, or a snapshot after lag; none once the bus is gone. Cancel-safe.
    pub async fn recv(&mut self) -> Option<BusItem> {
        match self.receiver.recv().await {
            Ok(event) => Some(BusItem::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                self.lagged.inc_by(missed);
                // What is still buffered is older than the snapshot: skip it, or it would undo the resync.
                self.receiver = self.receiver.resubscribe();
                Some(BusItem::Resync(Arc::clone(&self.status.borrow())))
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
