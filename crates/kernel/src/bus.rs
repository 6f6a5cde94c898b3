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
    from: "supervisor",
    to: "every task",
    overflow: Overflow::DropOldest,
    holds_up_writers: false,
    answer: "a lagged receiver is handed the current snapshot",
    on_restart: Fate::Kept,
    on_drain: Fate::Discarded,
};

/// Event that the kernel publishes on the bus.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum KernelEvent {
    /// A service changed its state.
    Health {
        /// Name of the service.
        service: &'static str,
        /// State the service has from now on.
        state: State,
    },
    /// A new configuration is in force.
    ConfigUpdated {
        /// Version of the new configuration; grows by one with each change.
        version: u64,
    },
    /// A task of a service ended although nobody asked it to.
    ServiceCrashed {
        /// Name of the service the task belongs to.
        service: &'static str,
        /// Name of the task.
        task: &'static str,
        /// Exit reason in words, such as a panic message.
        reason: String,
    },
    /// The drain has begun.
    Shutdown,
}

/// Item that a bus receiver gets: the next event, or a snapshot of everything if it missed some.
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

/// A broadcast of a service's own, for whoever watches: a receiver that falls behind is told how many it missed.
#[derive(Debug)]
pub struct Broadcast<T> {
    sender: broadcast::Sender<T>,
}

/// Receiving end of a [`Broadcast`].
pub struct BroadcastReceiver<T> {
    receiver: broadcast::Receiver<T>,
    lagged: Counter,
}

/// Item that a receiver of a [`Broadcast`] gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard<T> {
    /// The next event in order.
    Event(T),
    /// Number of events that were overwritten before this receiver read them.
    Missed(u64),
}

impl<T: Clone + Send + 'static> Broadcast<T> {
    /// A broadcast of the spec's capacity, with its probe. Only the kernel builder calls this.
    #[expect(clippy::disallowed_methods, reason = "this is the replacement the ban names")]
    pub(crate) fn new(spec: &'static QueueSpec, metrics: &Metrics) -> (Self, QueueProbe) {
        let sender = broadcast::channel(spec.capacity).0;
        let probed = sender.clone();
        (Broadcast { sender }, QueueProbe::of(spec, spec.capacity, metrics, move || probed.len()))
    }

    /// Tells everybody; nobody listening is fine.
    pub fn publish(&self, event: T) {
        let _ = self.sender.send(event);
    }

    /// A receiver that hears every event from now on; `service` labels its lag.
    pub fn subscribe(&self, service: &'static str, metrics: &Metrics) -> BroadcastReceiver<T> {
        BroadcastReceiver { receiver: self.sender.subscribe(), lagged: metrics.bus_lagged.at(service) }
    }
}

impl<T> Clone for Broadcast<T> {
    fn clone(&self) -> Self {
        Broadcast { sender: self.sender.clone() }
    }
}

impl<T: Clone> BroadcastReceiver<T> {
    /// The next event; none once the broadcast is gone. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Heard<T>> {
        match self.receiver.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                self.lagged.inc_by(missed);
                Some(Heard::Missed(missed))
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
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
