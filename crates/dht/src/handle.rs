//! The DHT as the index, surfaces and commands see it. It knows neither HTTP nor JSON, and nothing of libp2p.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_kernel::bus::BroadcastReceiver;
use ron_kernel::{Deadline, clock};
use ron_lookup::IpGroup;
use ron_store::wire::{Answer, AskError, Question, Reply, Request};
use ron_store::{Key, Multiaddr, PeerId, Possession, Record, RecordError};
use ron_types::limits::dht as limits;
use ron_types::{Error, Kind};
use tokio::sync::oneshot;

use crate::answerer;
use crate::ports::Records;
use crate::shared::{Order, Sending, Shared, ToPlace};
use crate::walk;
use crate::words::{DhtEvent, PeerView, Source, Standing, Trace};

/// The DHT. Clones are the same DHT.
#[derive(Clone)]
pub struct Dht {
    pub(crate) shared: Arc<Shared>,
}

impl Dht {
    /// Who keeps the records of this node; only the first call counts. Until then questions of others are answered
    /// with nearer nodes alone, and offers are refused.
    pub fn serve(&self, records: Arc<dyn Records>) {
        let _ = self.shared.records.set(records);
    }

    /// This node, as others name it.
    pub fn peer_id(&self) -> PeerId {
        self.shared.own
    }

    /// Where this node listens; nothing before it does.
    pub fn listen_addrs(&self) -> Vec<Multiaddr> {
        self.shared.listen_addrs.load().to_vec()
    }

    /// The known nodes nearest to a key, nearest first, without this one.
    pub fn nearest(&self, key: &Key, count: usize) -> Vec<PeerId> {
        self.shared.members.nearest(key, count)
    }

    /// Network of addresses that a node is in, where that counts: lookups and placements spread over them.
    pub fn ip_group(&self, peer: &PeerId) -> Option<IpGroup> {
        self.shared.members.ip_group_of(peer)
    }

    /// Whether every node of the network is known, so that one hop suffices.
    pub fn complete(&self) -> bool {
        self.shared.members.is_complete(self.shared.now_ms())
    }

    /// Asks a node. Only verified records about the question come back, and only nodes that can be asked. Dropping the
    /// future drops the stream: over QUIC the node is told at once, over TCP its answer is thrown away. The budget goes
    /// with the question, so that no node works for longer than somebody waits.
    pub fn ask(
        &self,
        target: &PeerId,
        question: Question,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Reply, AskError>> {
        let (shared, target) = (Arc::clone(&self.shared), *target);
        async move { ask(&shared, target, question, budget).await }.boxed()
    }

    /// Asks a known node for proof that it keeps the content with this BLAKE3 digest; none if it says that it does not.
    /// The caller looks whether the proof holds.
    pub fn prove(
        &self,
        target: &PeerId,
        digest: [u8; 32],
        draw: u64,
        budget: Duration,
    ) -> BoxFuture<'static, Result<Option<Possession>, AskError>> {
        let (shared, target) = (Arc::clone(&self.shared), *target);
        async move { prove(&shared, target, digest, draw, budget).await }.boxed()
    }

    /// The nodes nearest to a key, with where they are reached: those that are known where all are, else those that a
    /// walk finds until the deadline.
    pub fn closest(&self, key: Key, count: usize, by: Deadline) -> BoxFuture<'static, Vec<(PeerId, Vec<Multiaddr>)>> {
        let shared = Arc::clone(&self.shared);
        async move {
            let nearest = walk::nearest(&shared, &key, count, by).await;
            nearest.into_iter().map(|peer| (peer, shared.members.addrs_of(&peer))).collect()
        }
        .boxed()
    }

    /// Gives a record to the nodes nearest to its key, in the background; refused with Busy when too many wait.
    pub fn keep(&self, record: Record) -> Result<(), Error> {
        self.shared.keep.offer(ToPlace { record, at: None })
    }

    /// How every known node stands, nearest first.
    pub fn peers(&self) -> Vec<PeerView> {
        self.shared.members.views()
    }

    /// This node in its network.
    pub fn standing(&self) -> Standing {
        Standing {
            peer: self.peer_id(),
            listen_addrs: self.listen_addrs(),
            is_server: self.shared.is_server(),
            is_complete: self.complete(),
            peers: self.shared.members.len(),
            connections: self.shared.members.connected(),
        }
    }

    /// Connects to a node at these addresses, each with or without its id.
    pub fn connect(&self, peer: PeerId, addrs: Vec<Multiaddr>) -> Result<(), Error> {
        self.shared.members.suggest(peer, &addrs, Source::Bootstrap, self.shared.now_ms());
        self.shared.orders.offer(Order::Dial { peer, addrs, done: None })
    }

    /// Connects to a node as [`Dht::connect`] does, and waits until it is known; Degraded if it cannot be reached.
    pub async fn reach(&self, peer: PeerId, addrs: Vec<Multiaddr>, by: Deadline) -> Result<(), Error> {
        self.shared.members.suggest(peer, &addrs, Source::Bootstrap, self.shared.now_ms());
        let (done, reached) = oneshot::channel();
        self.shared.orders.offer(Order::Dial { peer, addrs, done: Some(done) })?;
        let reason = match by.run("dht_dial", reached).await {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err(reason))) => reason,
            Ok(Err(_)) => "the network of this node begins anew".to_owned(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        Err(Error::new(Kind::Degraded, format!("{peer} cannot be reached: {reason}")))
    }

    /// Joins the network anew: dials the bootstrap list and looks the neighbourhood up. Returns the number of nodes
    /// known then.
    pub async fn bootstrap(&self, by: Deadline) -> Result<usize, Error> {
        self.shared.rejoin.notify_one();
        let (done, walked) = oneshot::channel();
        self.shared.orders.offer(Order::Walk { done })?;
        // A network that ended answers by dropping its end: what is known is known.
        let _ = by.run("dht_bootstrap", walked).await?;
        Ok(self.shared.members.len())
    }

    /// Walks through the network towards a question, and says whom it met. What this node holds itself is part of it.
    pub async fn trace(&self, question: Question, by: Deadline) -> Trace {
        let (shared, asked) = (Arc::clone(&self.shared), question.clone());
        // A node that leaves in the meantime has nothing to say.
        let own = tokio::task::spawn_blocking(move || answerer::held(&shared, &asked)).await.unwrap_or_default();
        walk::walk(&self.shared, question, by).await.after(own)
    }

    /// What happens to the network, from now on.
    pub fn events(&self) -> BroadcastReceiver<DhtEvent> {
        self.shared.events.subscribe("dht", self.shared.kernel.metrics())
    }
}

/// As [`Dht::ask`].
pub(crate) async fn ask(
    shared: &Arc<Shared>,
    target: PeerId,
    question: Question,
    budget: Duration,
) -> Result<Reply, AskError> {
    let budget = budget.min(limits::ASK_TIME_MAX);
    let budget_ms = u32::try_from(budget.as_millis()).unwrap_or(u32::MAX);
    let request = Request::Ask { question: question.clone(), budget_ms };
    match send(shared, target, request, budget).await? {
        Answer::Reply(reply) => believe(shared, target, &question, reply),
        Answer::Refused(reason) => {
            shared.counts.asks.busy.inc();
            Err(reason)
        }
        Answer::Kept { .. } | Answer::Possession(_) => {
            shared.counts.refused.garbage.inc();
            Err(AskError::Malformed)
        }
    }
}

async fn prove(
    shared: &Arc<Shared>,
    target: PeerId,
    digest: [u8; 32],
    draw: u64,
    budget: Duration,
) -> Result<Option<Possession>, AskError> {
    // Addresses out of a provider record may be those of somebody who knows nothing of it: nobody is dialled for that.
    if !shared.members.is_reachable(&target) {
        return Err(AskError::Unreachable);
    }
    let budget = budget.min(limits::ASK_TIME_MAX);
    let budget_ms = u32::try_from(budget.as_millis()).unwrap_or(u32::MAX);
    match send(shared, target, Request::Prove { digest, draw, budget_ms }, budget).await? {
        Answer::Possession(proof) => Ok(proof.map(|proof| *proof)),
        Answer::Refused(reason) => Err(reason),
        Answer::Kept { .. } | Answer::Reply(_) => {
            shared.counts.refused.garbage.inc();
            Err(AskError::Malformed)
        }
    }
}

/// Sends a request and waits for the answer; dropping it, or the end of the budget, drops the stream.
pub(crate) async fn send(
    shared: &Arc<Shared>,
    target: PeerId,
    request: Request,
    budget: Duration,
) -> Result<Answer, AskError> {
    let by = Deadline::after(budget);
    let (reply, answer) = oneshot::channel();
    // Held here and nowhere else: when this future is dropped, the receiver at the stream hears of it.
    let (_waiting, cancelled) = oneshot::channel();
    let addrs = shared.members.addrs_of(&target);
    let order = Order::Send(Sending { peer: target, addrs, request, reply, cancelled });
    if shared.orders.offer(order).is_err() {
        shared.counts.asks.busy.inc();
        return Err(AskError::Busy);
    }
    let since = clock::now();
    match by.run("dht_ask", answer).await {
        Ok(Ok(answered)) => answered.inspect(|_| shared.counts.ask_seconds.0.observe(since.elapsed().as_secs_f64())),
        // The network ended or begins anew.
        Ok(Err(_)) => Err(AskError::Closed),
        Err(_) => {
            shared.counts.asks.timeout.inc();
            Err(AskError::TimedOut)
        }
    }
}

/// What of a reply can be believed: records that were asked for and verify, and nodes that can be asked in turn.
fn believe(shared: &Shared, target: PeerId, question: &Question, reply: Reply) -> Result<Reply, AskError> {
    let now_ms = shared.now_ms();
    let mut has_lied = false;
    let mut records = Vec::new();
    for record in reply.records {
        let is_asked_for = question.is_answered_by(&record);
        let named = match &record {
            Record::Peer(named) => Some(named.peer).filter(|peer| reply.closer.contains(peer)),
            _ => None,
        };
        match named {
            _ if is_asked_for => {}
            // Where a nearer node is reached; what is known of one already is not verified again.
            Some(peer) if peer == shared.own || shared.members.is_reachable(&peer) => continue,
            Some(_) => {}
            None => {
                shared.counts.refused.unasked.inc();
                continue;
            }
        }
        match (record.verify(now_ms), record) {
            (Ok(()), Record::Peer(named)) if !is_asked_for => {
                shared.members.suggest(named.peer, &named.addrs, Source::Met, now_ms);
            }
            (Ok(()), record) => records.push(record),
            (Err(error), _) => has_lied |= note_refused(shared, &error),
        }
    }
    if has_lied {
        // Whoever shows a forged record is not believed in what else it says.
        shared.expel(target);
        return Err(AskError::Malformed);
    }
    let mut closer = reply.closer;
    closer.retain(|peer| *peer != shared.own && *peer != target && shared.members.is_reachable(peer));
    Ok(Reply { records, closer })
}

/// Counts a record that is not believed; true if it was forged and not merely old.
pub(crate) fn note_refused(shared: &Shared, error: &RecordError) -> bool {
    let is_forged = !matches!(error, RecordError::Expired | RecordError::NotYet | RecordError::Lifetime);
    let refused = &shared.counts.refused;
    if is_forged {
        refused.forged.inc()
    } else {
        refused.stale.inc()
    };
    is_forged
}
