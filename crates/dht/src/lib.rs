//! The DHT: a libp2p network that keeps signed records near their keys.
//!
//! In order of flow: the swarm owns the network; who is met there enters the members, bounded by networks of
//! addresses; a question of the index goes out on a stream of its own and comes back verified; questions of others go
//! to the answerers, who read the records through a port; the placer gives records to the nodes nearest to their keys,
//! and the republisher has them moved when those change. libp2p is used for transports, identity and the table of
//! neighbours, and for nothing else; no type of it leaves this crate.

mod answerer;
pub mod capabilities;
pub mod config;
mod convert;
mod handle;
mod members;
mod membership;
mod metrics;
mod network;
mod peers_file;
mod placer;
mod ports;
mod republisher;
mod shared;
pub mod specs;
mod swarm;
mod walk;
pub mod words;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use ron_kernel::{Builder, Snapshot};
use ron_store::PeerId;
use tokio::sync::Notify;

pub use handle::Dht;
pub use metrics::METRICS;
pub use ports::{Announcement, Gossip, Held, Records};
pub use ron_store::wire::{AskError, Question, Reply};
pub use shared::DhtOptions;

use crate::config::LiveOptions;
use crate::members::Members;
use crate::metrics::{Counts, DhtMetrics};
use crate::shared::Shared;

/// Adds the DHT to a node: its queues, its tasks and its metrics. [`Dht::serve`] then gives it the records.
pub fn install(builder: &mut Builder, options: DhtOptions, live: Snapshot<LiveOptions>) -> Dht {
    let (orders, ordered) = builder.queue(&specs::ORDERS);
    let (asked, to_answer) = builder.queue(&specs::ASKED);
    let (answers, answered) = builder.queue(&specs::ANSWERS);
    let (keep, to_place) = builder.queue(&specs::KEEP);
    let events = builder.broadcast(&specs::EVENTS);
    let kernel = builder.handle();
    let own = PeerId::from(options.key.node_id());
    let shared = Arc::new(Shared {
        members: Members::new(own, live.get().value.peers_max),
        options,
        own,
        live,
        kernel: kernel.clone(),
        counts: Arc::new(Counts::default()),
        events,
        orders,
        asked,
        answers,
        keep,
        records: OnceLock::new(),
        listen_addrs: ArcSwap::default(),
        own_record: ArcSwapOption::empty(),
        own_record_changed: Notify::new(),
        rejoin: Notify::new(),
        is_server: AtomicBool::new(false),
    });
    // Before any task runs: what an earlier life wrote down of a cluster on one machine is worth something.
    shared.members.allow_loopback(shared.live.get().value.addr.ip().is_loopback());
    kernel.metrics().register_collector(Box::new(DhtMetrics { shared: Arc::downgrade(&shared) }));
    let [swarm, answerer, placer, republisher, membership] = [(); 5].map(|()| Arc::clone(&shared));
    builder
        .service(&specs::DHT)
        .task(&specs::SWARM, 1, move |context| {
            swarm::swarm(context, Arc::clone(&swarm), ordered.clone(), answered.clone())
        })
        .task(&specs::ANSWERER, specs::ANSWERERS, move |context| {
            answerer::answerer(context, Arc::clone(&answerer), to_answer.clone())
        })
        .task(&specs::PLACER, 1, move |context| placer::placer(context, Arc::clone(&placer), to_place.clone()))
        .task(&specs::REPUBLISHER, 1, move |context| republisher::republisher(context, Arc::clone(&republisher)))
        .task(&specs::MEMBERSHIP, 1, move |context| membership::membership(context, Arc::clone(&membership)));
    Dht { shared }
}
