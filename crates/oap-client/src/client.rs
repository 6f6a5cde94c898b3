//! The session with a node, and requests over it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oap::{AppId, Frame, HEADER_BYTES, Hello};
use ron_kernel::Deadline;
use ron_transport::{
    Closed, GoAway, Outbox, PeerAddress, PostQuantum, PushError, Reader, Session, SessionFacts, SessionLimits,
    dial_as_client,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::error::{Error, Refusal};
use crate::gather::{Gather, carry};
use crate::lanes::{Publisher, Since, Subscription};
use crate::leftovers::{Leftover, clear};
use crate::mailbox::{Mailbox, SessionChains};
use crate::routes::{Answered, Purpose, Route, Routes, Whole};

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
    /// The reader, the writer, and the tasks that carry what has gathered and clear what was left; they end with the
    /// connection.
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
            tasks.spawn(clear(connection.clone(), Arc::clone(&routes), outbox.clone()));
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
        let asked = self.0.ask(app, payload.into(), Purpose::Plain).await?;
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
    app: AppId,
    corr: u64,
    answer: oneshot::Receiver<Answered>,
    /// Held until the answer is here, and taken then: for the node the request is in flight whoever waits for it.
    permit: Option<OwnedSemaphorePermit>,
    /// Whether the node gets to see the request.
    is_sent: bool,
    is_receive: bool,
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
    pub(crate) async fn ask(self: &Arc<Self>, app: AppId, payload: Bytes, purpose: Purpose) -> Result<Asked, Error> {
        let permit = self.turn().await;
        self.ask_in_turn(permit, app, payload, purpose).await
    }

    /// The same for somebody whose turn it is.
    pub(crate) async fn ask_in_turn(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        app: AppId,
        payload: Bytes,
        purpose: Purpose,
    ) -> Result<Asked, Error> {
        let (corr, len, is_receive) = (self.corr(), payload.len(), matches!(purpose, Purpose::Receive));
        let (sender, answer) = oneshot::channel();
        self.routes.add(corr, Route::request(sender, purpose))?;
        // From here on the route is removed, or left to itself, when the request is given up.
        let (connection, permit) = (Arc::clone(self), Some(permit));
        let mut asked = Asked { connection, app, corr, answer, permit, is_sent: false, is_receive };
        self.send(corr, Frame::request(app, corr, payload), len).await?;
        asked.is_sent = true;
        Ok(asked)
    }

    /// Queues the last word on a request or a stream: now, or where there is no room as soon as there is.
    pub(crate) fn leave(&self, frame: Frame, permit: Option<OwnedSemaphorePermit>) {
        if let Err(PushError::Full { .. }) = self.outbox.push(frame.corr, frame.clone()) {
            self.routes.leftovers.push(Leftover::Frame(frame, permit));
        }
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

    pub(crate) fn push_error(&self, error: PushError, payload_bytes: usize) -> Error {
        match (error, self.routes.how_it_ended()) {
            (PushError::Closed, Some(closed)) => Error::Closed(closed),
            (error, _) => Error::of_push(error, payload_bytes, self.payload_bytes_max()),
        }
    }
}

impl Asked {
    /// Waits for the whole answer.
    pub(crate) async fn answer(mut self) -> Result<Bytes, Error> {
        let answered = (&mut self.answer).await;
        self.permit = None;
        let Whole { code, payload } = answered.map_err(|_| self.connection.ended())??;
        match code {
            ..300 => Ok(payload),
            _ => Err(Error::Refused(Refusal::new(code, &payload))),
        }
    }
}

impl Drop for Asked {
    /// A receive that is given up is cancelled: otherwise the node would go on waiting, and take messages for nobody.
    fn drop(&mut self) {
        let Asked { connection, app, corr, answer, permit, is_sent, is_receive } = self;
        match permit.take().filter(|_| *is_sent) {
            Some(permit) => {
                let is_to_come = connection.routes.give_up(*corr, permit, *is_receive, answer);
                if is_to_come && *is_receive {
                    connection.leave(Frame::cancel(*app, *corr), None);
                }
            }
            None => connection.routes.remove(*corr),
        }
    }
}
