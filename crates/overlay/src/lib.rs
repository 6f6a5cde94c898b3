//! The overlay: sessions with peers, lanes of live messages, and who may join.
//!
//! In order of flow: the framed plane does the handshake and hands the session of another node over; the listener lets
//! it in; its connection is split into one reader and one writer; the reader gives batches of frames to the engine of
//! their lane; the engine, whose core ([`ron_gossip::Core`]) does no I/O, delivers to subscribers and puts what peers
//! are to get into their outboxes, which the writer empties.

pub mod capabilities;
pub mod config;
mod connections;
mod engine;
mod halves;
mod handle;
pub mod memory;
mod metrics;
mod peers;
mod send_budget;
mod shared;
pub mod specs;
mod subscription;
pub mod words;

use std::sync::Arc;

use ron_kernel::{Builder, Snapshot};

pub use engine::{OutcomeCallback, PublishStream, StreamMessage, Trace};
pub use handle::{DHT_LANE, Overlay, check_lane};
pub use metrics::METRICS;
pub use ron_gossip::{LaneName, MsgId, SHARED_BYTES_MIN};
pub use shared::OverlayOptions;
pub use subscription::{Made, Subscriber, Subscription};

use crate::config::LiveOptions;
use crate::engine::EnginePorts;
use crate::metrics::{Counts, OverlayMetrics};
use crate::peers::Peers;
use crate::shared::Shared;

/// Adds the overlay to a node: its queues, its tasks and its metrics.
pub fn install(builder: &mut Builder, options: OverlayOptions, live: Snapshot<LiveOptions>) -> Overlay {
    let (engines, receivers) = EnginePorts::new(builder);
    let (sessions, offered) = builder.queue(&specs::PEER_SESSIONS);
    let (accepted, taken) = builder.queue(&specs::INGRESS_WORK);
    let (readers, read_halves) = builder.queue(&specs::READ_HALVES);
    let (writers, write_halves) = builder.queue(&specs::WRITE_HALVES);
    let events = builder.broadcast(&specs::EVENTS);
    let peers = Peers::new(options.node_id);
    let fullest = peers.clone();
    builder.shown(&specs::GOSSIP_EGRESS, move || fullest.deepest_outbox());
    builder.shown(&specs::CONFIG_UPDATES, || 0);
    let kernel = builder.handle();
    let counts = Counts::new(Arc::clone(kernel.metrics()));
    let shared = Arc::new(Shared {
        options,
        live,
        kernel: kernel.clone(),
        peers,
        engines,
        counts,
        events,
        accepted,
        sessions,
        subscribers: Arc::default(),
        readers,
        writers,
    });
    kernel.metrics().register_collector(Box::new(OverlayMetrics { shared: Arc::downgrade(&shared) }));
    let [listener, supervisor, reader, writer, engine] = [(); 5].map(|()| Arc::clone(&shared));
    let engine_count = receivers.len() as u16;
    builder
        .service(&specs::OVERLAY)
        .task(&specs::LISTENER, 1, move |context| {
            connections::listener(context, Arc::clone(&listener), offered.clone())
        })
        .task(&specs::CONN_SUPERVISOR, 1, move |context| {
            connections::conn_supervisor(context, Arc::clone(&supervisor), taken.clone())
        })
        .task(&specs::READER, 1, move |context| halves::reader(context, Arc::clone(&reader), read_halves.clone()))
        .task(&specs::WRITER, 1, move |context| halves::writer(context, Arc::clone(&writer), write_halves.clone()))
        .task(&specs::GOSSIP_ENGINE, engine_count, move |context| {
            let receivers = receivers[usize::from(context.instance())].clone();
            engine::gossip_engine(context, Arc::clone(&engine), receivers)
        });
    Overlay { shared }
}
