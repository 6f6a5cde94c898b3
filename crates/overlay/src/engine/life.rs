//! One life of an engine: its core, its peers, its subscribers, and the loop that turns them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ron_gossip::{Core, CoreConfig, LaneName, MsgId, Origin, Peer, PublishError, wire};
use ron_kernel::{TaskContext, TaskResult, clock};
use ron_transport::NodeId;
use ron_types::limits::overlay::{PAYLOAD_BYTES_MAX, SUBSCRIPTIONS_MAX};
use ron_types::{Error, Kind};
use tokio::time::Instant;

use super::lane_table::LaneTable;
use super::ports::EngineReceivers;
use super::shell::{EngineShell, message_of};
use super::{Batch, NewSubscriber, Order, Trace, Work};
use crate::peers::Link;
use crate::shared::Shared;
use crate::words::{Item, LaneLink, Outcome, PeerOutcome, Published};

/// Work done before subscribers are woken and others get the thread.
const WORK_PER_TURN: usize = 32;

/// The task: owns the lanes that fall to it for one life.
pub(crate) async fn gossip_engine(
    context: TaskContext,
    shared: Arc<Shared>,
    mut receivers: EngineReceivers,
) -> TaskResult {
    let mut engine = Engine::new(&shared);
    context.ready().await;
    while !context.is_stopping() {
        context.beat();
        while let Some(order) = receivers.orders.try_recv() {
            engine.obey(order);
        }
        let mut done = 0;
        while done < WORK_PER_TURN {
            let Some(work) = receivers.work.try_recv() else { break };
            engine.perform(work);
            done += 1;
        }
        let due = engine.tick();
        engine.lanes.flush();
        if done == WORK_PER_TURN {
            // While work never runs out nothing else here yields, and other tasks of the thread would starve.
            tokio::task::consume_budget().await;
            continue;
        }
        tokio::select! {
            biased;
            () = context.stopping() => break,
            order = receivers.orders.recv() => order.into_iter().for_each(|order| engine.obey(order)),
            work = receivers.work.recv() => work.into_iter().for_each(|work| engine.perform(work)),
            () = tokio::time::sleep_until(due) => {}
            () = context.heartbeat() => {}
        }
    }
    // What was published before the drain is sent; frames of peers that still wait are repaired elsewhere.
    while let Some(work) = receivers.work.try_recv() {
        engine.perform(work);
    }
    engine.lanes.flush();
    Ok(())
}

struct Engine<'a> {
    shared: &'a Shared,
    core: Core,
    links: HashMap<NodeId, Arc<Link>>,
    lanes: LaneTable,
    started: Instant,
}

impl<'a> Engine<'a> {
    /// Each life begins an epoch of its own: its numbers begin again, and must not be taken for those of the life before.
    fn new(shared: &'a Shared) -> Self {
        let options = &shared.options;
        let config = CoreConfig { fanout: options.relay_fanout, ring_bytes: options.ring_bytes, ..CoreConfig::default() };
        let mut seed = [0; 8];
        // Without a seed the engine's timers are merely less spread.
        let _ = getrandom::fill(&mut seed);
        let origin = Origin(options.node_id.to_bytes());
        let core = Core::new(config, origin, next_epoch(), u64::from_le_bytes(seed));
        let mut engine =
            Engine { shared, core, links: HashMap::new(), lanes: LaneTable::default(), started: clock::now() };
        for link in shared.peers.links() {
            engine.obey(Order::PeerUp(link));
        }
        engine
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Calls the core with the node around it; gives what became of payloads at peers.
    fn with_core<T>(&mut self, call: impl FnOnce(&mut Core, u64, &mut EngineShell<'_>) -> T) -> (T, Vec<PeerOutcome>) {
        let now = self.now();
        let mut shell = EngineShell {
            me: self.shared.options.node_id,
            links: &self.links,
            lanes: &mut self.lanes,
            counts: &self.shared.counts,
            overflow: self.shared.live.get().value.egress_overflow,
            outcomes: Vec::new(),
            last_frame: None,
        };
        let result = call(&mut self.core, now, &mut shell);
        (result, shell.outcomes)
    }

    fn tick(&mut self) -> Instant {
        let (due, _) = self.with_core(|core, now, shell| core.tick(now, shell));
        self.started + std::time::Duration::from_micros(due)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::PeerUp(link) => {
                let peer = Peer(link.node_id.to_bytes());
                if self.links.insert(link.node_id, link).is_some() {
                    // A newer session replaced one whose end was not told yet: what was on its way is lost.
                    self.with_core(|core, now, shell| core.peer_down(now, peer, shell));
                }
                self.with_core(|core, now, shell| core.peer_up(now, peer, shell));
            }
            Order::PeerDown(link) => {
                let is_current = self.links.get(&link.node_id).is_some_and(|held| held.session == link.session);
                if is_current {
                    self.links.remove(&link.node_id);
                    let peer = Peer(link.node_id.to_bytes());
                    self.with_core(|core, now, shell| core.peer_down(now, peer, shell));
                }
            }
            Order::Subscribe(new, done) => {
                let _ = done.send(self.subscribe(new));
            }
            Order::Links(answer) => {
                let _ = answer.send(self.lane_links());
            }
            Order::Trace(msg_id, answer) => {
                let _ = answer.send(self.trace(msg_id));
            }
        }
    }

    fn perform(&mut self, work: Work) {
        match work {
            Work::Frames(Batch { link, frames }) => {
                let peer = Peer(link.node_id.to_bytes());
                for frame in frames {
                    let (heard, _) = self.with_core(|core, now, shell| {
                        let message = wire::Message::decode(frame.payload)?;
                        core.receive(now, peer, message, shell)
                    });
                    if let Err(misbehaviour) = heard {
                        self.shared.counts.misbehaved(&link, &misbehaviour);
                    }
                }
            }
            Work::Publish { lane, payload, outcome } => {
                let _ = outcome.send(self.publish(lane, payload));
            }
            Work::Stream { lane, messages } => {
                for message in messages {
                    let published = self.publish(lane, message.payload);
                    if let Some(tell) = message.outcome {
                        tell(published);
                    }
                }
            }
        }
    }

    fn publish(&mut self, lane: LaneName, payload: Bytes) -> Result<Published, Error> {
        let (published, mut peers) = self.with_core(|core, now, shell| core.publish(now, &lane, payload, shell));
        let published = published.map_err(refusal)?;
        let origin = self.shared.options.node_id;
        if peers.is_empty() {
            peers.push(PeerOutcome { node_id: origin, outcome: Outcome::NoPeers });
        }
        Ok(Published { msg_id: published.msg_id, origin, epoch: published.epoch, seq: published.seq, peers })
    }

    /// What the ring holds of the asked-for numbers comes first; from then on the subscriber hears what is delivered.
    fn subscribe(&mut self, new: NewSubscriber) -> Result<(), Error> {
        if self.lanes.count() >= SUBSCRIPTIONS_MAX {
            return Err(Error::busy("the table of subscriptions"));
        }
        let NewSubscriber { lane, from, own, mut subscriber } = new;
        let me = self.shared.options.node_id;
        for (origin, seq) in from.into_iter().filter(|(origin, _)| own || *origin != me) {
            self.replay(&lane, origin, seq, subscriber.as_mut());
        }
        subscriber.flush();
        self.lanes.add(lane, own, subscriber);
        Ok(())
    }

    fn replay(&self, lane: &LaneName, origin: NodeId, from: u64, subscriber: &mut dyn crate::subscription::Subscriber) {
        let replay = self.core.replay(lane, &Origin(origin.to_bytes()), from);
        if let Some((epoch, first_held)) = replay.first_held.filter(|(_, first)| *first > from) {
            subscriber.give(lane, &Item::Gap { origin, epoch, from, to: first_held - 1 });
        }
        for delivered in replay.messages {
            subscriber.give(lane, &Item::Message(message_of(delivered)));
        }
    }

    fn lane_links(&self) -> Vec<(NodeId, LaneLink)> {
        let of_peer = |node_id: &NodeId| {
            let node_id = *node_id;
            let links = self.core.lanes_of(&Peer(node_id.to_bytes())).into_iter();
            links.map(move |(lane, is_eager)| (node_id, LaneLink { lane, is_eager }))
        };
        self.links.keys().flat_map(of_peer).collect()
    }

    fn trace(&self, msg_id: MsgId) -> Option<Trace> {
        let trace = self.core.trace(&msg_id)?;
        let ids = |peers: Vec<Peer>| peers.into_iter().map(|peer| NodeId::from_bytes(peer.0)).collect();
        Some(Trace {
            lane: trace.lane,
            origin: NodeId::from_bytes(trace.origin.0),
            seq: trace.seq,
            hops: trace.hops,
            from: trace.from.map(|peer| NodeId::from_bytes(peer.0)),
            eager: ids(trace.eager),
            lazy: ids(trace.lazy),
        })
    }
}

fn refusal(error: PublishError) -> Error {
    match error {
        PublishError::TooLarge { .. } => {
            Error::new(Kind::TooLarge, format!("a message has at most {PAYLOAD_BYTES_MAX} bytes"))
        }
        PublishError::Busy => Error::busy("the lane"),
        other => Error::new(Kind::Busy, other.to_string()),
    }
}

/// Lives of origins are told apart by the time they began; two in the same millisecond, or after the clock was set
/// back, still differ within a process.
fn next_epoch() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock::unix_millis();
    LAST.fetch_max(now, Ordering::Relaxed).checked_add(1).map_or(now, |after| after.max(now).max(LAST.fetch_add(1, Ordering::Relaxed) + 1))
}
