//! One life of an engine: its core, its peers, its subscribers, and the loop that turns them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ron_gossip::wire::Message as GossipMessage;
use ron_gossip::{
    Core, LaneName, Link as LinkKind, MESSAGE_BYTES_MAX, MsgId, Origin, Peer, PublishError, SendOutcome, Signatures,
};
use ron_kernel::{TaskContext, TaskResult, clock};
use ron_transport::NodeId;
use ron_types::{Error, Kind};
use tokio::time::Instant;

use super::catch_up::CatchUp;
use super::lane_table::LaneTable;
use super::ports::EngineReceivers;
use super::shell::{EngineShell, count_busy};
use super::{Batch, NewSubscriber, Order, PublishStream, StreamMessage, Trace, Work};
use crate::memory;
use crate::peers::Link;
use crate::shared::Shared;
use crate::words::{LaneLink, Outcome, PeerOutcome, Published};

/// Pause between two rounds in which subscribers that are gone are forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Longest rest of an engine with nothing due, in microseconds.
const LONGEST_REST: u64 = 1_000_000;
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
        engine.tidy();
        // In each turn, so that replays get on while work never runs out.
        let _ = poll_fn(|context| Poll::Ready(engine.poll_catch_up(context))).await;
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
            // After each step of a replay, so that a runtime of one thread looks at its sockets in between: whoever
            // asks next would otherwise wait until the first has everything.
            () = poll_fn(|context| engine.poll_catch_up(context)) => tokio::task::yield_now().await,
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
    links: HashMap<Peer, Arc<Link>>,
    lanes: LaneTable,
    started: Instant,
    tidied: Instant,
    peer_bytes_per_second: usize,
    /// Whether own messages are signed.
    signs: bool,
}

impl<'a> Engine<'a> {
    /// Each life begins an epoch of its own: its numbers begin again, and must not be taken for those of the life
    /// before.
    fn new(shared: &'a Shared) -> Self {
        let (options, live) = (&shared.options, shared.live.get());
        // Read at each start: a change of one of these restarts the service.
        let config = memory::core_config(&live.value.engine);
        let peer_bytes_per_second = live.value.engine.peer_bytes_per_second;
        let signs = config.signatures != Signatures::Off;
        let mut seed = [0; 8];
        // Without a seed the engine's timers are merely less spread.
        let _ = getrandom::fill(&mut seed);
        let origin = Origin(*options.node_id.as_bytes());
        // The core's time is what passed since here, where the wall clock is read as well.
        let started = clock::now();
        let core = Core::new(0, config, origin, next_epoch(), u64::from_le_bytes(seed));
        let (links, lanes) = (HashMap::new(), LaneTable::default());
        let mut engine = Engine { shared, core, links, lanes, started, tidied: started, peer_bytes_per_second, signs };
        for link in shared.peers.links() {
            engine.obey(Order::PeerUp(link));
        }
        engine
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Calls the core at this moment, with the node around it.
    fn with_core<T>(&mut self, call: impl FnOnce(&mut Core, u64, &mut EngineShell<'_>) -> T) -> T {
        let now = self.now();
        self.with_shell(|core, shell| call(core, now, shell))
    }

    /// The same for a caller who knows the time: what one read brought comes at one moment.
    fn with_shell<T>(&mut self, call: impl FnOnce(&mut Core, &mut EngineShell<'_>) -> T) -> T {
        let (options, counts) = (&self.shared.options, &self.shared.counts);
        let (me, key) = (options.node_id, &options.key);
        let (links, lanes) = (&self.links, &mut self.lanes);
        let peer_bytes_per_second = self.peer_bytes_per_second;
        let mut shell = EngineShell { me, key, links, lanes, counts, peer_bytes_per_second, is_publishing: false };
        call(&mut self.core, &mut shell)
    }

    fn tick(&mut self) -> Instant {
        let due = self.with_core(|core, now, shell| core.tick(now, shell));
        self.started + Duration::from_micros(due.min(self.now() + LONGEST_REST))
    }

    /// Forgets subscribers that are gone and reads the wall clock, once in a while.
    fn tidy(&mut self) {
        if self.tidied.elapsed() >= TIDY_EVERY {
            self.tidied = clock::now();
            self.lanes.tidy();
            let now = self.now();
            self.core.set_wall_clock(now, clock::unix_millis());
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::PeerUp(link) => {
                let peer = peer_of(&link);
                if self.links.insert(peer, link).is_some() {
                    // A newer session replaced one whose end was not told yet: what was on its way is lost.
                    self.with_core(|core, now, shell| core.peer_down(now, &peer, shell));
                }
                if !self.with_core(|core, now, shell| core.peer_up(now, peer, shell)) {
                    self.links.remove(&peer);
                }
            }
            Order::PeerDown(link) => {
                let peer = peer_of(&link);
                if self.links.get(&peer).is_some_and(|held| held.session == link.session) {
                    self.links.remove(&peer);
                    self.with_core(|core, now, shell| core.peer_down(now, &peer, shell));
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
                let (peer, now) = (peer_of(&link), self.now());
                for frame in frames {
                    self.hear(now, &link, &peer, frame.payload);
                }
            }
            Work::Publish { lane, payload, outcome } => {
                let published = self.publish(self.now(), &lane, &payload);
                let _ = outcome.send(published.map(|published| self.words_of(&lane, &payload, &published)));
            }
            Work::Stream { lane, stream, messages } => self.publish_all(lane, &stream, messages),
            Work::Fence(done) => {
                let _ = done.send(());
            }
        }
    }

    fn hear(&mut self, now: u64, link: &Link, peer: &Peer, payload: Bytes) {
        match GossipMessage::decode(payload) {
            Ok(message) => {
                let heard = self.with_shell(|core, shell| core.receive(now, peer, message, shell));
                if let Err(misbehaviour) = heard {
                    self.shared.counts.misbehaved(link, &misbehaviour);
                }
            }
            Err(error) => {
                // Bytes that are no message are no accident: TLS would have caught one.
                self.shared.counts.misbehaved(link, &error);
                link.ending.notify_one();
            }
        }
    }

    /// A message that is refused without anybody to tell ends its stream: a publisher must not take it for published.
    fn publish_all(&mut self, lane: LaneName, stream: &PublishStream, messages: Vec<StreamMessage>) {
        let (mut refusal, now) = (stream.refusal(), self.now());
        let mut signed = self.publish_signed(now, &lane, refusal.is_none(), &messages).into_iter();
        for StreamMessage { payload, outcome } in messages {
            let published = match (refusal.clone(), signed.next()) {
                (_, Some(published)) => published,
                (Some(error), None) => Err(error),
                (None, None) => self.publish(now, &lane, &payload),
            };
            match (outcome, published) {
                (Some(tell), published) => {
                    tell(published.map(|published| self.words_of(&lane, &payload, &published)));
                }
                (None, Ok(_)) => {}
                (None, Err(error)) => {
                    stream.refuse(error);
                    refusal = stream.refusal();
                }
            }
        }
    }

    /// Where this node signs, the messages of a stream that came together share signatures; nothing where it does not,
    /// or where the stream has ended.
    fn publish_signed(
        &mut self,
        now: u64,
        lane: &LaneName,
        is_open: bool,
        messages: &[StreamMessage],
    ) -> Vec<Result<ron_gossip::Published, Error>> {
        if !self.signs || !is_open {
            return Vec::new();
        }
        // What comes after a refused message must not be published. One that is too large is therefore left to be
        // refused alone, with the rest; of any other refusal the rest of the batch is told as well.
        let payloads = messages.iter().map(|message| &message.payload);
        let payloads: Vec<Bytes> = payloads.take_while(|it| it.len() <= MESSAGE_BYTES_MAX).cloned().collect();
        let published = self.with_shell(|core, shell| {
            shell.is_publishing = true;
            core.publish_batch(now, lane, &payloads, shell)
        });
        published.into_iter().map(|published| self.settle(published)).collect()
    }

    fn publish(&mut self, now: u64, lane: &LaneName, payload: &Bytes) -> Result<ron_gossip::Published, Error> {
        let published = self.with_shell(|core, shell| {
            shell.is_publishing = true;
            core.publish(now, lane, payload, shell)
        });
        self.settle(published)
    }

    /// Counts the peers that were busy with a publication.
    fn settle(&self, published: Result<ron_gossip::Published, PublishError>) -> Result<ron_gossip::Published, Error> {
        let published = published.map_err(refusal)?;
        for (peer, outcome) in published.outcomes.iter() {
            if let (SendOutcome::Busy { .. }, Some(link)) = (outcome, self.links.get(&peer)) {
                count_busy(link, &self.shared.counts);
            }
        }
        Ok(published)
    }

    /// What became of a publication, for whoever asked to be told.
    fn words_of(&self, lane: &LaneName, payload: &[u8], published: &ron_gossip::Published) -> Published {
        let origin = self.shared.options.node_id;
        let ron_gossip::Published { epoch, seq, outcomes, .. } = published;
        let msg_id = published.msg_id(&Origin(*origin.as_bytes()), lane, payload);
        let outcome_of = |(peer, outcome): (Peer, SendOutcome)| PeerOutcome {
            node_id: NodeId::from_bytes(peer.0),
            outcome: match outcome {
                SendOutcome::Sent => Outcome::Sent,
                SendOutcome::Busy { retry_after_ms } => {
                    Outcome::Busy { retry_after: Duration::from_millis(retry_after_ms.into()) }
                }
                SendOutcome::TooLarge { max } => Outcome::TooLarge { max: max as usize },
                SendOutcome::NotReady => Outcome::NotReady,
            },
        };
        let mut peers: Vec<PeerOutcome> = outcomes.iter().map(outcome_of).collect();
        if peers.is_empty() {
            peers.push(PeerOutcome { node_id: origin, outcome: Outcome::NoPeers });
        }
        Published { msg_id, origin, epoch: *epoch, seq: *seq, peers }
    }

    /// What the ring holds of the asked-for numbers comes first, as fast as the subscriber takes it; from then on it
    /// hears what is delivered.
    fn subscribe(&mut self, new: NewSubscriber) -> Result<(), Error> {
        let NewSubscriber { by, lane, from, own, mut subscriber } = new;
        let slot = self.shared.subscribers.take(&by).or_else(|_| {
            // Those that have gone since are met here at the latest.
            self.lanes.tidy();
            self.shared.subscribers.take(&by)
        })?;
        // It may have a word of its own to say first.
        subscriber.flush();
        let me = self.shared.options.node_id;
        let from: Vec<(NodeId, u64)> = from.into_iter().filter(|(origin, _)| own || *origin != me).collect();
        let catching_up = (!from.is_empty()).then(|| Box::new(CatchUp::new(&self.core, &lane, from)));
        self.lanes.add(lane, own, subscriber, catching_up, slot);
        Ok(())
    }

    /// Goes on with subscribers that asked for what the ring held; ready if one of them got further.
    fn poll_catch_up(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.lanes.poll_catch_up(&self.core, self.shared.options.node_id, context)
    }

    fn lane_links(&self) -> Vec<(NodeId, LaneLink)> {
        let of_peer = |peer: &Peer| {
            let node_id = NodeId::from_bytes(peer.0);
            let links = self.core.lanes_of(peer).into_iter();
            links.map(move |(lane, link)| (node_id, LaneLink { lane, is_eager: link == LinkKind::Eager }))
        };
        self.links.keys().flat_map(of_peer).collect()
    }

    fn trace(&self, msg_id: MsgId) -> Option<Trace> {
        let trace = self.core.trace(&msg_id)?;
        let ids = |peers: Vec<Peer>| peers.into_iter().map(|peer| NodeId::from_bytes(peer.0)).collect();
        Some(Trace {
            lane: trace.lane,
            origin: NodeId::from_bytes(trace.origin.0),
            epoch: trace.epoch,
            seq: trace.seq,
            hops: trace.hops,
            from: trace.from.map(|peer| NodeId::from_bytes(peer.0)),
            eager: ids(trace.eager),
            lazy: ids(trace.lazy),
        })
    }
}

fn peer_of(link: &Link) -> Peer {
    Peer(*link.node_id.as_bytes())
}

fn refusal(error: PublishError) -> Error {
    match error {
        PublishError::TooLarge { .. } => Error::new(Kind::FrameTooLarge, error.to_string()),
        PublishError::Busy { .. } | PublishError::TooManyLanes { .. } => Error::new(Kind::Busy, error.to_string()),
    }
}

/// Lives of origins are told apart by the time they began; two in the same millisecond, or after the clock was set
/// back, still differ within a process.
fn next_epoch() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = clock::unix_millis();
    let later = |last: u64| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).unwrap_or(0);
    now.max(last + 1)
}
