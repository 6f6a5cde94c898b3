//! The session with a node, and requests over it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame, HEADER_BYTES, Hello};
use ron_kernel::Deadline;
use ron_transport::{
    Closed, GoAway, Outbox, PeerAddress, PostQuantum, Reader, Session, SessionFacts, SessionLimits, dial_as_client,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::error::{Error, Refusal};
use crate::gather::{Gather, carry};
use crate::lanes::{Publisher, Since, Subscription};
use crate::mailbox::{Mailbox, SessionChains};
use crate::routes::{Answered, Route, Routes, Whole};

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Capability token for everything that is asked.
    pub token: Option<String>,
    /// Whether the key exchange has to withstand a quantum computer.
    pub post_quantum: PostQuantum,
    /// Name and version of the program, for the node's operator.
    pub agent: Option<String>,
    /// Requests and streams at once; the node may agree on fewer. Further ones wait their turn.
    pub max_inflight: u32,
    /// Bounds of the session.
    pub limits: SessionLimits,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            token: None,
            post_quantum: PostQuantum::Hybrid,
            agent: Some(concat!("oap-client/", env!("CARGO_PKG_VERSION")).to_owned()),
            max_inflight: 256,
            limits: SessionLimits::default(),
        }
    }
}

/// A session with a node. Clones share it; it ends with the last clone, publisher and subscription.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Connection>);

pub(crate) struct Connection {
    pub(crate) outbox: Outbox,
    pub(crate) routes: Arc<Routes>,
    facts: Arc<SessionFacts>,
    next_corr: AtomicU64,
    inflight: Arc<Semaphore>,
    /// The chains over the batches of the mailbox on this session.
    pub(crate) chains: SessionChains,
    /// Sends that wait to travel together.
    pub(crate) gather: Arc<Gather>,
    /// The reader, the writer, and the task that carries what has gathered; they end with the connection.
    _tasks: JoinSet<()>,
}

impl Client {
    /// Connects to a node. Another node than the one in the address is never talked to.
    pub async fn connect(node: &PeerAddress, options: Options) -> Result<Self, Error> {
        let Options { token, post_quantum, agent, max_inflight, limits } = options;
        let max_frame = u32::try_from(limits.frame_bytes_max).unwrap_or(u32::MAX);
        let hello = Hello { cap: token, agent, ..Hello::new(max_frame, max_inflight.max(1)) };
        let session = dial_as_client(node, post_quantum, hello, &limits).await?;
        Ok(Client::over(session))
    }

    /// A client over a session that is there already.
    pub fn over(session: Session) -> Self {
        let Session { facts, reader, writer, outbox } = session;
        let routes = Arc::new(Routes::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(writer.run().await) });
        tasks.spawn(read(reader, Arc::clone(&routes)));
        let inflight = Arc::new(Semaphore::new(facts.agreed.max_inflight));
        let (next_corr, chains, gather) = (AtomicU64::new(1), SessionChains::default(), Arc::<Gather>::default());
        Client(Arc::new_cyclic(|connection| {
            tasks.spawn(carry(connection.clone(), Arc::clone(&gather)));
            Connection { outbox, routes, facts, next_corr, inflight, chains, gather, _tasks: tasks }
        }))
    }

    /// What is known of the session: who the node is, the key exchange, what was agreed on.
    pub fn facts(&self) -> &SessionFacts {
        &self.0.facts
    }

    /// A publisher to a lane. A refusal shows at the first publication that comes after it.
    pub async fn publisher(&self, lane: &str) -> Result<Publisher, Error> {
        Publisher::open(Arc::clone(&self.0), lane).await
    }

    /// A subscription to a lane; it is in force when this returns. One that nobody reads stops the whole session once
    /// its inbox is full, so one that may fall behind gets a client of its own.
    pub async fn subscribe(&self, lane: &str, since: Since) -> Result<Subscription, Error> {
        Subscription::open(Arc::clone(&self.0), lane, since).await
    }

    /// The node's mailbox.
    pub fn mailbox(&self) -> Mailbox {
        Mailbox::new(Arc::clone(&self.0))
    }

    /// Asks an application something and waits for the whole answer. Dropping the future gives the answer up.
    pub async fn request(&self, app: AppId, payload: impl Into<Bytes>) -> Result<Bytes, Error> {
        let asked = self.0.ask(app, payload.into()).await?;
        asked.answer().await
    }

    /// Time from the last answered PING to its PONG.
    pub fn rtt(&self) -> Option<Duration> {
        self.0.outbox.rtt()
    }

    /// The farewell of the node, once it has said one: it takes no new requests.
    pub fn farewell(&self) -> Option<GoAway> {
        self.0.routes.farewell()
    }

    /// Ends the session in order, and waits until it has ended, no longer than this.
    pub async fn close(&self, within: Duration) {
        self.0.outbox.close(&GoAway::normal(), Deadline::after(within));
        self.0.routes.ended().await;
    }

    /// Waits until the session has ended, and says how.
    pub async fn closed(&self) -> Closed {
        self.0.routes.ended().await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.0.facts)
    }
}

/// Hands on what comes until the session ends.
async fn read(mut reader: Reader, routes: Arc<Routes>) {
    let mut heard = Vec::new();
    loop {
        match reader.next_batch(&mut heard).await {
            Ok(()) => routes.dispatch(&mut heard).await,
            Err(closed) => return routes.end(&closed),
        }
    }
}

/// A request whose answer is still to come.
pub(crate) struct Asked {
    connection: Arc<Connection>,
    corr: u64,
    answer: oneshot::Receiver<Answered>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Bytes of payload that fit one frame.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.outbox.frame_bytes_max() - HEADER_BYTES
    }

    /// A number that no request of this session had yet.
    pub(crate) fn corr(&self) -> u64 {
        self.next_corr.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for its turn among the requests that were agreed on.
    pub(crate) async fn turn(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.inflight).acquire_owned();
        turn.await.expect("the semaphore is never closed")
    }

    /// Asks: waits for a turn and for room, not for the answer.
    pub(crate) async fn ask(self: &Arc<Self>, app: AppId, payload: Bytes) -> Result<Asked, Error> {
        let permit = self.turn().await;
        let (corr, len) = (self.corr(), payload.len());
        let (sender, answer) = oneshot::channel();
        self.routes.add(corr, Route::request(sender))?;
        // From here on the route is removed when the request is given up.
        let asked = Asked { connection: Arc::clone(self), corr, answer, _permit: permit };
        self.send(corr, Frame::request(app, corr, payload), len).await?;
        Ok(asked)
    }

    /// Queues a frame as room comes up.
    pub(crate) async fn send(&self, flow: u64, frame: Frame, payload_bytes: usize) -> Result<(), Error> {
        let sent = self.outbox.send(flow, frame).await;
        sent.map_err(|error| self.push_error(error, payload_bytes))
    }

    /// What whoever still waits is told when the session is over.
    pub(crate) fn ended(&self) -> Error {
        Error::Closed(self.routes.how_it_ended().unwrap_or(Closed::Done))
    }

    pub(crate) fn push_error(&self, error: ron_transport::PushError, payload_bytes: usize) -> Error {
        match (error, self.routes.how_it_ended()) {
            (ron_transport::PushError::Closed, Some(closed)) => Error::Closed(closed),
            (error, _) => Error::of_push(error, payload_bytes, self.payload_bytes_max()),
        }
    }
}

impl Asked {
    /// Waits for the whole answer.
    pub(crate) async fn answer(mut self) -> Result<Bytes, Error> {
        let Whole { code, payload } = (&mut self.answer).await.map_err(|_| self.connection.ended())??;
        match code {
            ..300 => Ok(payload),
            _ => Err(Error::Refused(Refusal::new(code, &payload))),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.connection.routes.remove(self.corr);
    }
}
