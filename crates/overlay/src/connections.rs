//! Connections with peers: who is let in, who is dialled, and what one session's life is.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ron_kernel::queue::QueueReceiver;
use ron_kernel::retry::RetryLimits;
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_transport::{Closed, ConnectError, GoAway, NodeId, Remote, Session};
use ron_types::limits::overlay as limits;
use ron_types::{Error, Kind};
use tokio::sync::oneshot;

use crate::config::Accept;
use crate::peers::{Dialing, Link, is_loopback};
use crate::shared::{NewSession, ReadHalf, Shared, WriteHalf, farewell};
use crate::words::OverlayEvent;

/// Time a refused session has to read why.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Time an ended session has to send what is queued.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Time in which an engine takes an order, or the node is stuck.
const ORDER_TIME: Duration = Duration::from_secs(5);
/// A session that lasted this long starts the waits between dials afresh.
const LASTING: Duration = Duration::from_secs(10);
/// Exponent beyond which the wait between dials is at its cap anyway.
const WAITS_MAX: u32 = 16;
/// Sessions that are being refused at once; more are cut without a word.
const REFUSALS_MAX: usize = 64;

/// Bytes of the largest frame of gossip. Over a session with less, what a peer asks for could not be sent, and it would
/// take its neighbour for one that does not answer.
const FRAME_BYTES_MIN: usize = oap::HEADER_BYTES + ron_gossip::wire::ENCODED_BYTES_MAX;

/// The task: takes sessions that other nodes opened and lets in whom this node accepts.
pub(crate) async fn listener(
    context: TaskContext,
    shared: Arc<Shared>,
    mut sessions: QueueReceiver<NewSession>,
) -> TaskResult {
    let mut refusals = Children::new("overlay_refusal", REFUSALS_MAX, context.kernel().metrics());
    context.ready().await;
    loop {
        let session = tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => continue,
            session = sessions.recv() => session,
        };
        let Some(new) = session else { break };
        if let Err(error) = accepts(&shared, &new.session) {
            tracing::info!(address = %new.session.facts.address, %error, "a node was not let in");
            refusals.spawn(refuse(new.session, error));
            continue;
        }
        // A refused session is dropped and so cut: the other node dials again.
        if let Err(error) = shared.accepted.offer(new) {
            tracing::warn!(%error, "a session found no room");
        }
    }
    Ok(())
}

fn accepts(shared: &Shared, session: &Session) -> Result<(), Error> {
    let Remote::Node(node_id) = session.facts.remote else {
        return Err(Error::new(Kind::Unauthenticated, "peers show a node's certificate"));
    };
    if accepts_any(shared) || shared.peers.is_wanted(node_id) {
        return Ok(());
    }
    Err(Error::new(Kind::Forbidden, "this node takes sessions of the nodes in its list alone (overlay.accept)"))
}

/// Whether nodes that are in no list may be peers.
fn accepts_any(shared: &Shared) -> bool {
    match shared.live.get().value.accept {
        Accept::Any => true,
        Accept::Listed => false,
        Accept::Auto => is_loopback(shared.options.listen),
    }
}

fn configure(shared: &Shared) {
    shared.peers.configure(&shared.live.get().value.peers, accepts_any(shared));
}

fn fits_gossip(session: &Session) -> Result<(), Error> {
    let agreed = session.facts.agreed.max_frame;
    if agreed >= FRAME_BYTES_MIN {
        return Ok(());
    }
    let what = format!("frames of {agreed} bytes were agreed on; nodes need {FRAME_BYTES_MIN} (oap.max_frame_bytes)");
    Err(Error::new(Kind::FrameTooLarge, what))
}

/// Says why, for a moment, then cuts the connection.
async fn refuse(session: Session, error: Error) {
    session.outbox.close(&farewell(&error), Deadline::after(REFUSAL_TIME));
    let _ = Deadline::after(REFUSAL_TIME).run("refusal", session.writer.run()).await;
}

/// The task: keeps a session with every wanted peer, and the sessions that others opened.
pub(crate) async fn conn_supervisor(
    context: TaskContext,
    shared: Arc<Shared>,
    mut accepted: QueueReceiver<NewSession>,
) -> TaskResult {
    let metrics = context.kernel().metrics();
    let mut connections = Children::new("overlay_connection", 2 * limits::PEERS_MAX, metrics);
    let diallers = Diallers::default();
    let mut settings = shared.live.watch();
    context.ready().await;
    configure(&shared);
    loop {
        for address in shared.peers.wanted() {
            if let Some(dialler) = diallers.begin(&shared, address.node_id) {
                connections.spawn(keep_dialled(context.clone(), dialler));
            }
        }
        tokio::select! {
            biased;
            () = context.stopping() => break,
            () = context.heartbeat() => {}
            session = accepted.recv() => {
                let Some(NewSession { session, held }) = session else { break };
                let (context, shared) = (context.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    live_through(context, shared, session).await;
                    drop(held);
                });
            }
            _ = settings.changed() => configure(&shared),
            () = shared.peers.changed() => {}
        }
    }
    connections.finish(context.stop_deadline()).await;
    Ok(())
}

/// Peers that somebody dials. One that is removed and named again may still have its first dialler, which then goes on.
#[derive(Clone, Default)]
struct Diallers(Arc<Mutex<HashSet<NodeId>>>);

/// The only one who dials a peer, until it is dropped.
struct Dialler {
    shared: Arc<Shared>,
    node_id: NodeId,
    among: Diallers,
}

impl Diallers {
    /// The dialler of a peer that has none.
    fn begin(&self, shared: &Arc<Shared>, node_id: NodeId) -> Option<Dialler> {
        let is_new = self.lock().insert(node_id);
        is_new.then(|| Dialler { shared: Arc::clone(shared), node_id, among: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<NodeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Dialler {
    fn drop(&mut self) {
        self.among.lock().remove(&self.node_id);
        // The peer may have been named again after this one looked for the last time.
        self.shared.peers.tell();
    }
}

/// Dials a peer for as long as it is wanted, with growing, jittered waits; whoever is lost is dialled again, for ever.
async fn keep_dialled(context: TaskContext, dialler: Dialler) {
    let (shared, node_id) = (&dialler.shared, dialler.node_id);
    let waits = RetryLimits { first_wait: limits::REDIAL_JITTER, cap: limits::REDIAL_CAP, tries_max: u32::MAX };
    let mut failures = 0_u32;
    while shared.peers.is_wanted(node_id) && !context.is_stopping() {
        // Asked for before the look, so that a change between the look and the wait is not missed.
        let changed = shared.peers.changed();
        let Some(address) = shared.peers.to_dial(node_id) else {
            tokio::select! {
                () = context.stopping() => return,
                () = changed => continue,
            }
        };
        shared.peers.note_dialing(node_id, Dialing::Trying);
        let limits = shared.session_limits();
        let dialing = ron_transport::dial(&address, &shared.options.tls, shared.hello(&limits), &limits);
        let dialled = tokio::select! {
            () = context.stopping() => return,
            dialled = dialing => dialled,
        };
        match dialled {
            Ok(session) => {
                let since = ron_kernel::clock::now();
                live_through(context.clone(), Arc::clone(shared), session).await;
                failures = if since.elapsed() > LASTING { 0 } else { failures + 1 };
            }
            Err(error) => {
                shared.counts.handshake_failed(&error);
                tell_of_failure(&address.to_string(), &error, failures);
                failures += 1;
            }
        }
        shared.peers.note_dialing(node_id, Dialing::Waiting);
        tokio::select! {
            () = context.stopping() => return,
            () = unwanted(shared, node_id) => return,
            () = tokio::time::sleep(waits.wait(failures.clamp(1, WAITS_MAX))) => {}
        }
    }
}

/// Resolves once the peer is not wanted.
async fn unwanted(shared: &Shared, node_id: NodeId) {
    loop {
        // Asked for before the look, so that a change between the look and the wait is not missed.
        let changed = shared.peers.changed();
        if !shared.peers.is_wanted(node_id) {
            return;
        }
        changed.await;
    }
}

/// A peer that is away is said once, then only quietly.
fn tell_of_failure(peer: &str, error: &ConnectError, failures: u32) {
    match failures {
        0 => tracing::warn!(%peer, %error, "a peer cannot be reached; it is tried again"),
        _ => tracing::debug!(%peer, %error, failures, "a peer still cannot be reached"),
    }
}

/// One session from its entry into the table to its end.
async fn live_through(context: TaskContext, shared: Arc<Shared>, session: Session) {
    if let Err(error) = fits_gossip(&session) {
        shared.counts.frames_too_small();
        tracing::warn!(remote = ?session.facts.remote, address = %session.facts.address, %error, "no session of nodes");
        return refuse(session, error).await;
    }
    let egress_bytes_max = shared.live.get().value.egress_bytes_max;
    let link = match shared.peers.enter(&session.facts, &session.outbox, egress_bytes_max) {
        Ok(link) => link,
        Err(error) => return refuse(session, error).await,
    };
    shared.counts.opened();
    shared.counts.handshake_done(link.facts.tls_group);
    let facts = &link.facts;
    tracing::info!(node_id = %link.node_id, address = %facts.address, group = facts.tls_group, "a peer is up");
    let by = Deadline::after(ORDER_TIME);
    if shared.engines.peer_up(&link, by).await.is_ok() {
        shared.events.publish(OverlayEvent::Up { node_id: link.node_id, address: link.facts.address });
        let why = run_halves(&context, &shared, session, &link).await;
        tracing::info!(node_id = %link.node_id, %why, "a session ended");
    }
    shared.counts.closed();
    if shared.peers.leave(&link) {
        let _ = shared.engines.peer_down(&link, Deadline::after(ORDER_TIME)).await;
        shared.events.publish(OverlayEvent::Down { node_id: link.node_id });
    }
}

/// Hands both halves to their tasks and waits until either ends, or the session is to end.
async fn run_halves(context: &TaskContext, shared: &Shared, session: Session, link: &Arc<Link>) -> String {
    let (read_ended, mut reading) = oneshot::channel();
    let (write_ended, mut writing) = oneshot::channel();
    let by = Deadline::after(ORDER_TIME);
    let write_half = WriteHalf { writer: session.writer, ended: write_ended };
    let read_half = ReadHalf { reader: session.reader, link: Arc::clone(link), ended: read_ended };
    if let Err(error) = shared.writers.send(write_half, by).await {
        return error.to_string();
    }
    if let Err(error) = shared.readers.send(read_half, by).await {
        return error.to_string();
    }
    let why = tokio::select! {
        biased;
        () = context.stopping() => "the node leaves".to_owned(),
        () = link.ending.notified() => "it was replaced or removed".to_owned(),
        closed = &mut reading => words_of(closed),
        closed = &mut writing => return words_of(closed),
    };
    link.outbox.close(&GoAway::normal(), Deadline::after(DRAIN_TIME));
    if !context.is_stopping() {
        // In a drain the writers flush in their own phase, after this task.
        let _ = Deadline::after(DRAIN_TIME).run("session", writing).await;
    }
    why
}

fn words_of(closed: Result<Closed, oneshot::error::RecvError>) -> String {
    closed.map_or_else(|_| "its task ended".to_owned(), |closed| closed.to_string())
}
